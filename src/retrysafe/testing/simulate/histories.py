"""What clients saw in a world, as histories for `retrysafe.testing.linearize`."""

from collections.abc import Sequence

from retrysafe._core.model import Record, Response
from retrysafe._core.steps import Result
from retrysafe.testing.linearize import History, Mode, Operation, ResponseKind, check
from retrysafe.testing.simulate.promises import broken
from retrysafe.testing.simulate.request import SimulatedRequest
from retrysafe.testing.simulate.setting import RETENTION, Setting
from retrysafe.testing.simulate.stage import ASKED
from retrysafe.testing.simulate.world import START, World

_KINDS: dict[str, ResponseKind] = {
    "replayed": "replay",
    "in-flight": "in-flight",
    "key-reused": "mismatch",
    "outcome-unknown": "unknown",
}
"""All other verdicts, a request's own outcome aside, settle nothing."""


def mode(setting: Setting) -> Mode:
    """The rules by which histories are checked: a failure that is retried was taken over."""
    if setting.mode == "tx":
        return "tx"
    return "retry" if setting.failed == "retry" else setting.abandoned


def judge(found: Sequence[History], setting: Setting) -> None:
    """Check that each history is linearizable.  Raises `Violation`."""
    for history in found:
        wrong = check(history, mode=mode(setting))
        if wrong is not None:
            broken("I6", f"the history of a key is not linearizable: {wrong}")


def gather(world: World) -> list[History]:
    """One history for each key; none, if a retention has passed or an operator has settled a record."""
    if world.clock.now - START >= RETENTION or world.intervened:
        return []
    found: dict[int, History] = {}
    parts = [request.part for request in world.requests.values() if request.part is not None]
    for request in (*world.requests.values(), *parts):
        history = found.setdefault(request.key.identity, [])
        history.append(_operation(request, world.setting.failed))
        if request.arrived_late and request.result is not None:
            # A bid that had timed out arrived late: no client was waiting for it any more.
            history.append(Operation(request.began, None, str(ASKED[request.asked]), "nothing"))
    return list(found.values())


def _operation(request: SimulatedRequest, failed: str) -> Operation:
    asked = str(ASKED[request.asked])
    if request.result is None or request.ended is None:
        return Operation(request.began, None, asked, "nothing")
    verdict, reply = request.result.verdict, request.result.reply
    received: ResponseKind = _KINDS.get(verdict, "open")
    response: Response | None = None
    if received == "replay" and isinstance(reply, Record):
        response = reply.response
    elif request.stored is not None and _is_definitive(request.result, failed, promised=request.promised):
        received, response = "first", request.stored.response
    # A call that the store did not reply to may still be on its way.
    ended = None if received == "open" and request.store_failed else request.ended
    return Operation(request.began, ended, asked, received, b"" if response is None else _all_of(response))


def _is_definitive(result: Result, failed: str, *, promised: bool) -> bool:
    """Whether it is the request's own outcome, stored, and received by its client."""
    lasting = result.verdict == "completed" or (result.verdict == "failed" and failed == "replay")
    return lasting and result.stored and (result.reply is not None or promised)


def _all_of(response: Response) -> bytes:
    status, headers, body = response
    return b"%d %b %b" % (status, b" ".join([b"%b: %b" % pair for pair in headers]), body)
