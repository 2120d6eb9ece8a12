"""The queue of a simulated worker: the real one for coroutines, on an event loop that the world turns.

`stores/queue_loop.py` and the plans of `stores/queue.py` run here as they are.  What is simulated is around
them: an event loop without time, and connections on which a batch stays in flight until an action says what
becomes of it.  The callers are not tasks: each is a coroutine that waits for its result, and its request goes
on when it has one.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from retrysafe._core.model import Reserved
from retrysafe._core.steps import Checkpoint, Finish, Look, Release, Reserve, Step, TakeOver
from retrysafe.errors import StoreError
from retrysafe.stores.queue import Call, Operation, Outcome
from retrysafe.stores.queue_loop import LoopQueue
from retrysafe.stores.retry import Trouble
from retrysafe.testing.simulate.request import Queued

QUEUED = frozenset({Reserve, TakeOver, Look, Checkpoint, Finish, Release})
"""Steps that go through the queue.  A commit is the application's own transaction."""

_URGENT = frozenset({Checkpoint, Finish, Release})
"""As `stores/sql/store.py` has it."""

_NEVER = math.inf
"""The deadline: time passes in a world only when an action says so."""

Apply = Callable[[Queued, Step], object]
"""Has the store perform one call, and returns its reply."""


class Lost(Trouble):
    """The connection was lost."""

    disconnected = True

    def __init__(self, *, stale: bool) -> None:
        super().__init__("the connection was lost")
        self.stale = stale


class Refused(Trouble):
    """The server refused, and nothing was done."""

    def __init__(self, *, passing: bool) -> None:
        super().__init__("refused")
        self.passing = passing


_swap_task: Callable[[asyncio.AbstractEventLoop, object], object] = getattr(
    asyncio.tasks, "_swap_current_task", lambda _loop, _task: None
)
"""Since Python 3.14 a thread has one current task, whatever the loop; before 3.12 this is not needed."""


class _Timer:
    def cancel(self) -> None:
        """Whatever it was for is over when its turn comes."""


