"""The three ways of being safe: what a shop is told in each, and where one of its workers can fall."""

from collections import Counter
from typing import Literal, NamedTuple

from retrysafe.policy import Effects

Mode = Literal["tx", "hold", "retry"]
Stroke = Literal["kill", "stop"]

MODES: tuple[Mode, ...] = ("tx", "hold", "retry")

EFFECTS: dict[Mode, Effects] = {"tx": "database", "hold": "outside", "retry": "repeatable"}
"""What the guard is told."""

Mood = Literal["", "answer 500", "raise", "not done", "answer 429"]
"""What a handler says in the end.  Whatever it says, it says it after it has had its effect."""

MOODS: tuple[Mood, ...] = ("answer 500", "raise", "not done", "answer 429")

RELEASED: frozenset[str] = frozenset({"not done", "answer 429"})
"""By these a handler says that nothing has happened: it is believed in every mode, and may run again."""

FAILED: frozenset[str] = frozenset(MOODS)
"""After these it may run again where it may be tried again at all."""


class Place(NamedTuple):
    """Where a worker can be made to fall, and the mood in which a handler comes there."""

    where: str
    mood: Mood = ""
    heir: bool = False
    """Only whoever comes back for a key whose owner is gone comes there."""


_CLAIM = (Place("before Reserve"), Place("inside Reserve"), Place("after Reserve"), Place("before Run"))

_TAKE_OVER = (
    Place("before TakeOver", heir=True),
    Place("inside TakeOver", heir=True),
    Place("after TakeOver", heir=True),
)

_TRANSACTION = (
    Place("after Write crash_orders"),
    Place("after Write crash_lines"),
    Place("after Run"),
    Place("before Commit"),
    Place("before conclude"),
    Place("inside conclude"),
    Place("after conclude"),
    Place("before COMMIT"),
    Place("inside COMMIT"),
    Place("after COMMIT"),
    Place("after Commit"),
    Place("before RollBack", "answer 500"),
    Place("inside RollBack", "raise"),
    Place("after RollBack", "not done"),
    Place("before Release", "raise"),
    Place("inside Release", "answer 429"),
    Place("after Release", "answer 500"),
)

_LEASE = (
    Place("before Effect"),
    Place("after Effect"),
    Place("after Run"),
    Place("before Finish"),
    Place("inside Finish"),
    Place("after Finish"),
    Place("before Finish", "answer 500"),
    Place("after Finish", "raise"),
    Place("before Release", "not done"),
    Place("inside Release", "answer 429"),
    Place("after Release", "not done"),
)

PLACES: dict[Mode, tuple[Place, ...]] = {
    "tx": (*_CLAIM, *_TAKE_OVER, *_TRANSACTION),
    "hold": (*_CLAIM, *_LEASE),
    "retry": (*_CLAIM, *_TAKE_OVER, *_LEASE),
}

ENOUGH, ENOUGH_FOR_HEIRS = 20, 60
"""So many who were to fall at a place, and one that nobody ever fell at is no accident any more.  An heir
often comes too late: somebody else has taken over."""

TRIES = 3
"""In vain, and it is the next place's turn: else one that nobody can come to would keep everybody busy."""


class Aims:
    """Gives every place its turn: the next stroke is for the one that has had the fewest.

    Where several have had as many, they come in their order.  It begins at another quarter of them for each
    seed, so that several short runs with seeds that follow each other leave out less than one.
    """

    def __init__(self, mode: Mode, seed: int = 0) -> None:
        places = PLACES[mode]
        first = seed % 4 * len(places) // 4
        self._places = places[first:] + places[:first]
        self._under_way: Counter[tuple[Stroke, Place]] = Counter()
        self._tried: Counter[tuple[Stroke, Place]] = Counter()
        self.fell: Counter[tuple[str, str, str]] = Counter()
        """How, where, and in which mood."""

    def next(self, how: Stroke, *, heirs: bool = True) -> Place:
        """For heirs too, or for anybody else."""
        place = min(
            (place for place in self._places if heirs or not place.heir),
            key=lambda place: self._had(how, place),
        )
        self._under_way[how, place] += 1
        return place

    def _had(self, how: Stroke, place: Place) -> int:
        had = max(self._fell(how, place), self._tried[how, place] // TRIES)
        return had + self._under_way[how, place]

    def _fell(self, how: Stroke, place: Place) -> int:
        return self.fell[how, place.where, place.mood]

    def under_way(self, how: Stroke, *, heirs: bool) -> int:
        """Those who are to fall somewhere, and have not yet: heirs, or the others."""
        return sum(
            times for (kind, place), times in self._under_way.items() if kind == how and place.heir == heirs
        )

    def drop(self, how: Stroke, place: Place) -> None:
        """Nobody was sent there after all."""
        self._under_way[how, place] -= 1

    def over(self, how: Stroke, place: Place) -> None:
        """Whoever was to fall there has fallen, or will not."""
        self.drop(how, place)
        self._tried[how, place] += 1

    def reached(self, how: Stroke) -> dict[str, int]:
        """How often each place was; those that never were are here, too."""
        places = sorted(self._places)
        return {" ".join(filter(None, (how, *place[:2]))): self._fell(how, place) for place in places}

    def unreachable(self) -> list[str]:
        """What was tried often enough, and in vain."""
        return [
            f"{how} {place.where}: never reached, and {tried} were to"
            for (how, place), tried in self._tried.items()
            if tried >= (ENOUGH_FOR_HEIRS if place.heir else ENOUGH) and not self._fell(how, place)
        ]
