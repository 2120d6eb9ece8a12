"""A store that fails on demand, and performer for both drivers."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Door, Final, Reservation, Response, Scope
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.protocol import once
from retrysafe._core.steps import Call, Flow, Gone, Outcome, Responded, Result, Run, TooLarge
from retrysafe._runtime.drive_async import drive_async
from retrysafe._runtime.runtime import Runtime
from retrysafe.policy import Policy
from retrysafe.stores.memory import MemoryStore
from tests.core.values import a_claim, the_rules

T = TypeVar("T")
CREATED = Response(201, (), b"made")


class Flaky(MemoryStore):
    """Raises what it is told to before it does what it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[BaseException] = []
        self.calls: list[str] = []

    def reserve(self, claim: Claim) -> Reservation:
        return self._after_trouble("reserve", lambda: super(Flaky, self).reserve(claim))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._after_trouble("finish", lambda: super(Flaky, self).finish(claim, final))

    def _after_trouble(self, name: str, work: Callable[[], T]) -> T:
        self.calls.append(name)
        if self.trouble:
            raise self.trouble.pop(0)
        return work()


class Called:
    """A call as the runtime sees it."""

    claim: Claim | None = None
    background = 0.0
    door: Door = "operation"
    action = "POST"
    target = "/orders"
    route = ""
    source = ""

    def owner(self) -> str:
        return "the caller"

    def status(self, result: Result) -> int | None:
        return None

    def close(self) -> None:
        pass


class Performer(Called):
    """A door's part, for both drivers."""

    def __init__(self, run: Callable[[Attempt], Outcome]) -> None:
        self._run = run
        self.runs = 0

    def identify(self) -> Scope | None:
        return Scope((("user", "1"),))

    def read_body(self) -> bytes | TooLarge | Gone:
        return b"fingerprint"

    def reauthorise(self) -> bool:
        return True

    def run(self, step: Run) -> Outcome:
        self.runs += 1
        return self._run(step.attempt)


class AsyncPerformer(Called):
    """The same, awaiting."""

    def __init__(self, performer: Performer) -> None:
        self._hands = performer

    async def identify(self) -> Scope | None:
        return self._hands.identify()

    async def read_body(self) -> bytes | TooLarge | Gone:
        return self._hands.read_body()

    async def reauthorise(self) -> bool:
        return self._hands.reauthorise()

    async def run(self, step: Run) -> Outcome:
        await asyncio.sleep(0)
        return self._hands.run(step)

    def desert(self) -> None:
        pass


Drive = Callable[[Flow[Any], Runtime, Performer], Any]


def awaiting(flow: Flow[Any], runtime: Runtime, performer: Performer) -> Any:
    """The awaiting driver, called as if it were blocking."""
    return asyncio.run(drive_async(flow, runtime, AsyncPerformer(performer)))


def describe(problem: Problem) -> Response:
    return Response(CATALOGUE[problem.code].status, (), problem.code.encode())


def a_flow(claim: Claim | None = None, policy: Policy | None = None) -> Flow[Result]:
    return once(Call(claim or a_claim(), policy or Policy(), the_rules().outcome, describe))


def created(_: Attempt) -> Outcome:
    return Responded(CREATED)
