"""Histories that are not linearizable because one thing was changed that cannot have been.

Each mutation says why.  The reasons do without the checker: they follow from the specification in a sentence.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from retrysafe.testing.linearize.decide import Mode
from retrysafe.testing.linearize.history import Heard, History, Operation


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
    found = [operation for operation in made.history if operation.heard in _DEFINITIVE]
    return made.random.choice(found) if found else None


def _after(operation: Operation, heard: Heard, answer: bytes = b"") -> Operation:
    """One who asks for the same when this one has its answer."""
    assert operation.ended is not None
    return Operation(operation.ended + 0.25, operation.ended + 0.75, operation.asked, heard, answer)


def _before_all(history: History, heard: Heard, answer: bytes = b"") -> Operation:
    earliest = min(operation.began for operation in history)
    return Operation(earliest - 2, earliest - 1, history[0].asked, heard, answer)


def second_answer(made: Made) -> History | None:
    """All definitive answers are equal, and this one is not."""
    known = _definitive(made)
    return known and [*made.history, known._replace(heard="replay", answer=known.answer + b"!")]


def changed_answer(made: Made) -> History | None:
    """Of several definitive answers, one was changed on its way."""
    found = [index for index, operation in enumerate(made.history) if operation.heard in _DEFINITIVE]
    if len(found) < 2:
        return None
    changed = list(made.history)
    index = made.random.choice(found)
    changed[index] = changed[index]._replace(answer=b"")
    return changed


def second_first(made: Made) -> History | None:
    """Only one execution's outcome is ever kept, and here two were told that it was theirs."""
    found = [operation for operation in made.history if operation.heard == "first"]
    return [*made.history, made.random.choice(found)] if found else None


def late_first(made: Made) -> History | None:
    """It executed when somebody had the definitive answer already."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "first", known.answer)]


def in_flight_after_the_answer(made: Made) -> History | None:
    """Somebody had the definitive answer, and then nobody can be at it any more."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "in-flight")]


def unknown_after_the_answer(made: Made) -> History | None:
    """Somebody had the definitive answer, so it is known."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "unknown")]


def mismatch_after_the_answer(made: Made) -> History | None:
    """Somebody had the definitive answer, and who asks for the same is refused."""
    known = _definitive(made)
    return known and [*made.history, _after(known, "mismatch")]


def replay_for_another(made: Made) -> History | None:
    """The answer was given to one who asked for something else."""
    known = _definitive(made)
    return known and [*made.history, known._replace(heard="replay", asked=known.asked + "?")]


def replay_before_all(made: Made) -> History | None:
    """An answer was replayed before anybody asked for it."""
    known = _definitive(made)
    return [*made.history, _before_all(made.history, "replay", known.answer if known else b"answer")]


def in_flight_before_all(made: Made) -> History | None:
    """Somebody was at it before anybody had begun."""
    return [*made.history, _before_all(made.history, "in-flight")]


def mismatch_before_all(made: Made) -> History | None:
    """Something else had the key before anybody had begun."""
    return [*made.history, _before_all(made.history, "mismatch")]


def mismatch_alone(made: Made) -> History | None:
    """Everybody asked for the same, and one was told that it was something else."""
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
    """Somebody was seen at it, or had an answer, and nobody was there who can have begun it."""
    needy = [operation for operation in made.history if operation.heard in ("in-flight", "unknown", "replay")]
    if not needy:
        return None
    asked = made.random.choice(needy).asked
    return [
        operation for operation in made.history if operation.heard not in _OWNERS or operation.asked != asked
    ]


MUTATIONS: tuple[Mutation, ...] = (
    second_answer,
    changed_answer,
    second_first,
    late_first,
    in_flight_after_the_answer,
    unknown_after_the_answer,
    mismatch_after_the_answer,
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
