"""The three ways of being safe: what a shop is told in each, and where one of its workers can fall."""

from collections import Counter
from random import Random
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

ENOUGH = 4
"""So many strokes for each place, on average, and one that was never reached is no accident any more."""


class Aims:
    """Gives every place its share: the next stroke is for the one that has had the fewest."""

    def __init__(self, mode: Mode, random: Random) -> None:
        self._places = PLACES[mode]
        self._random = random
        self._aimed: Counter[tuple[Stroke, Place]] = Counter()
        self.fell: Counter[tuple[str, str]] = Counter()

    def next(self, how: Stroke) -> Place:
        fewest = min(self._had(how, place) for place in self._places)
        place = self._random.choice([place for place in self._places if self._had(how, place) == fewest])
        self._aimed[how, place] += 1
        return place

    def _had(self, how: Stroke, place: Place) -> int:
        return self.fell[how, place.where] + self._aimed[how, place]

    def over(self, how: Stroke, place: Place) -> None:
        """Whoever was to fall there has fallen, or will not."""
        self._aimed[how, place] -= 1

    def never_reached(self) -> list[str]:
        """What a long run has left out."""
        wheres = {place.where for place in self._places}
        return [
            f"{how} {where}: never reached, with {total} at named places"
            for how in ("kill", "stop")
            if (total := sum(self.fell[how, where] for where in wheres)) >= ENOUGH * len(self._places)
            for where in sorted(wheres)
            if not self.fell[how, where]
        ]
