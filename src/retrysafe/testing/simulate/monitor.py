"""What the store and the handlers do, checked against the ground truth of `keystate.py`.

A monitor never reads the store.
"""

from collections.abc import Sequence

from retrysafe._core.model import Final
from retrysafe.testing.simulate.keystate import Execution, KeyState, Outcome
from retrysafe.testing.simulate.promises import Promise, at_most, broken
from retrysafe.testing.simulate.request import SimulatedRequest
from retrysafe.testing.simulate.setting import LEASE, Setting

BY_HAND = b"by hand"
"""The body of the outcome that an operator enters."""


class Monitor:
    def __init__(self, setting: Setting, keys: dict[int, KeyState]) -> None:
        self._setting = setting
        self._accounts = keys
        self._hold = setting.mode == "lease" and setting.abandoned == "hold"
        self._at_most: Promise = at_most(setting)

    # --- what the store replied

    def granted(self, request: SimulatedRequest, attempt: int, now: float) -> None:
        """The store replied that the key is this request's."""
        key = request.key
        if key.expired(now):
            key.open(request.claim.request_id, now)
        elif key.standing == "running" and key.token == request.claim.token:
            if attempt != key.attempt:
                broken("I16", f"{request} bid again, and attempt {key.attempt} has become {attempt}")
            return
        else:
            self._may_be_followed(key, request, now)
            key.allowed[key.window] += 1
        key.give(request.claim.token, request.asked, request.claim.hold, now)
        request.window = key.window
        if attempt != key.attempt:
            broken("I16", f"attempt {key.attempt} of the key was counted as {attempt}")

    def _may_be_followed(self, key: KeyState, request: SimulatedRequest, now: float) -> None:
        if key.asked != request.asked:
            broken("I7", f"{request} asks for something else, and was given the key")
        if key.standing == "final":
            outcome = key.outcome
            if outcome is None or outcome.state == "completed" or self._setting.failed != "retry":
                broken("I1", f"{request} was given the key although its outcome was stored")
            return
        if not key.lapsed(now):
            broken("I2", f"{request} was given the key while another's lease was alive")
        if key.checkpointed:
            broken("I18", f"{request} was given the key of a response that had begun to leave")
        if self._hold:
            broken("I13", f"{request} was given the key of an abandoned request")

    def stored(self, request: SimulatedRequest, final: Final, now: float) -> None:
        """The store replied that it stored this outcome."""
        key, token = request.key, request.claim.token
        if key.token != token or key.standing == "absent":
            broken("I3", f"an outcome of {request} was stored, which does not hold the key")
        if key.standing == "final":
            if (known := key.outcome) is None or (known.state, known.response, known.omitted) != final[:3]:
                broken("I1", f"{request} replaced the outcome that was stored")
            request.stored = known
            return
        execution = request.execution
        if execution is None:
            broken("I5", f"an outcome of {request} was stored, and it never ran")
        if self._setting.mode == "lease" and not execution.effect:
            broken("I11", f"{request} reported that it did nothing, and its outcome was stored all the same")
        self._is_the_response(execution, final)
        outcome = Outcome(token, *final[:2], final.omitted, key.asked, key.window)
        key.store(outcome, now)
        request.stored = outcome

    def _is_the_response(self, execution: Execution, final: Final) -> None:
        status, headers, body = execution.response
        if execution.broke and final.state == "completed":
            broken("I5", "a response that broke off was stored as a success")
        if final.response.status != status or final.response.body == b"handler-failed":
            if final.state == "completed":
                broken(
                    "I4", f"{final.response!r} was stored as the success of a handler that responded {status}"
                )
            return  # it broke off, and the failure was described
        permitted = tuple([pair for pair in headers if pair[0] != b"set-cookie"])
        if final.response.headers != permitted:
            broken("I4", f"headers {headers} were stored as {final.response.headers}")
        if (final.state == "failed") != (status >= 500):
            broken("I1", f"a response with the status {status} was stored as {final.state}")
        if not final.omitted and final.response.body != body:
            broken("I4", f"the body {body!r} was stored as {final.response.body!r}")

    def fenced(self, request: SimulatedRequest, final: Final | None, now: float) -> None:
        """The store refused a write of this request's; `final` is the outcome that it was to store."""
        key = request.key
        if key.token != request.claim.token or key.expired(now):
            return
        if key.standing == "running":
            broken("I3", f"{request} holds the key, and its write was refused")
        known = key.outcome
        if final is not None and known and (known.state, known.response, known.omitted) == final[:3]:
            broken("I16", f"{request} sent the same outcome again, and was refused")

    def checkpointed(self, request: SimulatedRequest, now: float) -> None:
        key = request.key
        if key.token != request.claim.token or key.standing != "running":
            broken("I3", f"{request} checkpointed a record that is not its own")
        key.checkpoint(now)

    def released(self, request: SimulatedRequest) -> None:
        """The store has performed a release of this request's."""
        key = request.key
        if key.token != request.claim.token or key.standing != "running":
            return
        ran = request.execution
        # A bid that arrives after the record expired opens a window of its own, in which no handler ran.
        if ran is not None and ran.effect and ran.window == key.window and not request.unprotected:
            broken(self._at_most, f"{request} may have had its effect, and its key was released")
        key.close()

    def renewed(self, request: SimulatedRequest, *, renewed: bool, now: float) -> None:
        key = request.key
        holds = key.token == request.claim.token and key.standing != "absent"
        if renewed and not holds:
            broken("I3", f"{request} does not hold the key, and its lease was renewed")
        if renewed and key.standing == "running":
            key.until = now + LEASE
        if not renewed and holds and not key.expired(now):
            broken("I3", f"{request} holds the key, and its lease was not renewed")

    def purged(self, records: int, now: float) -> None:
        expired = sum(key.standing != "absent" and key.expired(now) for key in self._accounts.values())
        if records > expired:
            broken("I10", f"{records} records were purged, and {expired} had expired")

    def purged_all(self, records: int, now: float) -> None:
        """A purge after all records expired and before any new request: it must remove all of them."""
        expired = sum(key.standing != "absent" and key.expired(now) for key in self._accounts.values())
        if records != expired:
            broken("I10", f"{expired} records had expired, and {records} were purged")

    def intervened(self, key: KeyState, now: float) -> None:
        """An operator has settled a record as abandoned."""
        if key.standing != "running" or not key.lapsed(now):
            broken("I1", "an operator settled a request that was not abandoned")

    def denied(self, key: KeyState, now: float) -> None:
        """The store refused an operator: there is nothing to settle."""
        if key.standing == "running" and key.lapsed(now) and not key.expired(now):
            broken("I11", "an operator cannot settle a request that was abandoned")

    # --- what handlers did

    def begins(self, request: SimulatedRequest, *, leased: bool) -> None:
        """A handler is about to run."""
        key = request.key
        if not leased:
            if self._setting.store_down != "run" or not request.store_failed:
                broken("I12", f"{request} ran without having the key")
            request.unprotected = True
            return
        if not request.window:
            broken("I12", f"{request} ran, and its claim was never confirmed")
        if request.drained:
            broken("I11", f"{request} ran on a server that was shutting down before it had the key")
        key.ran[request.window] += 1
        if key.ran[request.window] > key.allowed[request.window]:
            broken(self._at_most, f"{request} is execution {key.ran[request.window]} of its key")
        if request.settled_window == key.window == request.window and key.definitive is not None:
            broken("I6", f"{request} ran, although the response was known before it arrived")

    def committed(self, request: SimulatedRequest) -> None:
        """What an execution wrote is visible to others."""
        key = request.key
        if request.stored is None:
            broken("I14", f"the effect of {request} was committed, and its outcome was not stored with it")
        key.committed[request.window] += 1
        if key.committed[request.window] > 1:
            broken("I14", f"{request} is the second to have its effect")

    # --- operations that are a part of another call

    def begins_within(self, part: SimulatedRequest, now: float) -> None:
        """The function of such an operation is about to run: it holds no key, and may be undone."""
        key = part.key
        if part.settled_window == key.window and key.definitive is not None and not key.expired(now):
            broken("I6", f"{part} ran, although its outcome was known before it was called")

    def committed_within(self, part: SimulatedRequest, final: Final, attempt: int, now: float) -> None:
        """Its record was committed with the call around it: it had the key for that moment."""
        key = part.key
        before = key.attempt
        if key.expired(now):
            before = 0
        else:
            self._may_be_followed(key, part, now)
            if attempt != before + 1:
                broken("I16", f"attempt {before + 1} of the key was counted as {attempt}")
        # What it replaces was rolled back, so the record is a new one; only attempts go on being counted.
        key.open(part.claim.request_id, now)
        key.attempt = before
        key.give(part.claim.token, part.asked, part.claim.hold, now)
        part.window = key.window
        key.ran[key.window] += 1
        self.stored(part, final, now)

    # --- afterwards

    def balance(self, effects: Sequence[bytes] | None) -> None:
        """At the end: effects that were committed, and outcomes that were stored, are the same."""
        if self._setting.mode != "tx":
            return
        expected = sorted(
            execution.response.body
            for key in self._accounts.values()
            for execution in key.executions
            if execution.effect
        )
        if effects is not None and sorted(effects) != expected:
            broken("I14", f"the database has the effects {sorted(effects)}, and {expected} were committed")
        for key in self._accounts.values():
            had = {execution.token for execution in key.executions if execution.effect}
            for token, outcome in key.outcomes.items():
                if token not in had and outcome.response.body != BY_HAND:
                    broken("I14", f"{outcome} is stored, and its effect was not committed")
