"""What clients hear, and what must be true of it: the promises' other half."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from retrysafe._core.model import Record, Response
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.steps import Result
from retrysafe.testing.simulate.keystate import Account, Outcome
from retrysafe.testing.simulate.promises import at_most, broken
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.setting import LEASE, Setting
from retrysafe.testing.simulate.stage import describe

_FAILED = describe(Problem("handler-failed", ""))
_NOT_DONE = describe(Problem("not-done", ""))


class Told(NamedTuple):
    """A client hears an answer."""

    visit: Visit
    answer: Result
    now: float
    setting: Setting
    accounts: Mapping[int, Account]
    revoked: Mapping[int, int]
    """Identities that may no longer see stored answers, and since when."""


def check(told: Told) -> None:
    verdict, reply = told.answer.verdict, told.answer.reply
    if told.visit.flows and reply is not None:
        broken("I5", f"bytes of {told.visit} had left, and then it was told {verdict}")
    if told.visit.flows:
        _received(told)
    if verdict in CATALOGUE and (not isinstance(reply, Problem) or reply.code != verdict):
        broken("I11", f"{told.visit} was told {reply}, which does not say {verdict}")
    _HEARD.get(verdict, _otherwise)(told)


def _received(told: Told) -> None:
    """Judge a response that flowed by its bytes: whether the client saw its head marked, and its end.

    A client that saw the end of an unmarked response takes the effect for settled.  So it must be stored:
    otherwise its retry is refused, or runs again.
    """
    visit, answer = told.visit, told.answer
    saw_the_end = answer.error is None and not answer.cut_off
    execution = visit.execution
    if execution is not None and execution.broke and saw_the_end:
        broken("I5", f"{visit} received the end of a response that its handler broke off")
    if visit.promised and saw_the_end and (visit.kept is None or visit.kept.state != "completed"):
        broken("I5", f"{visit} received its whole response as one that is stored, and it is not")


def _from_its_handler(told: Told) -> Response | None:
    """What a visit's own execution has to say.  `None`: its bytes have left already, or it never ran."""
    visit, handler = told.visit, told.setting.handler
    execution = visit.execution
    if execution is None or visit.flows:
        return None
    if execution.number == 1 and handler in ("declines", "derives", "raises"):
        # A transaction is rolled back, so `NotDone` is believed whatever was passed on before.
        undone = told.setting.mode == "tx" and not visit.unprotected
        believed = handler == "declines" or (handler == "derives" and undone)
        return _NOT_DONE if believed else _FAILED
    return execution.response


def _is_its_own(told: Told) -> None:
    """All of it: status, headers and body."""
    own = _from_its_handler(told)
    if told.answer.reply != own:
        broken("I5", f"{told.visit} was told {told.answer.reply}, and its handler said {own}")


def _outcome(told: Told) -> None:
    visit, answer = told.visit, told.answer
    execution, kept = visit.execution, visit.kept
    if execution is None:
        broken("I5", f"{visit} was told {answer.verdict}, and it never ran")
    if answer.reply is None and not answer.stored:
        return  # its bytes had left when it lost the key: what the client received is judged by itself
    if kept is None or kept.state != answer.verdict or not answer.stored:
        broken("I5", f"{visit} was told an outcome that was not kept")
    if told.setting.mode == "tx" and not execution.effect:
        broken("I14", f"{visit} was told {answer.verdict}, and its effect was not committed")
    _is_its_own(told)
    if answer.reply is not None or visit.promised:
        _definitive(told, kept)


def _replay(told: Told) -> None:
    visit, answer = told.visit, told.answer
    record, account = answer.reply, visit.account
    if not isinstance(record, Record):
        broken("I4", f"{visit} was told a replay of nothing")
    outcome = account.outcomes.get(record.token)
    if outcome is None:
        strangers = [other for other in told.accounts.values() if record.token in other.outcomes]
        broken("I8" if strangers else "I4", f"{visit} was told what nobody answered to this key")
    if outcome.asked != visit.asked:
        broken("I7", f"{visit} was told the answer to another request")
    if (outcome.state, outcome.response, outcome.omitted) != (
        record.state,
        record.response,
        record.omitted,
    ):
        broken("I4", f"{visit} was told {record.response}, and kept was {outcome.response}")
    if outcome.state == "failed" and told.setting.failed != "replay":
        broken("I1", f"{visit} was told a failure that is not to be replayed")
    if not told.setting.reauthorise and (outcome.window != account.window or account.expired(told.now)):
        broken("I1", f"{visit} was told an answer whose time was up")
    if outcome.window == account.window and record.request_id != account.original:
        broken("I4", f"{visit} was told that {record.request_id} was answered, and not {account.original}")
    if told.setting.reauthorise and told.revoked.get(account.identity, visit.began) < visit.began:
        broken("I9", f"{visit} was told a stored answer, and may not see it any more")
    _definitive(told, outcome)


def _definitive(told: Told, outcome: Outcome) -> None:
    account = told.visit.account
    if outcome.window != account.window or account.standing == "absent":
        return
    if outcome.state == "failed" and told.setting.failed != "replay":
        return  # where failures are run again, a failure is not the last word
    if account.definitive is not None and account.definitive != outcome.response:
        broken("I5", f"clients were told {account.definitive.body!r} and {outcome.response.body!r}")
    account.definitive = outcome.response


def _meets_its_like(told: Told, what: str) -> None:
    """Whoever has the key asks for the same: anybody else is told that, and nothing about the key."""
    visit = told.visit
    account = visit.account
    if account.asked != visit.asked and not account.expired(told.now):
        broken("I7", f"{visit} was told {what}, and it asks for something else")


