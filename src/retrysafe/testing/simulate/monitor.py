"""What the store and the handlers do, checked against the ground truth of `keystate.py`.

A monitor never reads the store.
"""

from collections.abc import Sequence

from retrysafe._core.model import Final
from retrysafe.testing.simulate.keystate import Account, Execution, Outcome
from retrysafe.testing.simulate.promises import Promise, at_most, broken
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.setting import LEASE, Setting


class Monitor:
    def __init__(self, setting: Setting, accounts: dict[int, Account]) -> None:
        self._setting = setting
        self._accounts = accounts
        self._hold = setting.mode == "lease" and setting.abandoned == "hold"
        self._at_most: Promise = at_most(setting)

    # --- what the store answered

    def granted(self, visit: Visit, attempt: int, now: float) -> None:
        """The store said that the key is this visit's."""
        account = visit.account
        if account.expired(now):
            account.open(visit.claim.request_id, now)
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
        if self._setting.mode == "lease" and not execution.effect:
            broken("I11", f"{visit} did nothing and said so, and its key was kept all the same")
        self._is_what_was_answered(execution, final)
        outcome = Outcome(token, *final[:2], final.omitted, account.asked, account.window)
        account.keep(outcome, now)
        visit.kept = outcome

    def _is_what_was_answered(self, execution: Execution, final: Final) -> None:
        status, headers, body = execution.response
        if execution.broke and final.state == "completed":
            broken("I5", "an answer that broke off was kept as a success")
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
        ran = visit.execution
        # A bid that arrives when all is past its time opens a window of its own, in which nobody ran.
        if ran is not None and ran.effect and ran.window == account.window and not visit.unprotected:
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

    def swept(self, records: int, now: float) -> None:
        """A purge when nobody has come since it became late: all that is left is its own to remove."""
        expired = sum(
            account.standing != "absent" and account.expired(now) for account in self._accounts.values()
        )
        if records != expired:
            broken("I10", f"{expired} records had expired, and {records} were purged")

    def intervened(self, account: Account, now: float) -> None:
        """An operator was told that a record was abandoned, and has settled it."""
        if account.standing != "running" or not account.lapsed(now):
            broken("I1", "an operator settled a request that was not abandoned")

    def denied(self, account: Account, now: float) -> None:
        """An operator was told that there is nothing to settle."""
        if account.standing == "running" and account.lapsed(now) and not account.expired(now):
            broken("I11", "an operator may not settle a request that was abandoned")

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
        if visit.drained:
            broken("I11", f"{visit} ran on a server that was shutting down before it had the key")
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