class _Loop:
    """What tasks and futures need of an event loop.  A pause is over at once; a deadline never comes."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def call_soon(self, callback: Callable[..., object], *arguments: object, context: object = None) -> None:  # noqa: ARG002
        self._ready.append((callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> _Timer:
        if delay < _NEVER:
            self._ready.append((callback, arguments))
        return _Timer()

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self.as_loop())

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: object) -> None:
        """Of a task that never ended: its worker has crashed."""

    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    def run(self) -> None:
        """Until everything waits."""
        ready = self._ready
        if not ready:
            return
        # A simulation may itself be part of a task.
        outer = asyncio._get_running_loop()
        task = None if outer is None else _swap_task(outer, None)
        asyncio._set_running_loop(self.as_loop())
        try:
            while ready:
                callback, arguments = ready.popleft()
                callback(*arguments)
        finally:
            asyncio._set_running_loop(outer)
            if outer is not None:
                _swap_task(outer, task)


class Exchange(NamedTuple):
    """Calls that were sent together, and the reply that their connection waits for."""

    calls: Sequence[Call]
    reply: "asyncio.Future[Sequence[Outcome]]"

    def steps(self) -> list[tuple[Queued, Step]]:
        return [parts(call) for call in self.calls]

    def queued(self) -> list[Queued]:
        return [queued for queued, _ in self.steps()]

    def __str__(self) -> str:
        return ", ".join(f"{type(step).__name__} of {queued.request}" for queued, step in self.steps())


class _Connection:
    """What is sent on it is in flight until an action replies."""

    def __init__(self, loop: _Loop, in_flight: list[Exchange]) -> None:
        self._loop = loop
        self._in_flight = in_flight

    async def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:  # noqa: ARG002
        exchange = Exchange(calls, self._loop.create_future())
        self._in_flight.append(exchange)
        return await exchange.reply

    def close(self) -> None:
        """Nothing was opened."""


class Ended(NamedTuple):
    """An operation that came to its end, and what its caller receives."""

    queued: Queued
    reply: object
    error: StoreError | None


_Caller = tuple[Queued, Coroutine[Any, Any, object], "asyncio.Future[None]"]
"""An operation, what performs it, and what that waits for."""


class _Queue(LoopQueue):
    def time_out(self, last: "asyncio.Future[None]") -> None:
        """Let the deadline come of all that were asked for before this one, and of this one."""
        for job in self._waiting:
            job.until = -_NEVER
            if job.future is last:
                break
        self._expire()


class WorkerQueue:
    """The queue of one worker, what it has in flight, and who waits for it."""

    def __init__(self) -> None:
        self._loop = _Loop()
        self.in_flight: list[Exchange] = []
        """Sent, and without a reply: a batch, and calls that are run alone."""
        self.history: list[object] = []
        """What was done to it since it was last idle: its state, for a search to compare."""
        self._waiting: list[_Caller] = []
        self._queue = _Queue(lambda: _Connection(self._loop, self.in_flight), _NEVER, self._loop.as_loop())

    def ask(self, queued: Queued) -> None:
        """Have a caller ask for an operation, and wait."""
        step = queued.step
        self.history.append((queued.request.number, type(step)))
        size = len(step.final.response.body) if isinstance(step, Finish) else 0
        work = self._queue.perform(
            _operation(queued), queued.request.claim.id, size=size, urgent=type(step) in _URGENT
        )
        self._waiting.append((queued, work, work.send(None)))

    def settle(self) -> list[Ended]:
        """Let the queue go on until it waits, and return what has ended."""
        self._loop.run()
        ended: list[Ended] = []
        left: list[_Caller] = []
        for entry in self._waiting:
            queued, work, future = entry
            if not future.done():
                left.append(entry)
                continue
            try:
                work.send(None)
            except StopIteration as end:
                ended.append(Ended(queued, end.value, None))
            except StoreError as error:
                ended.append(Ended(queued, None, error))
        self._waiting = left
        if not left and not self.in_flight:
            self.history.clear()
        return ended

    def time_out(self, queued: Queued) -> None:
        """The deadline of a caller has come, and so has that of all who asked before it."""
        self.history.append((queued.request.number, "timed out"))
        future = next(future for known, _, future in self._waiting if known is queued)
        self._queue.time_out(future)

    def cancel(self, queued: Queued) -> None:
        """Its caller is cancelled, and stops waiting."""
        self.history.append((queued.request.number, "cancelled"))
        entry = next(entry for entry in self._waiting if entry[0] is queued)
        self._waiting.remove(entry)
        _, work, future = entry
        future.cancel()  # as a task does with what it waits for
        with suppress(asyncio.CancelledError):
            work.send(None)

    def is_sent(self, request: object) -> bool:
        """Whether a call of this request is in flight."""
        return any(queued.request is request for one in self.in_flight for queued in one.queued())

    def take(self, number: int) -> Exchange:
        """One of those in flight, about which something is to be decided."""
        return self.in_flight.pop(number % len(self.in_flight))


def parts(call: Call) -> tuple[Queued, Step]:
    """Who asked for it, and what it does."""
    _, arguments = call
    return cast("Queued", arguments["queued"]), cast("Step", arguments["step"])


def perform(calls: Sequence[Call], apply: Apply) -> list[Outcome]:
    """Have the store perform a batch: one call after the other, and nothing else in between."""
    outcomes: list[Outcome] = []
    for call in calls:
        try:
            outcomes.append([(apply(*parts(call)),)])
        except StoreError as error:
            outcomes.append(error)
    return outcomes


def _operation(queued: Queued) -> Operation[object]:
    """A step as one call or, as in `stores/sql/operations.py`, two: after a failure it looks again."""
    step = queued.step
    [[reply]] = yield type(step).__name__, {"queued": queued, "step": step}
    if isinstance(step, TakeOver) and not isinstance(reply, Reserved):
        [[reply]] = yield "Reserve", {"queued": queued, "step": Reserve(step.claim)}
    elif isinstance(step, Finish) and reply is False:
        [[reply]] = yield "Finish", {"queued": queued, "step": step}
    return reply
