"""The promises, each checked where it could be broken, on the ground truth of `accounts.py`.

A monitor is told what the store answered, what handlers did and what clients heard.  It never asks the store.
Numbers are those of the table of invariants in the documentation (`docs/evidence.md`).
"""

from collections.abc import Sequence
from typing import Literal, NoReturn

from retrysafe.model import Final, Record, Response
from retrysafe.problems import Problem
from retrysafe.testing.simulate.accounts import Account, Execution, Outcome
from retrysafe.testing.simulate.setting import LEASE, Setting
from retrysafe.testing.simulate.visit import Visit
from retrysafe.verdicts import Answer

PROMISES = {
    "I1": "one outcome, which stays until it expires",
    "I2": "a key is given to nobody else while its lease is alive",
    "I3": "who does not hold the key changes nothing and is told so; who holds it is not refused",
    "I4": "a replay is what was answered: status, headers in order and number, body",
    "I5": "all answers that are meant to last are the same, and are kept before they are told",
    "I6": "once somebody has the answer, nobody who comes later runs or is told to wait",
    "I7": "the same key with another request neither runs nor sees nor changes anything",
    "I8": "nobody meets the key of somebody else",
    "I9": "a stored answer goes only to those who may see it now",
    "I10": "a purge removes what has expired, and nothing else",
    "I11": "when faults stop, every key is answered, claimable or known as unknown",
    "I12": "nothing runs unconfirmed, unless that was chosen and is marked",
    "I13": "under hold a handler starts at most once",
    "I14": "in transactions, effects are committed as often as outcomes are kept: once or never",
    "I15": "under retry there are no more executions than one and one for each lost lease",
    "I16": "the same thing said again with the same token is answered the same",
    "I18": "an answer that has begun to leave is never run again",
    "I22": "workers' clocks do not matter",
}
"""I22 has no check of its own: workers' clocks are wrong in every world, and nothing else may break."""

Promise = Literal[
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15", "I16", "I18",
]  # fmt: skip


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: Promise, text: str) -> None:
        super().__init__(f"{promise}, {PROMISES[promise]}: {text}")
        self.promise = promise


def broken(promise: Promise, text: str) -> NoReturn:
    raise Violation(promise, text)


