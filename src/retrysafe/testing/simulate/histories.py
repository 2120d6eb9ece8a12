"""What clients saw in a world, as histories for `retrysafe.testing.linearize`."""

from collections.abc import Sequence

from retrysafe._core.model import Record, Response
from retrysafe._core.steps import Result
from retrysafe.testing.linearize import Heard, History, Mode, Operation, check
from retrysafe.testing.simulate.promises import broken
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.setting import RETENTION, Setting
from retrysafe.testing.simulate.stage import ASKED
from retrysafe.testing.simulate.world import START, World

_HEARD: dict[str, Heard] = {
    "replayed": "replay",
    "in-flight": "in-flight",
    "key-reused": "mismatch",
    "outcome-unknown": "unknown",
}
"""Everything else, a visit's own outcome aside, settles nothing."""


def mode(setting: Setting) -> Mode:
    """By which rules they are to be checked: a failure that is tried again was taken over."""
    if setting.mode == "tx":
        return "tx"
    return "retry" if setting.failed == "retry" else setting.abandoned


def judge(found: Sequence[History], setting: Setting) -> None:
    """Whether each of them could have come about.  Raises `Violation`."""
    for history in found:
        wrong = check(history, mode=mode(setting))
        if wrong is not None:
            broken("I6", f"the history of a key is not linearizable: {wrong}")


def gather(world: World) -> list[History]:
    """One history for each key; none, if a retention has gone by or an operator has had a hand in it."""
    if world.clock.now - START >= RETENTION or world.intervened:
        return []
    found: dict[int, History] = {}
    for visit in world.visits.values():
        history = found.setdefault(visit.account.identity, [])
        history.append(_operation(visit, world.setting.failed))
        if visit.haunts and visit.answer is not None:
            # A bid that it had given up came late: by then, it was nobody's.
            history.append(Operation(visit.began, None, str(ASKED[visit.asked]), "nothing"))
    return list(found.values())


def _operation(visit: Visit, failed: str) -> Operation:
    asked = str(ASKED[visit.asked])
    if visit.answer is None or visit.ended is None:
        return Operation(visit.began, None, asked, "nothing")
    verdict, reply = visit.answer.verdict, visit.answer.reply
    heard: Heard = _HEARD.get(verdict, "open")
    said: Response | None = None
    if heard == "replay" and isinstance(reply, Record):
        said = reply.response
    elif visit.kept is not None and _is_definitive(visit.answer, failed, promised=visit.promised):
        heard, said = "first", visit.kept.response
    # What the store did not answer may still be on its way.
    ended = None if heard == "open" and visit.troubled else visit.ended
    return Operation(visit.began, ended, asked, heard, b"" if said is None else _all_of(said))


def _is_definitive(answer: Result, failed: str, *, promised: bool) -> bool:
    """Whether it is a visit's own outcome, which is kept, and has reached its client."""
    lasting = answer.verdict == "completed" or (answer.verdict == "failed" and failed == "replay")
    return lasting and answer.stored and (answer.reply is not None or promised)


def _all_of(response: Response) -> bytes:
    status, headers, body = response
    return b"%d %b %b" % (status, b" ".join([b"%b: %b" % pair for pair in headers]), body)
