"""Clients that receive something wrong, while the record is right.

Nothing runs twice and nothing is lost.  Only what is sent is wrong: the first response, which no replay is
compared with by its client, or the reason for a refusal.
"""

from collections.abc import Callable

from retrysafe._core import decisions, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import judge as judged
from retrysafe._core.model import Claim, Found, Record, Reservation, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Busy, Call, Flow, Judgement, Result, Verdict
from retrysafe.policy import Policy
from tools.planted.bug import HOLD, REASONED, RETRY, TX, Once, Plant, Planted, patching

Judge = Callable[[Reservation, Claim, Policy], Judgement]
OfFailure = Callable[[Record, Policy], Judgement]
Unfinished = Callable[[Record, float, Policy], Judgement]
LetFlow = Callable[[Call, Attempt, Response], Flow[Result | None]]

_ANOTHER = Response(201, (), b"done")


def telling(verdict: Verdict, alter: Callable[[Response], Response]) -> Plant:
    """What is made of a response with this verdict on its way to the client."""

    def plant(real: Once) -> Once:
        def once(call: Call) -> Flow[Result]:
            result = yield from real(call)
            if result.verdict != verdict or not isinstance(result.reply, Response):
                return result
            return result._replace(reply=alter(result.reply))

        return once

    return patching(protocol, "once", plant)


def taking_others_for_its_like(is_told: Callable[[Judgement], bool]) -> Plant:
    """What a retry would receive, a request for something else receives too."""

    def plant(real: Judge) -> Judge:
        def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
            if isinstance(found, Found):
                alike = found._replace(record=found.record._replace(fingerprint=claim.fingerprint))
                judgement = judged(alike, claim, policy)
                if is_told(judgement):
                    return judgement
            return real(found, claim, policy)

        return judge

    return patching(protocol, "judge", plant)


def _is(code: str) -> Callable[[Judgement], bool]:
    return lambda judgement: isinstance(judgement, Problem) and judgement.code == code


def _is_busy(judgement: Judgement) -> bool:
    return isinstance(judgement, Busy)


def _begins_without_headers(real: LetFlow) -> LetFlow:
    def let_flow(call: Call, attempt: Attempt, head: Response) -> Flow[Result | None]:
        result = yield from real(call, attempt, head)
        return result and result._replace(reply=head._replace(headers=()))

    return let_flow


def _explains_something_else(real: Once) -> Once:
    def once(call: Call) -> Flow[Result]:
        result = yield from real(call)
        if result.verdict == "in-flight":
            return result._replace(reply=Problem("draining", "This server is shutting down."))
        return result

    return once


def _holds_everything(real: Unfinished) -> Unfinished:
    return lambda record, now, policy: real(record, now, policy._replace(abandoned="hold"))


def _calls_mismatches_malformed(real: Judge) -> Judge:
    def judge(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
        judgement = real(found, claim, policy)
        reused = isinstance(judgement, Problem) and judgement.code == "key-reused"
        return Problem("key-invalid", "This key cannot be used.") if reused else judgement

    return judge


def _replays_failures(real: OfFailure) -> OfFailure:
    return lambda record, policy: real(record, policy._replace(failed="replay"))


def _refuses_failures(real: OfFailure) -> OfFailure:
    return lambda record, policy: real(record, policy._replace(failed="conflict"))


PLANTED = (
    Planted(
        "the first response loses its status",
        REASONED,
        HOLD,
        telling("completed", lambda response: response._replace(status=200)),
    ),
    Planted(
        "the first response loses its headers",
        REASONED,
        HOLD,
        telling("completed", lambda response: response._replace(headers=())),
    ),
    Planted(
        "the first response is a failure, and loses its body",
        REASONED,
        HOLD._replace(handler="fails"),
        telling("failed", lambda response: response._replace(body=b"")),
    ),
    Planted(
        "a response that could not be stored is another one",
        REASONED,
        HOLD,
        telling("unstored", lambda _: _ANOTHER),
    ),
    Planted(
        "without the store another response is sent",
        REASONED,
        HOLD._replace(store_down="run"),
        telling("unprotected", lambda _: _ANOTHER),
    ),
    Planted(
        "what was not done is called done",
        REASONED,
        HOLD._replace(handler="declines"),
        telling("released", lambda _: _ANOTHER),
    ),
    Planted(
        "tx: what was rolled back is called done",
        REASONED,
        TX,
        telling("released", lambda _: _ANOTHER),
    ),
    Planted(
        "a response that is too large to store leaves without its headers",
        REASONED,
        HOLD._replace(handler="streams"),
        patching(protocol, "let_flow", _begins_without_headers),
    ),
    Planted(
        "a refusal is explained by another one",
        REASONED,
        HOLD,
        patching(protocol, "once", _explains_something_else),
    ),
    Planted(
        "a different request receives how the first one had failed",
        REASONED,
        HOLD._replace(failed="conflict", handler="recovers"),
        taking_others_for_its_like(_is("previously-failed")),
    ),
    Planted(
        "a different request receives in-flight",
        REASONED,
        HOLD,
        taking_others_for_its_like(_is_busy),
    ),
    Planted(
        "a different request receives outcome-unknown",
        REASONED,
        HOLD,
        taking_others_for_its_like(_is("outcome-unknown")),
    ),
    Planted(
        "a mismatch is called a malformed key",
        REASONED,
        HOLD,
        patching(protocol, "judge", _calls_mismatches_malformed),
    ),
    Planted(
        "what was abandoned is held, although it may be tried again",
        "validation-api, erp and agents: a worker that died leaves 409 for a day, without a notice",
        RETRY,
        patching(decisions, "_judge_unfinished", _holds_everything),
    ),
    Planted(
        "a failure is replayed, although it may be tried again",
        "LabsCrypt/remitlend#1329: a transient 5xx is replayed to later requests",
        RETRY._replace(handler="recovers"),
        patching(decisions, "_judge_failed", _replays_failures),
    ),
    Planted(
        "a failure is a conflict, although it is to be replayed",
        REASONED,
        HOLD._replace(handler="fails"),
        patching(decisions, "_judge_failed", _refuses_failures),
    ),
)