class Monitor:
    def __init__(self, setting: Setting, accounts: dict[int, Account]) -> None:
        self._setting = setting
        self._accounts = accounts
        self._hold = setting.mode == "lease" and setting.abandoned == "hold"
        self._at_most: Promise = "I13" if self._hold else "I14" if setting.mode == "tx" else "I15"

    # --- what the store answered

    def granted(self, visit: Visit, attempt: int, now: float) -> None:
        """The store said that the key is this visit's."""
        account = visit.account
        if account.expired(now):
            account.open(now)
        elif account.standing == "running" and account.token == visit.claim.token:
            if attempt != account.attempt:
                broken("I16", f"{visit} bid again, and attempt {account.attempt} has become {attempt}")
            return
        else:
            self._may_be_followed(account, visit, now)
            account.allowed[account.window] += 1
        account.give(visit.claim.token, visit.asked, visit.claim.hold, now)
        visit.window = account.window
        if attempt != account.attempt:
            broken("I16", f"attempt {account.attempt} of the key was counted as {attempt}")

    def _may_be_followed(self, account: Account, visit: Visit, now: float) -> None:
        if account.asked != visit.asked:
            broken("I7", f"{visit} asks for something else, and was given the key")
        if account.standing == "final":
            outcome = account.outcome
            if outcome is None or outcome.state == "completed" or self._setting.failed != "retry":
                broken("I1", f"{visit} was given the key although its outcome was kept")
            return
        if not account.lapsed(now):
            broken("I2", f"{visit} was given the key while another's lease was alive")
        if account.checkpointed:
            broken("I18", f"{visit} was given the key of an answer that had begun to leave")
        if self._hold:
            broken("I13", f"{visit} was given the key of an abandoned request")

    def kept(self, visit: Visit, final: Final, now: float) -> None:
        """The store said that it kept this outcome."""
        account, token = visit.account, visit.claim.token
        if account.token != token or account.standing == "absent":
            broken("I3", f"an outcome of {visit} was kept, which does not hold the key")
        if account.standing == "final":
            if (known := account.outcome) is None or (known.state, known.response, known.omitted) != final:
                broken("I1", f"{visit} replaced the outcome that was kept")
            visit.kept = known
            return
        execution = visit.execution
        if execution is None:
            broken("I5", f"an outcome of {visit} was kept, and it never ran")
        self._is_what_was_answered(execution, final)
        outcome = Outcome(token, *final[:2], final.omitted, account.asked, account.window)
        account.keep(outcome, now)
        visit.kept = outcome

    def _is_what_was_answered(self, execution: Execution, final: Final) -> None:
        status, headers, body = execution.response
        if final.response.status != status or final.response.body == b"handler-failed":
            if final.state == "completed":
                broken("I4", f"{final.response!r} was kept as a success of what answered {status}")
            return  # it broke off, and the failure was described
        permitted = tuple([pair for pair in headers if pair[0] != b"set-cookie"])
        if final.response.headers != permitted:
            broken("I4", f"headers {headers} were kept as {final.response.headers}")
        if (final.state == "failed") != (status >= 500):
            broken("I1", f"an answer with the status {status} was kept as {final.state}")
        if not final.omitted and final.response.body != body:
            broken("I4", f"the body {body!r} was kept as {final.response.body!r}")

    def fenced(self, visit: Visit, final: Final | None, now: float) -> None:
        """The store refused a write of this visit's; `final` is the outcome that it was to keep."""
        account = visit.account
        if account.token != visit.claim.token or account.expired(now):
            return
        if account.standing == "running":
            broken("I3", f"{visit} holds the key, and its write was refused")
        known = account.outcome
        if final is not None and known and (known.state, known.response, known.omitted) == final:
            broken("I16", f"{visit} said the same outcome again, and was refused")

    def checkpointed(self, visit: Visit, now: float) -> None:
        account = visit.account
        if account.token != visit.claim.token or account.standing != "running":
            broken("I3", f"{visit} left its mark on a record that is not its own")
        account.checkpoint(now)

    def released(self, visit: Visit) -> None:
        """A release of this visit's has reached the store."""
        account = visit.account
        if account.token != visit.claim.token or account.standing != "running":
            return
        if visit.execution is not None and visit.execution.effect and not visit.unprotected:
            broken(self._at_most, f"{visit} may have had its effect, and its key was let go")
        account.close()

    def renewed(self, visit: Visit, *, kept: bool, now: float) -> None:
        account = visit.account
        holds = account.token == visit.claim.token and account.standing != "absent"
        if kept and not holds:
            broken("I3", f"{visit} does not hold the key, and its lease was renewed")
        if kept and account.standing == "running":
            account.until = now + LEASE
        if not kept and holds and not account.expired(now):
            broken("I3", f"{visit} holds the key, and its lease was not renewed")

    def purged(self, records: int, now: float) -> None:
        expired = sum(
            account.standing != "absent" and account.expired(now) for account in self._accounts.values()
        )
        if records > expired:
            broken("I10", f"{records} records were purged, and {expired} had expired")

    def intervened(self, account: Account, now: float) -> None:
        """An operator was told that a record was abandoned, and has settled it."""
        if account.standing != "running" or not account.lapsed(now):
            broken("I1", "an operator settled a request that was not abandoned")

    # --- what handlers did

    def begins(self, visit: Visit, *, leased: bool) -> None:
        """A handler is about to run."""
        account = visit.account
        if not leased:
            if self._setting.store_down != "run" or not visit.troubled:
                broken("I12", f"{visit} ran without having the key")
            visit.unprotected = True
            return
        if not visit.window:
            broken("I12", f"{visit} ran, and its claim was never confirmed")
        account.ran[visit.window] += 1
        if account.ran[visit.window] > account.allowed[visit.window]:
            broken(self._at_most, f"{visit} is execution {account.ran[visit.window]} of its key")
        if visit.late == account.window == visit.window and account.definitive is not None:
            broken("I6", f"{visit} ran, although the answer was known before it came")

    def committed(self, visit: Visit) -> None:
        """What an execution wrote is there for everybody."""
        account = visit.account
        if visit.kept is None:
            broken("I14", f"the effect of {visit} was committed, and its outcome was not kept with it")
        account.committed[visit.window] += 1
        if account.committed[visit.window] > 1:
            broken("I14", f"{visit} is the second to have its effect")

    # --- what clients heard

    def told(self, visit: Visit, answer: Answer, now: float, revoked: dict[int, int]) -> None:
        _TOLD.get(answer.verdict, Monitor._told_otherwise)(self, visit, answer, now, revoked)

    def _told_outcome(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        execution, kept = visit.execution, visit.kept
        if execution is None:
            broken("I5", f"{visit} was told {answer.verdict}, and it never ran")
        if answer.reply is None and not answer.stored:
            return  # its bytes had left when it lost the key, and nobody says that they are kept
        if kept is None or kept.state != answer.verdict or not answer.stored:
            broken("I5", f"{visit} was told an outcome that was not kept")
        if self._setting.mode == "tx" and not execution.effect:
            broken("I14", f"{visit} was told {answer.verdict}, and its effect was not committed")
        if isinstance(answer.reply, Response) and answer.reply.body not in (
            execution.response.body,
            b"handler-failed",
        ):
            broken("I5", f"{visit} was told {answer.reply.body!r}, and its handler said something else")
        if answer.reply is not None or visit.promised:
            self._definitive(visit.account, kept)

    def _told_replay(self, visit: Visit, answer: Answer, now: float, revoked: dict[int, int]) -> None:
        record, account = answer.reply, visit.account
        if not isinstance(record, Record):
            broken("I4", f"{visit} was told a replay of nothing")
        outcome = account.outcomes.get(record.token)
        if outcome is None:
            strangers = [other for other in self._accounts.values() if record.token in other.outcomes]
            broken("I8" if strangers else "I4", f"{visit} was told what nobody answered to this key")
        if outcome.asked != visit.asked:
            broken("I7", f"{visit} was told the answer to another request")
        if (outcome.state, outcome.response, outcome.omitted) != (
            record.state,
            record.response,
            record.omitted,
        ):
            broken("I4", f"{visit} was told {record.response}, and kept was {outcome.response}")
        if outcome.state == "failed" and self._setting.failed != "replay":
            broken("I1", f"{visit} was told a failure that is not to be replayed")
        if not self._setting.reauthorise and (outcome.window != account.window or account.expired(now)):
            broken("I1", f"{visit} was told an answer whose time was up")
        if self._setting.reauthorise and revoked.get(account.identity, visit.began) < visit.began:
            broken("I9", f"{visit} was told a stored answer, and may not see it any more")
        self._definitive(account, outcome)

    def _definitive(self, account: Account, outcome: Outcome) -> None:
        if outcome.window != account.window or account.standing == "absent":
            return
        if outcome.state == "failed" and self._setting.failed != "replay":
            return  # where failures are run again, a failure is not the last word
        if account.definitive is not None and account.definitive != outcome.response:
            broken("I5", f"clients were told {account.definitive.body!r} and {outcome.response.body!r}")
        account.definitive = outcome.response

    def _told_in_flight(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        account = visit.account
        if visit.late == account.window and account.definitive is not None and not account.expired(now):
            broken("I6", f"{visit} was told to wait, although the answer was known before it came")
        if account.standing == "running" and not account.lapsed(now):
            return
        if self._setting.mode == "tx" and visit.execution is not None:
            return  # it was overtaken, and whoever did that is gone as well
        broken("I11" if account.standing != "absent" else "I8", f"{visit} waits, and nobody is at it")

    def _told_unknown(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        account = visit.account
        if self._setting.mode == "tx":
            broken("I11", f"{visit} was told that its outcome is unknown, but a transaction has one")
        if visit.execution is not None:
            return  # it ran and was overtaken, and whoever did that has left nothing to tell
        if account.standing != "running" or not account.lapsed(now):
            broken("I11", f"{visit} was told that the outcome is unknown, and nobody was lost")
        if not (self._hold or account.checkpointed):
            broken("I11", f"{visit} was told that the outcome is unknown, and it may be tried again")

    def _told_reused(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        account = visit.account
        if account.expired(now):
            broken("I8", f"{visit} was told that its key is in use, and nobody uses it")
        if account.asked == visit.asked:
            broken("I7", f"{visit} was taken for another request")

    def _told_failed_before(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        outcome = visit.account.outcome
        if self._setting.failed != "conflict" or outcome is None or outcome.state != "failed":
            broken("I1", f"{visit} was told of a failure that there was not")

    def _told_released(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        account, execution = visit.account, visit.execution
        if execution is not None and execution.effect:
            broken(self._at_most, f"{visit} was told that nothing happened, and something may have")
        holds = account.token == visit.claim.token and account.standing == "running"
        if holds and not (visit.forgot or account.expired(now)):
            broken("I11", f"{visit} was told that its key is free, and it is not")

    def _told_trouble(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        if not visit.troubled:
            broken("I11", f"{visit} was told {answer.verdict}, and the store had answered it")
        if answer.verdict == "unstored" and answer.stored:
            broken("I5", f"{visit} was told an outcome that was not kept, and it was not marked")

    def _told_unprotected(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        if self._setting.store_down != "run" or not visit.troubled or answer.stored:
            broken("I12", f"{visit} ran unprotected, unasked or unmarked")

    def _told_draining(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        if not visit.worker.draining:
            broken("I11", f"{visit} was sent away by a server that is not shutting down")

    def _told_forbidden(self, visit: Visit, answer: Answer, now: float, revoked: dict[int, int]) -> None:
        if visit.account.identity not in revoked:
            broken("I9", f"{visit} was refused an answer that it may see")

    def _told_otherwise(self, visit: Visit, answer: Answer, now: float, revoked: object) -> None:
        reply = answer.reply.code if isinstance(answer.reply, Problem) else answer.reply
        broken("I11", f"{visit} was told {answer.verdict} ({reply}), which nothing led to")

    # --- afterwards

    def balance(self, effects: Sequence[bytes] | None) -> None:
        """When all is over: effects that were committed, and outcomes that were kept, are the same."""
        if self._setting.mode != "tx":
            return
        expected = sorted(
            execution.response.body
            for account in self._accounts.values()
            for execution in account.executions
            if execution.effect
        )
        if effects is not None and sorted(effects) != expected:
            broken("I14", f"in the database are {sorted(effects)}, and committed were {expected}")


_TOLD = {
    "completed": Monitor._told_outcome,
    "failed": Monitor._told_outcome,
    "replayed": Monitor._told_replay,
    "in-flight": Monitor._told_in_flight,
    "outcome-unknown": Monitor._told_unknown,
    "key-reused": Monitor._told_reused,
    "previously-failed": Monitor._told_failed_before,
    "released": Monitor._told_released,
    "unstored": Monitor._told_trouble,
    "store-unavailable": Monitor._told_trouble,
    "unprotected": Monitor._told_unprotected,
    "draining": Monitor._told_draining,
    "replay-forbidden": Monitor._told_forbidden,
}
