"""The modes and doors: what the guard is given in each, and the places where a worker can be interrupted."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from retrysafe.policy import Effects

Door = Literal["request", "operation", "callback"]
"""How orders come in: as requests, through the middleware; as calls of an operation, with a key; or as events
that are delivered, with an id."""

Mode = Literal["tx", "nested", "hold", "retry", "payload", "inbox"]
"""In "nested" an order is an operation in a transaction, and a part of it is an operation of its own.  In the
last two the payload of an event is stored, and workers handle it: in "payload" what a delivery left, in a
transaction; in "inbox" everything."""

Interruption = Literal["kill", "stop"]

MODES: tuple[Mode, ...] = ("tx", "hold", "retry")
"""Those of every door."""

NESTED: Mode = "nested"

PAYLOAD: Mode = "payload"

INBOX: Mode = "inbox"

WITH_WORKERS: frozenset[Mode] = frozenset({PAYLOAD, INBOX})
"""Those in which some of the processes take no deliveries, and handle stored payloads."""

TRANSACTIONAL: frozenset[Mode] = frozenset({"tx", NESTED, PAYLOAD})
"""Those in which effects are in the store's own database."""

EFFECTS: dict[Mode, Effects] = {
    "tx": "database",
    "nested": "database",
    "hold": "outside",
    "retry": "repeatable",
    "payload": "database",
    "inbox": "repeatable",
}
"""The `effects=` of the guard."""

MAX_RESPONSE = 1024
"""Bytes that the guard stores of a response.  Orders are shorter, except those that a request wants large."""

Ending = Literal["", "large", "return 500", "raise", "not done", "return 429"]
"""How a handler ends, as its request asks.  Whatever it responds, it does so after it has had its effect.  An
operation has no statuses: it raises where a handler would respond with one."""

LARGE: Ending = "large"
"""The response is longer than `MAX_RESPONSE`, so it flows while the handler is still at work.  Used in mode
`hold` only, where a client stops when it learns that an outcome is unknown; and of requests only, because
the value of an operation does not flow."""

ENDINGS: tuple[Ending, ...] = ("return 500", "raise", "not done", "return 429")
"""Those that are not a success."""

RELEASED: frozenset[str] = frozenset({"not done", "return 429"})
"""With these a handler declares that nothing has happened: every mode accepts that, and it may run again."""

FAILED: frozenset[str] = frozenset(ENDINGS)
"""After these it may run again where retries are allowed at all."""


class Place(NamedTuple):
    """Where a worker can be interrupted, and the ending for which a handler gets there."""

    where: str
    ending: Ending = ""
    successor: bool = False
    """Only a request that takes over a key whose owner is gone gets there."""
    worker: bool = False
    """Only a worker that handles a stored payload gets there."""


_CLAIM = (Place("before Reserve"), Place("inside Reserve"), Place("after Reserve"), Place("before Run"))

_TAKE_OVER = (
    Place("before TakeOver", successor=True),
    Place("inside TakeOver", successor=True),
    Place("after TakeOver", successor=True),
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
    Place("before RollBack", "return 500"),
    Place("inside RollBack", "raise"),
    Place("after RollBack", "not done"),
    Place("before Release", "raise"),
    Place("inside Release", "return 429"),
    Place("after Release", "return 500"),
)

_LEASE = (
    Place("before Effect"),
    Place("after Effect"),
    Place("after Run"),
    Place("before Finish"),
    Place("inside Finish"),
    Place("after Finish"),
    Place("before Finish", "return 500"),
    Place("after Finish", "raise"),
    Place("before Release", "not done"),
    Place("inside Release", "return 429"),
    Place("after Release", "not done"),
)

_FLOW = (
    Place("before Checkpoint", LARGE),
    Place("inside Checkpoint", LARGE),
    Place("after Checkpoint", LARGE),
    Place("before Finish", LARGE),
    Place("after Finish", LARGE),
)

_PART = (
    Place("after Write crash_orders"),
    Place("before LookWithin"),
    Place("inside LookWithin"),
    Place("after LookWithin"),
    Place("after Write crash_lines"),
    Place("after Run"),
    Place("before StoreWithin"),
    Place("inside StoreWithin"),
    Place("after StoreWithin"),
    Place("before Spoil", "raise"),
    Place("after Spoil", "not done"),
    Place("before Commit"),
    Place("before conclude"),
    Place("inside conclude"),
    Place("after conclude"),
    Place("before COMMIT"),
    Place("inside COMMIT"),
    Place("after COMMIT"),
    Place("after Commit"),
    Place("before Release", "raise"),
    Place("inside Release", "not done"),
    Place("after Release", "raise"),
)

_HANDLER = (Place("before Handle"), Place("inside Handle"), Place("after Handle"))

_COMMIT = (
    Place("after Write crash_orders"),
    Place("after Write crash_lines"),
    Place("before Commit"),
    Place("before conclude"),
    Place("inside conclude"),
    Place("after conclude"),
    Place("before COMMIT"),
    Place("inside COMMIT"),
    Place("after COMMIT"),
    Place("after Commit"),
)

_UNDONE = (
    Place("before RollBack", "return 500"),
    Place("inside RollBack", "raise"),
    Place("after RollBack", "not done"),
    Place("before Finish", "raise"),
    Place("inside Finish", "return 500"),
    Place("after Finish", "raise"),
    Place("before Release", "not done"),
    Place("inside Release", "return 429"),
    Place("after Release", "not done"),
)