def _in_flight(told: Told) -> None:
    visit = told.visit
    account = visit.account
    _meets_its_like(told, "to wait")
    if visit.late == account.window and account.definitive is not None and not account.expired(told.now):
        broken("I6", f"{visit} was told to wait, although the answer was known before it came")
    if isinstance(told.answer.reply, Problem) and not 0 < told.answer.reply.retry_after <= LEASE:
        broken("I11", f"{visit} was told to come back in {told.answer.reply.retry_after} s")
    if account.standing == "running" and not account.lapsed(told.now):
        if account.token == visit.claim.token:
            broken("I11", f"{visit} was told to wait for itself")
        return
    if told.setting.mode == "tx" and visit.execution is not None:
        return  # it was overtaken, and whoever did that is gone as well
    broken("I11" if account.standing != "absent" else "I8", f"{visit} waits, and nobody is at it")


def _unknown(told: Told) -> None:
    visit = told.visit
    account = visit.account
    if told.setting.mode == "tx":
        broken("I11", f"{visit} was told that its outcome is unknown, but a transaction has one")
    _meets_its_like(told, "that the outcome is unknown")
    if visit.execution is not None:
        holds = account.token == visit.claim.token and account.window == visit.execution.window
        if holds and not account.expired(told.now):
            broken("I3", f"{visit} was told that its outcome is unknown, and it holds the key")
        return  # it ran and was overtaken, and whoever did that has left nothing to tell
    if account.expired(told.now) or account.standing != "running" or not account.lapsed(told.now):
        broken("I11", f"{visit} was told that the outcome is unknown, and nobody was lost")
    if not (told.setting.abandoned == "hold" or account.checkpointed):
        broken("I11", f"{visit} was told that the outcome is unknown, and it may be tried again")


def _reused(told: Told) -> None:
    visit = told.visit
    account = visit.account
    if account.expired(told.now):
        broken("I8", f"{visit} was told that its key is in use, and nobody uses it")
    if account.asked == visit.asked:
        broken("I7", f"{visit} was taken for another request")


def _failed_before(told: Told) -> None:
    visit = told.visit
    account = visit.account
    outcome = None if account.expired(told.now) else account.outcome
    if told.setting.failed != "conflict" or outcome is None or outcome.state != "failed":
        broken("I1", f"{visit} was told of a failure that there was not")
    _meets_its_like(told, "that it had failed")
    reply = told.answer.reply
    previous = reply.previous if isinstance(reply, Problem) else None
    if previous is None or previous.status != outcome.response.status:
        broken("I4", f"{visit} was not told how it had failed")


def _released(told: Told) -> None:
    visit = told.visit
    account, execution = visit.account, visit.execution
    if execution is not None and execution.effect:
        broken(at_most(told.setting), f"{visit} was told that nothing happened, and something may have")
    own = _from_its_handler(told)
    undone = (_FAILED, _NOT_DONE) if own is None or own.status < 400 else (own,)
    if execution is None or told.answer.reply not in undone:
        broken("I5", f"{visit} was told {told.answer.reply}, and not that nothing was done")
    holds = account.token == visit.claim.token and account.standing == "running"
    if holds and not (visit.forgot or account.expired(told.now)):
        broken("I11", f"{visit} was told that its key is free, and it is not")


def _trouble(told: Told) -> None:
    visit, answer = told.visit, told.answer
    if not visit.troubled:
        broken("I11", f"{visit} was told {answer.verdict}, and the store had answered it")
    if answer.verdict != "unstored":
        return
    if not visit.refused:
        broken("I5", f"{visit} was told an outcome that was not kept, and its lease was not over")
    if answer.stored:
        broken("I5", f"{visit} was told an outcome that was not kept, and it was not marked")
    _is_its_own(told)


def _unprotected(told: Told) -> None:
    visit, answer = told.visit, told.answer
    if told.setting.store_down != "run" or not visit.troubled or answer.stored:
        broken("I12", f"{visit} ran unprotected, unasked or unmarked")
    _is_its_own(told)


def _draining(told: Told) -> None:
    visit = told.visit
    if not visit.worker.draining:
        broken("I11", f"{visit} was sent away by a server that is not shutting down")
    account = visit.account
    if visit.late == account.window and account.definitive is not None and not account.expired(told.now):
        broken("I6", f"{visit} was sent away, although the answer was known before it came")
    if account.token == visit.claim.token and account.standing == "running" and not visit.forgot:
        broken("I11", f"{visit} was sent away, and keeps the key")


def _forbidden(told: Told) -> None:
    visit = told.visit
    if visit.account.identity not in told.revoked:
        broken("I9", f"{visit} was refused an answer that it may see")
    if visit.asked not in [outcome.asked for outcome in visit.account.outcomes.values()]:
        broken("I7", f"{visit} was refused the answer to another request")


def _otherwise(told: Told) -> None:
    visit, answer = told.visit, told.answer
    reply = answer.reply.code if isinstance(answer.reply, Problem) else answer.reply
    broken("I11", f"{visit} was told {answer.verdict} ({reply}), which nothing led to")


_HEARD: dict[str, Callable[[Told], None]] = {
    "completed": _outcome,
    "failed": _outcome,
    "replayed": _replay,
    "in-flight": _in_flight,
    "outcome-unknown": _unknown,
    "key-reused": _reused,
    "previously-failed": _failed_before,
    "released": _released,
    "unstored": _trouble,
    "store-unavailable": _trouble,
    "unprotected": _unprotected,
    "draining": _draining,
    "replay-forbidden": _forbidden,
}
