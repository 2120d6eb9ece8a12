"""Checks of what clients receive."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from retrysafe._core.model import Record, Response
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.steps import Result
from retrysafe.testing.simulate.keystate import KeyState, Outcome
from retrysafe.testing.simulate.promises import at_most, broken
from retrysafe.testing.simulate.request import SimulatedRequest
from retrysafe.testing.simulate.setting import LEASE, Setting
from retrysafe.testing.simulate.stage import describe

_FAILED = describe(Problem("handler-failed", ""))
_NOT_DONE = describe(Problem("not-done", ""))


class Received(NamedTuple):
    """The result of one request, as its client receives it."""

    request: SimulatedRequest
    result: Result
    now: float
    setting: Setting
    keys: Mapping[int, KeyState]
    revoked: Mapping[int, int]
    """Identities that may no longer see stored responses, and since when."""


def check(received: Received) -> None:
    verdict, reply = received.result.verdict, received.result.reply
    if received.request.streaming and reply is not None:
        broken("I5", f"bytes of {received.request} had left, and then it received {verdict}")
    if received.request.streaming:
        _check_streamed(received)
    if verdict in CATALOGUE and (not isinstance(reply, Problem) or reply.code != verdict):
        broken("I11", f"{received.request} received {reply}, which is not {verdict}")
    _CHECKS.get(verdict, _otherwise)(received)


def _check_streamed(received: Received) -> None:
    """Check a streamed response by its bytes: whether the client saw its head marked, and its end.

    A client that saw the end of an unmarked response considers the effect settled.  So it must be stored:
    otherwise its retry is refused, or runs again.
    """
    request, result = received.request, received.result
    saw_the_end = result.error is None and not result.cut_off
    execution = request.execution
    if execution is not None and execution.broke and saw_the_end:
        broken("I5", f"{request} received the end of a response that its handler broke off")
    if request.promised and saw_the_end and (request.stored is None or request.stored.state != "completed"):
        broken("I5", f"{request} received its whole response as one that is stored, and it is not")


def _from_its_handler(received: Received) -> Response | None:
    """The response of the request's own execution.  `None`: its bytes have left already, or it never ran."""
    request, handler = received.request, received.request.handler
    execution = request.execution
    if execution is None or request.streaming:
        return None
    if execution.number == 1 and handler in ("declines", "derives", "raises"):
        # A transaction is rolled back, so `NotDone` is believed whatever was passed on before.
        undone = received.setting.mode == "tx" and not request.unprotected
        believed = handler == "declines" or (handler == "derives" and undone)
        return _NOT_DONE if believed else _FAILED
    return execution.response


def _is_its_own(received: Received) -> None:
    """Compare status, headers and body."""
    own = _from_its_handler(received)
    if received.result.reply != own:
        broken("I5", f"{received.request} received {received.result.reply}, and its handler responded {own}")


def _outcome(received: Received) -> None:
    request, result = received.request, received.result
    execution, stored = request.execution, request.stored
    if execution is None:
        broken("I5", f"{request} received {result.verdict}, and it never ran")
    if result.reply is None and not result.stored:
        return  # its bytes had left when it lost the key: what the client received is checked above
    if stored is None or stored.state != result.verdict or not result.stored:
        broken("I5", f"{request} received an outcome that was not stored")
    if received.setting.mode == "tx" and not execution.effect:
        broken("I14", f"{request} received {result.verdict}, and its effect was not committed")
    _is_its_own(received)
    if result.reply is not None or request.promised:
        _definitive(received, stored)


def _replay(received: Received) -> None:
    request, result = received.request, received.result
    record, key = result.reply, request.key
    if not isinstance(record, Record):
        broken("I4", f"{request} received a replay without a record")
    outcome = key.outcomes.get(record.token)
    if outcome is None:
        others = [other for other in received.keys.values() if record.token in other.outcomes]
        broken("I8" if others else "I4", f"{request} received a response that was never stored for this key")
    if outcome.asked != request.asked:
        broken("I7", f"{request} received the response to another request")
    if (outcome.state, outcome.response, outcome.omitted) != (
        record.state,
        record.response,
        record.omitted,
    ):
        broken("I4", f"{request} received {record.response}, and {outcome.response} was stored")
    if outcome.state == "failed" and received.setting.failed != "replay":
        broken("I1", f"{request} received a failure that must not be replayed")
    if not received.setting.reauthorise and (outcome.window != key.window or key.expired(received.now)):
        broken("I1", f"{request} received a response that had expired")
    if outcome.window == key.window and record.request_id != key.original:
        broken(
            "I4", f"{request} received a replay of {record.request_id}, and the original is {key.original}"
        )
    if received.setting.reauthorise and received.revoked.get(key.identity, request.began) < request.began:
        broken("I9", f"{request} received a stored response that it may no longer see")
    _definitive(received, outcome)


def _definitive(received: Received, outcome: Outcome) -> None:
    key = received.request.key
    if outcome.window != key.window or key.standing == "absent":
        return
    if outcome.state == "failed" and received.setting.failed != "replay":
        return  # where failures are run again, a failure is not definitive
    if key.definitive is not None and key.definitive != outcome.response:
        broken("I5", f"clients received {key.definitive.body!r} and {outcome.response.body!r}")
    key.definitive = outcome.response


def _asks_for_the_same(received: Received, what: str) -> None:
    """The holder of the key asks for the same: other requests learn only that the key is in use."""
    request = received.request
    key = request.key
    if key.asked != request.asked and not key.expired(received.now):
        broken("I7", f"{request} received {what}, and it asks for something else")