_ACCEPTED = (Place("before Reserve"), Place("inside Reserve"), Place("after Reserve"))
"""Before, while and after a payload is stored; the last is before its sender is told so."""

_TAKEN = (Place("before TakeOver"), Place("inside TakeOver"), Place("after TakeOver"), Place("before Run"))
"""By a worker; the last two are between its claim and the handler."""

_SETTLED = (
    Place("before Effect"),
    Place("after Effect"),
    Place("after Run"),
    Place("before Finish"),
    Place("inside Finish"),
    Place("after Finish"),
    Place("before Finish", "raise"),
    Place("inside Finish", "not done"),
    Place("after Finish", "return 429"),
)


def _in_worker(places: Iterable[Place], ending: Ending | None = None) -> tuple[Place, ...]:
    """The same places in a worker."""
    return tuple(
        place._replace(worker=True, ending=place.ending if ending is None else ending) for place in places
    )


PLACES: dict[Mode, tuple[Place, ...]] = {
    "tx": (*_CLAIM, *_TAKE_OVER, *_TRANSACTION),
    "nested": (*_CLAIM, *_TAKE_OVER, *_PART),
    "hold": (*_CLAIM, *_LEASE, *_FLOW),
    "retry": (*_CLAIM, *_TAKE_OVER, *_LEASE),
}

PLACES_OF_DELIVERIES: dict[Mode, tuple[Place, ...]] = {
    "tx": (*_CLAIM, *_TAKE_OVER, *_HANDLER, *_COMMIT, *_UNDONE),
    "hold": (*_CLAIM, *_HANDLER, *_LEASE),
    "retry": (*_CLAIM, *_TAKE_OVER, *_HANDLER, *_LEASE),
    # What a delivery leaves that raised is due at once, and handled by a worker that is interrupted there.
    "payload": (*_CLAIM, *_HANDLER, *_COMMIT, *_UNDONE, *_in_worker((*_TAKEN, *_HANDLER, *_COMMIT), "raise")),
    "inbox": (*_ACCEPTED, *_in_worker((*_TAKEN, *_HANDLER, *_SETTLED))),
}


def places(mode: Mode, door: Door) -> tuple[Place, ...]:
    """Where a worker can be interrupted: a value does not flow."""
    if door == "callback":
        return PLACES_OF_DELIVERIES[mode]
    return tuple(place for place in PLACES[mode] if door == "request" or place.ending != LARGE)


ENOUGH, ENOUGH_FOR_SUCCESSORS = 20, 60
"""Requests sent to a place, after which it is a violation that no worker was interrupted there.  A successor
often arrives too late: another request has taken over."""

TRIES = 3
"""In vain, after which it is the next place's turn: an unreachable place must not use up the whole run."""


class Rotation:
    """Gives every place its turn: the next interruption is for the place that has had the fewest.

    Ties are broken by their order.  It begins at another quarter of the places for each seed, so that several
    short runs with consecutive seeds leave out less than one.
    """

    def __init__(self, mode: Mode, seed: int = 0, door: Door = "request") -> None:
        all_places = places(mode, door)
        first = seed % 4 * len(all_places) // 4
        self._places = all_places[first:] + all_places[:first]
        self._under_way: Counter[tuple[Interruption, Place]] = Counter()
        self._tried: Counter[tuple[Interruption, Place]] = Counter()
        self.trapped: Counter[tuple[str, str, str]] = Counter()
        """By interruption, place and ending."""

    def next(self, how: Interruption, *, successors: bool = True) -> Place:
        """With the places for successors, or without."""
        place = min(
            (place for place in self._places if successors or not place.successor),
            key=lambda place: self._turns(how, place),
        )
        self._under_way[how, place] += 1
        return place

    def _turns(self, how: Interruption, place: Place) -> int:
        had = max(self._trapped(how, place), self._tried[how, place] // TRIES)
        return had + self._under_way[how, place]

    def _trapped(self, how: Interruption, place: Place) -> int:
        return self.trapped[how, place.where, place.ending]

    def under_way(self, how: Interruption, *, successors: bool) -> int:
        """Requests that were sent to a place, and are not over: of successors, or of others."""
        return sum(
            times
            for (kind, place), times in self._under_way.items()
            if kind == how and place.successor == successors
        )

    def drop(self, how: Interruption, place: Place) -> None:
        """No request was sent there after all."""
        self._under_way[how, place] -= 1

    def over(self, how: Interruption, place: Place) -> None:
        """The request that was sent there was interrupted, or will not be."""
        self.drop(how, place)
        self._tried[how, place] += 1

    def reached(self, how: Interruption) -> dict[str, int]:
        """How often a worker was interrupted at each place, with 0 for those that were never reached."""
        return {
            " ".join(filter(None, (how, *place[:2]))): self._trapped(how, place)
            for place in sorted(self._places)
        }

    def unreachable(self) -> list[str]:
        """Places that were tried often enough, and in vain."""
        return [
            f"{how} {place.where}: never reached by the {tried} requests that were sent there"
            for (how, place), tried in self._tried.items()
            if tried >= (ENOUGH_FOR_SUCCESSORS if place.successor else ENOUGH)
            and not self._trapped(how, place)
        ]
