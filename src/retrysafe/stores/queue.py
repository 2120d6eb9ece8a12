"""Batches: what arrives while one is in flight forms the next.

An *operation* is a generator: it yields calls, receives the rows of each, and returns its result.  A *call*
is the name of a statement or a script, and its arguments.  An *executor* has one connection to a database and
runs a batch of calls on it in one round trip.  Between them stands a queue: `queue_threads.py` for the
threads of a process, `queue_loop.py` for the coroutines of an event loop.  What both do is here.

- **No timer.**  A lone call goes at once.  One batch is in flight at a time, and what arrives meanwhile is
  the next one.  Completions go before new claims: what has happened is stored before more is begun.
- **No confusion.**  Two calls about one record are never in the same batch, and calls are sorted by record,
  so that processes lock rows in the same order.
- **One bad call is alone.**  A call that fails for a reason that may pass, or whose batch failed as a whole,
  is run again by itself, beside the queue, within its caller's deadline.  What fails once more waits apart,
  so that the others of its batch do not wait with it.
- **Bounded.**  A caller waits no longer than the deadline.  A full queue refuses at once.  A batch that takes
  longer than a deadline has its connection closed; callers that have left do not have it closed.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import attrgetter
from time import monotonic, sleep
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.retry import Retries, Trouble

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Arguments = dict[str, object]
Row = Sequence[object]
Rows = Sequence[Row]
Call = tuple[str, Arguments]
Operation = Generator[Call, Rows, T]

Outcome = Rows | Trouble | StoreError
"""Of one call of a batch: its rows, or trouble that is its own, or an error that would come again."""

BATCH = 128
"""Calls in one batch at most.  The cost of a commit is then shared so widely that more would hardly make it
cheaper, and the first of them would only wait."""

BATCH_BYTES = 1 << 20
"""Bytes of bodies in one batch, which is held in memory and sent at once.  A larger body goes alone."""

FULL = 2_000
"""Calls that wait at most: the last one would hardly be served within its deadline."""

ALONE = 2
"""Calls that are run beside the queue at the same time, each on a connection of its own: one of those that
are run alone for the first time, and one of those that failed at it and may have to wait."""

_BATCH_PATIENCE = 0.1
"""Seconds for which a batch may wait for a row that another transaction has locked: all its callers wait.  So
do, at first, those that are run alone after each other.  Each later try waits twice as long."""

_SHARE = 0.8
"""Of the time that is left, for a call that runs alone to wait for a lock: the server must give up before its
caller does."""


class Executor(Protocol):
    """One connection, opened when it is first used, and again after it was lost.  One thread at a time."""

    def run(self, calls: "Batch", until: float, patience: float) -> Sequence[Outcome]:
        """The rows of each call, or its own trouble.

        Raises `Trouble` if the batch failed as a whole, and `StoreError` where trying again does not help.
        Ends at `until` at the latest, and waits no longer than `patience` seconds for a locked row.
        """
        ...

    def close(self) -> None: ...


class AsyncExecutor(Protocol):
    """The same for the coroutines of one event loop."""

    async def run(self, calls: "Batch", until: float, patience: float) -> Sequence[Outcome]: ...
    def close(self) -> None: ...


class Job(Generic[T_co]):
    """An operation on its way through a queue."""

    __slots__ = (
        "_error",
        "_operation",
        "_result",
        "abandoned",
        "alone",
        "begun",
        "call",
        "done",
        "id",
        "size",
        "until",
        "urgent",
    )

    def __init__(self, operation: Operation[T_co], id: bytes, until: float, size: int, urgent: bool) -> None:
        self.id = id
        self.until = until
        self.size = size
        self.urgent = urgent
        self.begun = False
        """It was part of a batch."""
        self.alone = False
        """It is to be run by itself."""
        self.abandoned = False
        """Its caller has left."""
        self.done = False
        self.call: Call | None = None
        self._operation = operation
        self._result: T_co | None = None
        self._error: StoreError | None = None
        self.receive(None)

    def receive(self, rows: Rows | None) -> None:
        """Carry the operation on to its next call, or to its end."""
        try:
            self.call = self._operation.send(rows)  # type: ignore[arg-type]  # None begins a generator
            return
        except StopIteration as end:
            self._result = end.value
        except StoreError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
            # By its name only: the message may quote what a client has sent.
            self._error = StoreUnavailable(f"the operation failed with {type(error).__name__}")
            self._error.__cause__ = error
        self.call = None
        self.done = True

    def fail(self, error: StoreError) -> None:
        if not self.done:
            self._operation.close()
            self._error = error
            self.call = None
            self.done = True

    def result(self) -> T_co:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # what the operation returned

    def timed_out(self, deadline: float) -> StoreUnavailable:
        what = "whether it was done is not known" if self.begun else "nothing was done"
        return StoreUnavailable(f"the store timed out after {deadline:g} s; {what}")


class Batch(Sequence[Call]):
    """The next calls of some jobs.

    An executor that has to wait before it can begin may postpone them: jobs whose callers leave meanwhile are
    then not done, and their callers can be sure of that.
    """

    def __init__(self, jobs: Sequence[Job[Any]], *, alone: bool = False) -> None:
        self.alone = alone
        """Whether it is a call that is run by itself, because it was in the way of others or they in its
        way."""
        self._jobs = jobs
        self._calls = [job.call for job in jobs if job.call is not None]

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | Sequence[Call]:
        return self._calls[index]

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def postpone(self) -> None:
        """Nothing has been done yet."""
        for job in self._jobs:
            job.begun = False

    def begin(self) -> Sequence[Call | None]:
        """The calls that are still wanted, each in its place."""
        wanted: list[Call | None] = []
        for job, call in zip(self._jobs, self._calls, strict=True):
            # In this order, and in the other order where a caller leaves, perhaps in another thread.
            job.begun = True
            wanted.append(None if job.abandoned else call)
        return wanted


J = TypeVar("J", bound=Job[Any])

_by_id = attrgetter("id")


class Pending(Generic[J]):
    """Jobs that wait for the next batch."""

    def __init__(self) -> None:
        self._urgent: deque[J] = deque()
        self._others: deque[J] = deque()

    def add(self, job: J) -> None:
        if len(self._urgent) + len(self._others) >= FULL:
            raise StoreUnavailable(f"{FULL} operations are waiting for the store already; nothing was done")
        (self._urgent if job.urgent else self._others).append(job)

    def put_back(self, job: J) -> None:
        """For its next call, before all that came later."""
        (self._urgent if job.urgent else self._others).appendleft(job)

    def take(self) -> list[J]:
        """The next batch, sorted by record."""
        batch: dict[bytes, J] = {}
        size = 0
        for waiting in (self._urgent, self._others):
            equal: list[J] = []
            while waiting and len(batch) < BATCH and (not batch or size + waiting[0].size <= BATCH_BYTES):
                job = waiting.popleft()
                if job.abandoned:
                    continue
                if job.id in batch:
                    equal.append(job)
                    continue
                batch[job.id] = job
                size += job.size
            waiting.extendleft(reversed(equal))
        return sorted(batch.values(), key=_by_id) if len(batch) > 1 else list(batch.values())

    def youngest(self) -> J | None:
        """The one that has most of its time left."""
        for waiting in (self._others, self._urgent):
            while waiting and waiting[-1].abandoned:
                waiting.pop()
            if waiting:
                return waiting[-1]
        return None

    def clear(self) -> list[J]:
        jobs = [*self._urgent, *self._others]
        self._urgent.clear()
        self._others.clear()
        return jobs


class Counts:
    """What a queue has done so far."""

    __slots__ = ("alone", "batches", "calls")

    def __init__(self) -> None:
        self.batches = 0
        self.calls = 0
        self.alone = 0


E = TypeVar("E", bound=Executor | AsyncExecutor)


class Executors(Generic[E]):
    """One for the batches of a queue, and as many more as calls are run alone at once."""

    def __init__(self, open: Callable[[], E]) -> None:
        self._open = open
        self._idle: list[E] = []
        self._is_shut = False

    def take(self) -> E:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def give(self, executor: E) -> None:
        self._idle.append(executor)
        if self._is_shut:
            self.shut()

    def shut(self) -> None:
        """Close those that are idle now, and the others when they are given back."""
        self._is_shut = True
        while True:
            try:
                executor = self._idle.pop()
            except IndexError:
                return
            executor.close()


class Run(NamedTuple):
    """A step of a plan: have an executor run these calls."""

    calls: Batch
    patience: float


Plan = Generator[Run | float, Sequence[Outcome], None]
"""What is to be done with a connection: runs, and pauses in seconds, which need none.  A queue performs the
steps; trouble and errors of a run are thrown into the plan."""


def run_batch(batch: Sequence[Job[Any]], counts: Counts) -> Plan:
    """Run the calls of a batch, a second time if its connection was stale."""
    counts.batches += 1
    counts.calls += len(batch)
    run = Run(Batch(batch), _BATCH_PATIENCE)
    try:
        try:
            outcomes = yield run
        except Trouble as trouble:
            if not trouble.stale:
                raise
            outcomes = yield run
    except Trouble as trouble:
        for job in batch:
            if trouble.disconnected or (len(batch) == 1 and not trouble.passing):
                job.fail(trouble.as_error())
            else:
                job.alone = True
        return
    except StoreError as error:
        for job in batch:
            # An exception of its own for each: they are raised in different places.
            told = type(error)(*error.args)
            told.__cause__ = error
            job.fail(told)
        return
    for job, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, StoreError):
            job.fail(outcome)
        elif not isinstance(outcome, Trouble):
            job.receive(outcome)
        elif outcome.passing:
            job.alone = True
        else:
            job.fail(outcome.as_error())


def run_alone(job: Job[Any], patience: float = _BATCH_PATIENCE) -> Plan:
    """Carry one operation to its end, with pauses where trouble may pass."""
    retries = Retries(job.until)
    while job.call is not None and not job.abandoned:
        left = max((job.until - monotonic()) * _SHARE, 0.001)
        try:
            [outcome] = yield Run(Batch([job], alone=True), left if retries.is_last else min(left, patience))
            if isinstance(outcome, Trouble | StoreError):
                raise outcome
            job.receive(outcome)
        except Trouble as trouble:
            try:
                yield retries.after(trouble)
            except StoreError as error:
                job.fail(error)
            patience *= 2
        except StoreError as error:
            job.fail(error)


def perform_sync(plan: Plan, executor: Executor, until: float) -> float | None:
    """Perform a plan in a thread, until it pauses or to its end; the seconds of the pause, or `None`."""
    try:
        step = next(plan)
        while isinstance(step, Run):
            try:
                outcomes = executor.run(step.calls, until, step.patience)
            except (Trouble, StoreError) as error:
                step = plan.throw(error)
            else:
                step = plan.send(outcomes)
    except StopIteration:
        return None
    return step


def perform_alone(executor: Executor, operation: Operation[T], deadline: float) -> T:
    """One operation on a connection of its own: for the lease keeper and for operators."""
    job = Job(operation, b"", monotonic() + deadline, 0, urgent=True)
    plan = run_alone(job, deadline)  # no other caller waits for this connection
    while (pause := perform_sync(plan, executor, job.until)) is not None:
        sleep(pause)
    return job.result()
