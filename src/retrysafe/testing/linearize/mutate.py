"""Histories that are not linearizable because one thing was changed that cannot have been.

Each mutation has its reason, which follows from the specification in a sentence, without the checker.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from retrysafe.testing.linearize.decide import Mode
from retrysafe.testing.linearize.history import History, Operation, ResponseKind


class Made(NamedTuple):
    """A good history, and the dice for choosing what to change in it."""

    random: Random
    history: History
    mode: Mode


Mutation = Callable[[Made], History | None]
"""Gives a history that is certainly bad, or `None` where it does not apply."""

_DEFINITIVE = ("first", "replay")
_OWNERS = ("first", "open", "nothing")


def _definitive(made: Made) -> Operation | None:
    found = [operation for operation in made.history if operation.received in _DEFINITIVE]
    return made.random.choice(found) if found else None


def _after(operation: Operation, received: ResponseKind, response: bytes = b"") -> Operation:
    """One that asks for the same after this one has its response."""
    assert operation.ended is not None
    return Operation(operation.ended + 0.25, operation.ended + 0.75, operation.asked, received, response)


def _before_all(history: History, received: ResponseKind, response: bytes = b"") -> Operation:
    earliest = min(operation.began for operation in history)
    return Operation(earliest - 2, earliest - 1, history[0].asked, received, response)


def second_response(made: Made) -> History | None:
    """All definitive responses are equal, and this one is not."""
    known = _definitive(made)
    return known and [*made.history, known._replace(received="replay", response=known.response + b"!")]


def changed_response(made: Made) -> History | None:
    """Of several definitive responses, one was changed on its way."""
    found = [index for index, operation in enumerate(made.history) if operation.received in _DEFINITIVE]
    if len(found) < 2:
        return None
    changed = list(made.history)
    index = made.random.choice(found)
    changed[index] = changed[index]._replace(response=b"")
    return changed


def second_first(made: Made) -> History | None:
    """Only one execution's outcome is ever stored, and here two received theirs as the first."""
    found = [operation for operation in made.history if operation.received == "first"]
    return [*made.history, made.random.choice(found)] if found else None


def late_first(made: Made) -> History | None:
    """It executed after another had the definitive response."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "first", known.response)]


def in_flight_after_the_response(made: Made) -> History | None:
    """Another had the definitive response, and after that none can be running."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "in-flight")]


def unknown_after_the_response(made: Made) -> History | None:
    """Another had the definitive response, so it is known."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "unknown")]


def mismatch_after_the_response(made: Made) -> History | None:
    """Another had the definitive response, and one that asks for the same is refused."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "mismatch")]


def replay_for_another(made: Made) -> History | None:
    """The response was sent to one that asked for something else."""
    known = _definitive(made)
    return known and [*made.history, known._replace(received="replay", asked=known.asked + "?")]


def replay_before_all(made: Made) -> History | None:
    """A response was replayed before the first operation began."""
    known = _definitive(made)
    return [*made.history, _before_all(made.history, "replay", known.response if known else b"response")]


def in_flight_before_all(made: Made) -> History | None:
    """Another was running before the first operation began."""
    return [*made.history, _before_all(made.history, "in-flight")]


def mismatch_before_all(made: Made) -> History | None:
    """Something else had the key before the first operation began."""
    return [*made.history, _before_all(made.history, "mismatch")]


def mismatch_alone(made: Made) -> History | None:
    """All asked for the same, and one received that it was something else."""
    chosen = made.random.choice(made.history)
    if any(operation.asked != chosen.asked for operation in made.history):
        return None
    latest = max(operation.ended or operation.began for operation in made.history)
    return [*made.history, Operation(chosen.began, latest + 1, chosen.asked, "mismatch")]


def unknown_in_a_transaction(made: Made) -> History | None:
    """In a transaction nothing is unknown."""
    if made.mode != "tx":
        return None
    chosen = made.random.choice(made.history)
    return [*made.history, Operation(chosen.began, chosen.began + 1, chosen.asked, "unknown")]


def without_owners(made: Made) -> History | None:
    """One was seen running, or had a response, and no operation can have begun it."""
    needy = [
        operation for operation in made.history if operation.received in ("in-flight", "unknown", "replay")
    ]
    if not needy:
        return None
    asked = made.random.choice(needy).asked
    return [
        operation
        for operation in made.history
        if operation.received not in _OWNERS or operation.asked != asked
    ]


MUTATIONS: tuple[Mutation, ...] = (
    second_response,
    changed_response,
    second_first,
    late_first,
    in_flight_after_the_response,
    unknown_after_the_response,
    mismatch_after_the_response,
    replay_for_another,
    replay_before_all,
    in_flight_before_all,
    mismatch_before_all,
    mismatch_alone,
    unknown_in_a_transaction,
    without_owners,
)


def bad(random: Random, history: History, mode: Mode) -> tuple[History, Mutation]:
    """A good history, changed into one that is not; and by which mutation."""
    while True:
        mutation = MUTATIONS[int(random.random() * len(MUTATIONS))]
        mutated = mutation(Made(random, history, mode))
        if mutated is not None:
            return mutated, mutation