def _in_flight(received: Received) -> None:
    request = received.request
    key = request.key
    _asks_for_the_same(received, "in-flight")
    if request.settled_window == key.window and key.definitive is not None and not key.expired(received.now):
        broken("I6", f"{request} received in-flight, although the response was known before it arrived")
    if isinstance(received.result.reply, Problem) and not 0 < received.result.reply.retry_after <= LEASE:
        broken(
            "I11", f"{request} received in-flight with a Retry-After of {received.result.reply.retry_after} s"
        )
    if key.standing == "running" and not key.lapsed(received.now):
        if key.token == request.claim.token:
            broken("I11", f"{request} received in-flight, and holds the key itself")
        return
    if received.setting.mode == "tx" and request.execution is not None:
        return  # it was taken over, and the request that did so has ended as well
    broken(
        "I11" if key.standing != "absent" else "I8",
        f"{request} received in-flight, and no request is running",
    )


def _unknown(received: Received) -> None:
    request = received.request
    key = request.key
    if received.setting.mode == "tx":
        broken("I11", f"{request} received outcome-unknown, but a transaction has one")
    _asks_for_the_same(received, "outcome-unknown")
    if request.execution is not None:
        holds = key.token == request.claim.token and key.window == request.execution.window
        if holds and not key.expired(received.now):
            broken("I3", f"{request} received outcome-unknown, and it holds the key")
        return  # it ran and was taken over, and the request that did so left no outcome
    if key.expired(received.now) or key.standing != "running" or not key.lapsed(received.now):
        broken("I11", f"{request} received outcome-unknown, and no request was abandoned")
    if not (received.setting.abandoned == "hold" or key.checkpointed):
        broken("I11", f"{request} received outcome-unknown, and the key may be taken over")


def _reused(received: Received) -> None:
    request = received.request
    key = request.key
    if key.expired(received.now):
        broken("I8", f"{request} received key-reused, and no request uses the key")
    if key.asked == request.asked:
        broken("I7", f"{request} received key-reused, and asks for the same")


def _failed_before(received: Received) -> None:
    request = received.request
    key = request.key
    outcome = None if key.expired(received.now) else key.outcome
    if received.setting.failed != "conflict" or outcome is None or outcome.state != "failed":
        broken("I1", f"{request} received previously-failed, and there was no failure")
    _asks_for_the_same(received, "previously-failed")
    reply = received.result.reply
    previous = reply.previous if isinstance(reply, Problem) else None
    if previous is None or previous.status != outcome.response.status:
        broken("I4", f"{request} received previously-failed without the status of the failure")


def _released(received: Received) -> None:
    request = received.request
    key, execution = request.key, request.execution
    if execution is not None and execution.effect:
        broken(
            at_most(received.setting),
            f"{request} received that nothing was done, and it may have had its effect",
        )
    own = _from_its_handler(received)
    undone = (_FAILED, _NOT_DONE) if own is None or own.status < 400 else (own,)
    if execution is None or received.result.reply not in undone:
        broken("I5", f"{request} received {received.result.reply}, and not that nothing was done")
    holds = key.token == request.claim.token and key.standing == "running"
    if holds and not (request.forgot or key.expired(received.now)):
        broken("I11", f"{request} received that its key is free, and it is not")


def _store_failed(received: Received) -> None:
    request, result = received.request, received.result
    if not request.store_failed:
        broken("I11", f"{request} received {result.verdict}, and the store had replied to all its calls")
    if result.verdict != "unstored":
        return
    if not request.refused:
        broken("I5", f"{request} received an outcome that was not stored, and its lease was not over")
    if result.stored:
        broken("I5", f"{request} received an outcome that was not stored, and it was not marked")
    _is_its_own(received)


def _unprotected(received: Received) -> None:
    request, result = received.request, received.result
    if received.setting.store_down != "run" or not request.store_failed or result.stored:
        broken("I12", f"{request} ran unprotected, without permission or without the mark")
    _is_its_own(received)


def _draining(received: Received) -> None:
    request = received.request
    if not request.worker.draining:
        broken("I11", f"{request} received draining from a worker that is not shutting down")
    key = request.key
    if request.settled_window == key.window and key.definitive is not None and not key.expired(received.now):
        broken("I6", f"{request} received draining, although the response was known before it arrived")
    if key.token == request.claim.token and key.standing == "running" and not request.forgot:
        broken("I11", f"{request} received draining, and still holds the key")


def _forbidden(received: Received) -> None:
    request = received.request
    if request.key.identity not in received.revoked:
        broken("I9", f"{request} was refused a response that it may see")
    if request.asked not in [outcome.asked for outcome in request.key.outcomes.values()]:
        broken("I7", f"{request} was refused the response to another request")


def _otherwise(received: Received) -> None:
    request, result = received.request, received.result
    reply = result.reply.code if isinstance(result.reply, Problem) else result.reply
    broken("I11", f"{request} received {result.verdict} ({reply}), which is not expected here")


_CHECKS: dict[str, Callable[[Received], None]] = {
    "completed": _outcome,
    "failed": _outcome,
    "replayed": _replay,
    "in-flight": _in_flight,
    "outcome-unknown": _unknown,
    "key-reused": _reused,
    "previously-failed": _failed_before,
    "released": _released,
    "unstored": _store_failed,
    "store-unavailable": _store_failed,
    "store-reset": _store_failed,
    "unprotected": _unprotected,
    "draining": _draining,
    "replay-forbidden": _forbidden,
}
