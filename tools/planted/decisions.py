"""Decisions that are wrong: what a record means for a request, and what an outcome means for the record."""

from collections.abc import Callable

from retrysafe._core import decisions, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.headers import find
from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Record,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe._core.problems import Problem
from retrysafe._core.steps import (
    Busy,
    Call,
    CanTakeOver,
    Judgement,
    Outcome,
    Raised,
    Replay,
    Responded,
    Streamed,
    ToRelease,
    ToStore,
)
from retrysafe.errors import NotDone
from retrysafe.policy import Policy
from retrysafe.testing.simulate.model import ModelStore
from tools.planted.bug import HOLD, REASONED, RETRY, TX, Plant, Planted, patching

Judge = Callable[[Reservation, Claim, Policy], Judgement]
OfFailure = Callable[[Record, Policy], Judgement]
Unfinished = Callable[[Record, float, Policy], Judgement]
Settle = Callable[[Outcome, Attempt, Call], ToStore | ToRelease]


def judging(make: Callable[[Judge], Judge]) -> Plant:
    return patching(protocol, "judge", make)


def judging_unfinished(make: Callable[[Unfinished], Unfinished]) -> Plant:
    return patching(decisions, "_judge_unfinished", make)


def settling(make: Callable[[Settle], Settle]) -> Plant:
    return patching(protocol, "settle", make)


# --- what was found


class LosesLeases(ModelStore):
    """Takes a missing lease for one that has ended, too."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None and row.lease_until is None:
            row.lease_until = 0.0
        return super().take_over(claim, previous, state)


class TakesOverWhatLeft(ModelStore):
    """Does not know that a part of a response has left, either."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None and row.claim.token == previous:
            row.checkpointed = False
        return super().take_over(claim, previous, state)


def _orphans(real: Unfinished) -> Unfinished:
    def judge(record: Record, now: float, policy: Policy) -> Judgement:
        if record.lease_until is None:
            return CanTakeOver(record.token, "in_progress")
        return real(record, now, policy)

    return judge


def _holds_nothing(real: Unfinished) -> Unfinished:
    return lambda record, now, policy: real(record, now, policy._replace(abandoned="retry"))


def _holds_transactions(real: Unfinished) -> Unfinished:
    return lambda record, now, policy: real(
        record._replace(mode="lease"), now, policy._replace(abandoned="hold")
    )


def _ignores_checkpoints(real: Unfinished) -> Unfinished:
    return lambda record, now, policy: real(record._replace(checkpointed=False), now, policy)


def _replays_beginnings(real: Unfinished) -> Unfinished:
    def judge(record: Record, now: float, policy: Policy) -> Judgement:
        return Replay(record) if record.response is not None else real(record, now, policy)

    return judge


def _takes_the_dead_for_done(real: Judge) -> Judge:
    def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
        judgement = real(found, claim, policy)
        abandoned = isinstance(judgement, CanTakeOver) and judgement.state == "in_progress"
        unknown = isinstance(judgement, Problem) and judgement.code == "outcome-unknown"
        if isinstance(found, Found) and (abandoned or unknown):
            processed = Response(200, (), b"already processed")
            return Replay(found.record._replace(state="completed", response=processed))
        return judgement

    return judge


def _compares_outcomes_only(real: Judge) -> Judge:
    def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
        if isinstance(found, Found) and found.record.state == "in_progress":
            found = found._replace(record=found.record._replace(fingerprint=claim.fingerprint))
        return real(found, claim, policy)

    return judge


def _takes_replays_for_mismatches(real: Judge) -> Judge:
    def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
        judgement = real(found, claim, policy)
        return Problem("key-reused", "This key was used.") if isinstance(judgement, Replay) else judgement

    return judge


def _takes_replays_for_conflicts(real: Judge) -> Judge:
    def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
        judgement = real(found, claim, policy)
        return Busy(1.0) if isinstance(judgement, Replay) else judgement

    return judge


def _retries_failures(real: OfFailure) -> OfFailure:
    return lambda record, policy: real(record, policy._replace(failed="retry"))


# --- what happened


