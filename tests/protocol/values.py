"""What the tests of the protocol share: a claim, a call, a record, and a way to step a flow by hand."""

from typing import Any, Generic, TypeVar

from retrysafe._core.model import Claim, Found, Record, Reserved, Response
from retrysafe._core.problems import Problem, render
from retrysafe._core.protocol import once
from retrysafe._core.steps import Call, Finish, Flow, Reserve, Responded, Result, Run, Step
from retrysafe.errors import StoreUnavailable
from retrysafe.policy import OutcomeRules, Policy
from retrysafe.stores.memory import _Row

S = TypeVar("S")
T = TypeVar("T")

NOW = 1000.0
CLAIM = Claim(
    id=b"i" * 32,
    token=b"ours",
    fingerprint=b"what was asked",
    lease=30.0,
    retention=3600.0,
    hold=7200.0,
    door="request",
    scope=(("user", "1"),),
    key="key",
    action="POST",
    target="/orders",
    request_id="request-1",
)
RULES = OutcomeRules()
CREATED = Response(201, ((b"content-type", b"text/plain"), (b"location", b"/orders/1")), b"made")
BROKE = Response(500, (), b"it broke")


def describe(problem: Problem) -> Response:
    return render(problem, "https://api.test/idempotency")


def a_call(
    policy: Policy | None = None,
    rules: OutcomeRules = RULES,
    *,
    draining: bool = False,
    reauthorises: bool = False,
) -> Call:
    return Call(CLAIM, policy or Policy(), rules, describe, lambda: draining, reauthorises=reauthorises)


def a_record(**changes: Any) -> Record:
    """A record of somebody else's attempt that is running, with these differences."""
    running = _Row(CLAIM._replace(token=b"theirs", request_id="request-0"), NOW).record()
    return running._replace(**changes)


RUNNING = a_record()
COMPLETED = a_record(state="completed", response=CREATED)
FAILED = a_record(state="failed", response=BROKE)
ABANDONED = a_record(lease_until=NOW)

DOWN = StoreUnavailable("down")
WAITING = Policy(in_flight="wait", wait_for=1.0)
RETRY = Policy(failed="retry", abandoned="retry")


def found(record: Record) -> Found:
    return Found(record, NOW)


class Stepper(Generic[T]):
    """A flow that is stepped by hand: it is expected to ask, and is given an answer or an exception."""

    def __init__(self, flow: Flow[T]) -> None:
        self.flow = flow
        self.asked: list[Step] = []
        self._ended = False
        self._result: T | None = None
        self._advance(lambda: next(self.flow))

    @property
    def step(self) -> Step:
        """What it asks for now."""
        assert not self._ended, f"the flow is over: {self._result}"
        return self.asked[-1]

    def expect(self, kind: type[S]) -> S:
        """What it asks for now, which must be of this kind."""
        step = self.step
        assert isinstance(step, kind), f"asked for {step}, not for {kind.__name__}"
        return step

    def give(self, answer: object) -> None:
        self._advance(lambda: self.flow.send(answer))

    def throw(self, error: BaseException) -> None:
        self._advance(lambda: self.flow.throw(error))

    @property
    def result(self) -> T:
        assert self._ended, f"the flow goes on and asks for {self.asked[-1]}"
        return self._result  # type: ignore[return-value]  # it has ended

    def _advance(self, on: Any) -> None:
        try:
            self.asked.append(on())
        except StopIteration as end:
            self._ended, self._result = True, end.value


def stepping(call: Call | None = None) -> Stepper[Result]:
    return Stepper(once(call or a_call()))


def running(call: Call | None = None) -> Stepper[Result]:
    """A flow whose handler is to run now."""
    flow = stepping(call)
    flow.expect(Reserve)
    flow.give(Reserved(1))
    flow.expect(Run)
    return flow


def ended(call: Call | None = None) -> Stepper[Result]:
    """A flow whose handler has answered."""
    flow = running(call)
    flow.give(Responded(CREATED))
    flow.expect(Finish)
    return flow
