"""Bugs that were planted without knowledge of the others, and not noticed at first.

Each has led to a stricter check.  They are of the quieter sort: nothing runs twice, but a client gets less
than what is known, or later, or a key is held for nothing.
"""

from collections.abc import Callable

from retrysafe._core import decisions, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Found, Purged, Reservation
from retrysafe._core.problems import Problem
from retrysafe._core.steps import (
    Busy,
    Call,
    Checkpoint,
    Finish,
    Flow,
    Forget,
    Judgement,
    Outcome,
    Persist,
    Raised,
    Replay,
    Result,
    RollBack,
    Step,
    ToRelease,
    ToStore,
    ask,
)
from retrysafe.errors import NotDone, StoreError
from retrysafe.policy import Policy
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.sqlite import emptied
from tools.planted.bug import (
    HOLD,
    REASONED,
    RETRY,
    TX,
    Perform,
    Planted,
    doing,
    patching,
    performed,
)
from tools.planted.sql import rewriting

Keeps = Callable[[Call, Finish | Checkpoint], Flow[bool | StoreError]]
Conclude = Callable[[Call, Attempt, Outcome], Flow[Result]]
Judge = Callable[[Reservation, Claim, Policy], Judgement]
Settle = Callable[[Outcome, Attempt, Call], ToStore | ToRelease]


def _takes_silence_for_a_fence(real: Keeps) -> Keeps:
    def keep(call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        return (yield from real(call, write)) is True

    return keep


def _gives_up_at_once(_real: Keeps) -> Keeps:
    def keep(_call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        try:
            return (yield from ask(write))
        except StoreError as trouble:
            return trouble

    return keep


def _never_gives_up(_real: Keeps) -> Keeps:
    def keep(call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        while True:
            try:
                return (yield from ask(write))
            except StoreError:
                yield from ask(Persist(call.claim, 0.05))

    return keep


Bid = Callable[[Call, protocol.Unconfirmed], Flow[object]]


def _drains_and_keeps_its_answers(real: Bid) -> Bid:
    def bid(call: Call, unconfirmed: protocol.Unconfirmed) -> Flow[object]:
        judgement = yield from real(call, unconfirmed)
        drained = call.draining() and isinstance(judgement, Replay)
        return Problem("draining", "This server is shutting down.") if drained else judgement

    return bid


def _answers_once_more(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        def perform(step: Step) -> Flow[object]:
            reply = yield step
            if isinstance(step, Finish) and reply is False:
                attempt.checkpointed = False
            return reply

        return (yield from performed(real(call, attempt, outcome), perform))

    return conclude


def _keeps_what_was_cut_off(_call: Call) -> Perform:
    cut_off = False

    def perform(step: Step) -> Flow[object]:
        nonlocal cut_off
        cut_off = cut_off or (isinstance(step, RollBack) and step.cut_off)
        return None if cut_off and isinstance(step, Forget) else (yield step)

    return perform


def _never_rolled_back(_real: object) -> Callable[[Call, Result], bool]:
    return lambda _call, _answer: False


def _asks_for_more_patience_than_a_lease(real: Callable[..., Judgement]) -> Callable[..., Judgement]:
    def unfinished(*known: object) -> Judgement:
        judgement = real(*known)
        return Busy(judgement.retry_after * 1000) if isinstance(judgement, Busy) else judgement

    return unfinished


def _does_not_say_how_it_failed(real: Callable[..., Judgement]) -> Callable[..., Judgement]:
    def failed(*known: object) -> Judgement:
        judgement = real(*known)
        return judgement._replace(previous=None) if isinstance(judgement, Problem) else judgement

    return failed


def _waits_for_itself(real: Judge) -> Judge:
    def judging(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
        if isinstance(reservation, Found) and reservation.record.token == claim.token:
            return Busy(1.0)
        return real(reservation, claim, policy)

    return judging


def _takes_an_exception_for_nothing(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        if isinstance(outcome, Raised) and not isinstance(outcome.error, NotDone):
            return ToRelease(call.describe(Problem("handler-failed", "The request failed.")), outcome.error)
        return real(outcome, attempt, call)

    return settle


class NamesTheLast(ModelStore):
    """Names the request that completed as the original, even if another was first."""

    def reserve(self, claim: Claim) -> Reservation:
        reply = super().reserve(claim)
        if not isinstance(reply, Found):
            return reply
        last = self._rows[claim.id].claim.request_id
        return reply._replace(record=reply.record._replace(request_id=last))


class RemovesNothing(ModelStore):
    """Leaves what has expired to the next request."""

    def purge(self, limit: int = 500) -> Purged:
        return super().purge(limit * 0)


PLANTED = (
    Planted(
        "a store that stays silent counts as one that refused",
        REASONED,
        HOLD,
        patching(protocol, "store", _takes_silence_for_a_fence),
    ),
    Planted(
        "an outcome is given up at the first trouble",
        REASONED,
        HOLD,
        patching(protocol, "store", _gives_up_at_once),
    ),
    Planted(
        "storing an outcome is retried after the lease",
        REASONED,
        HOLD,
        patching(protocol, "store", _never_gives_up),
    ),
    Planted(
        "a server that drains does not even replay",
        REASONED,
        HOLD,
        patching(protocol, "_bid", _drains_and_keeps_its_answers),
    ),
    Planted(
        "a request that lost the key in the middle of its response receives another one",
        REASONED,
        RETRY._replace(handler="streams"),
        patching(protocol, "conclude", _answers_once_more),
    ),
    Planted(
        "tx: a request that is cancelled holds its key",
        REASONED,
        TX,
        doing(_keeps_what_was_cut_off),
    ),
    Planted(
        "tx: a bid that was given up is not forgotten after a rollback",
        "our own history: it came after the release, and took the key for a request that had ended",
        TX,
        patching(protocol, "_rolled_back", _never_rolled_back),
    ),
    Planted(
        "in-flight has a Retry-After longer than any lease",
        REASONED,
        HOLD,
        patching(decisions, "_judge_unfinished", _asks_for_more_patience_than_a_lease),
    ),
    Planted(
        "a conflict does not say how it had failed",
        REASONED,
        HOLD._replace(failed="conflict", handler="recovers"),
        patching(decisions, "_judge_failed", _does_not_say_how_it_failed),
    ),
    Planted(
        "a request receives in-flight for its own bid",
        REASONED,
        HOLD,
        patching(protocol, "judge", _waits_for_itself),
    ),
    Planted(
        "an exception counts as nothing done",
        REASONED,
        HOLD._replace(handler="raises"),
        patching(protocol, "settle", _takes_an_exception_for_nothing),
    ),
    Planted(
        "a replay names another request as the original",
        REASONED,
        RETRY._replace(store=NamesTheLast),
    ),
    Planted(
        "a purge removes nothing",
        REASONED,
        HOLD._replace(store=RemovesNothing),
    ),
    Planted(
        "in SQL a new request has the id of the one that had expired",
        REASONED,
        HOLD._replace(store=emptied),
        rewriting("    request_id = excluded.request_id,\n", "", "reserve"),
    ),
)