def _lets_failures_go(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        settlement = real(outcome, attempt, call)
        if (
            isinstance(settlement, ToStore)
            and settlement.final.state == "failed"
            and settlement.reply is not None
        ):
            return ToRelease(settlement.reply, settlement.error)
        return settlement

    return settle


def _keeps_three_statuses(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        if isinstance(outcome, Responded) and outcome.response.status not in (200, 201, 202):
            return ToRelease(outcome.response)
        return real(outcome, attempt, call)

    return settle


def _keeps_no_cookies(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        if isinstance(outcome, Responded) and find(outcome.response.headers, b"set-cookie") is not None:
            return ToRelease(outcome.response)
        return real(outcome, attempt, call)

    return settle


def _keeps_failures_as_successes(real: Callable[..., Final]) -> Callable[..., Final]:
    return lambda *args, **kwargs: real(*args, **kwargs)._replace(state="completed")


def _believes_after_a_derived_key(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        attempt.derived = False
        return real(outcome, attempt, call)

    return settle


def _believes_after_bytes_left(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        if isinstance(outcome, Streamed) and outcome.error is not None:
            return ToRelease(call.describe(Problem("not-done", "It broke off.")), outcome.error)
        return real(outcome, attempt, call)

    return settle


def _never_believes(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        if isinstance(outcome, Raised) and isinstance(outcome.error, NotDone):
            outcome = Raised(RuntimeError("it failed"))
        return real(outcome, attempt, call)

    return settle


def _takes_breaks_for_ends(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        return real(Streamed(outcome.head) if isinstance(outcome, Streamed) else outcome, attempt, call)

    return settle


def _commits_failures(real: Settle) -> Settle:
    def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
        return real(outcome, attempt, call._replace(claim=call.claim._replace(mode="lease")))

    return settle


taking_orphans = judging_unfinished(_orphans)
ignoring_checkpoints = judging_unfinished(_ignores_checkpoints)


def _same(_real: object) -> Callable[[bytes, bytes], bool]:
    return lambda _one, _other: True


PLANTED = (
    Planted(
        "a missing lease is an orphan's",
        REASONED,
        RETRY._replace(store=LosesLeases),
        taking_orphans,
    ),
    Planted(
        "a missing lease is an orphan's to the judge alone",
        REASONED,
        RETRY,
        taking_orphans,
    ),
    Planted(
        "an abandoned request is run again",
        "several packages run again blindly some 30 seconds after kill -9",
        HOLD,
        judging_unfinished(_holds_nothing),
    ),
    Planted(
        "an abandoned request counts as processed",
        "hookrelay 0.4.0 and job-callbacks: a claim is lost with its worker",
        HOLD,
        judging(_takes_the_dead_for_done),
    ),
    Planted(
        "tx: an abandoned request is held",
        "erp and workflow-control: a worker that died leaves 409 for a day, or a week",
        TX,
        judging_unfinished(_holds_transactions),
    ),
    Planted(
        "a response that has begun to leave is run again",
        "idemgate 0.1.0 runs large and streamed requests again",
        RETRY._replace(handler="streams", store=TakesOverWhatLeft),
        ignoring_checkpoints,
    ),
    Planted(
        "a response that has begun to leave is replayed",
        "mikkelchokolate/Veil#66: what was cut off is replayed as if it were whole",
        HOLD._replace(handler="streams"),
        judging_unfinished(_replays_beginnings),
    ),
    Planted(
        "a mismatch is ignored",
        "dbos 3.3.0 returns the first result for other arguments",
        HOLD,
        patching(decisions, "same", _same),
    ),
    Planted(
        "only outcomes are compared",
        "idemkit 1.0.2 accepts another payload after a crash",
        RETRY,
        judging(_compares_outcomes_only),
    ),
    Planted(
        "a replay is refused as a mismatch",
        "fastapi-idempotency-key 0.1.1: every replay from Redis is a 422",
        HOLD,
        judging(_takes_replays_for_mismatches),
    ),
    Planted(
        "a replay is refused as a conflict",
        "django-idempotency-key 1.3.0: replays are a 409",
        HOLD,
        judging(_takes_replays_for_conflicts),
    ),
    Planted(
        "a failure is run again unasked",
        "agents: a failed action may be retried, whatever it did",
        HOLD._replace(handler="fails"),
        patching(decisions, "_judge_failed", _retries_failures),
    ),
    Planted(
        "a failure releases the key",
        "pathosDev/actor-ts#984: the claim is deleted on a throw, so a handler that half ran runs again",
        HOLD._replace(handler="fails"),
        settling(_lets_failures_go),
    ),
    Planted(
        "three statuses are stored, and all others run again",
        "idemkit 1.0.2 stores only 200, 201 and 202",
        HOLD._replace(handler="fails"),
        settling(_keeps_three_statuses),
    ),
    Planted(
        "a response with a cookie is not stored",
        "fastapi-idempotency 0.1.1: 20 duplicates ran 20 times",
        HOLD,
        settling(_keeps_no_cookies),
    ),
    Planted(
        "a 5xx is stored as completed",
        "LabsCrypt/remitlend#1329: a transient 5xx is replayed to later requests",
        RETRY._replace(handler="recovers"),
        patching(decisions, "_final", _keeps_failures_as_successes),
    ),
    Planted(
        "NotDone is believed after a derived key",
        REASONED,
        HOLD._replace(handler="derives"),
        settling(_believes_after_a_derived_key),
    ),
    Planted(
        "what broke off after bytes had left is released",
        "koala73/worldmonitor#4728: what cannot be stored releases the lock, so a retry runs again",
        HOLD._replace(handler="breaks off"),
        settling(_believes_after_bytes_left),
    ),
    Planted(
        "NotDone burns the key",
        "workflow-control: a failure that is known not to have happened burns the key",
        HOLD._replace(handler="declines"),
        settling(_never_believes),
    ),
    Planted(
        "a stream that broke off is stored as a success",
        "apache/polaris#3803: a body that was cut off is stored and replayed",
        HOLD._replace(handler="breaks off"),
        settling(_takes_breaks_for_ends),
    ),
    Planted(
        "tx: a failure is committed",
        REASONED,
        TX._replace(handler="recovers"),
        settling(_commits_failures),
    ),
)
