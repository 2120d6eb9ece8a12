"""The queues, with executors that do as they are told: what is batched, in which order, and who gets what."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pytest

from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores import queue
from retrysafe.stores.queue import Call, Operation, Outcome
from retrysafe.stores.queue_loop import LoopQueue
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.retry import Trouble

PATIENCE = 30.0
"""Seconds for what should take none, on a machine that is busy."""


class Passing(Trouble):
    passing = True


class Lost(Trouble):
    disconnected = True

    def __init__(self, *, stale: bool) -> None:
        super().__init__("the connection was lost")
        self.stale = stale


def ask(name: str, times: int = 1) -> Operation[list[object]]:
    """So many calls, and the rows of all of them."""
    rows: list[object] = []
    for _ in range(times):
        rows += yield name, {}
    return rows


Respond = Callable[[Sequence[Call]], Sequence[Outcome]]


def echo(calls: Sequence[Call]) -> list[Outcome]:
    return [[(name,)] for name, _ in calls]


class Server:
    """What all executors of one queue are connected to."""

    def __init__(self, respond: Respond = echo) -> None:
        self.respond = respond
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.opened = 0
        self.closed = 0
        self.untils: list[float] = []

    def note(self, calls: Sequence[Call], until: float) -> None:
        self.batches.append([name for name, _ in calls])
        self.untils.append(until)
        self.entered.release()


class BlockingExecutor:
    def __init__(self, server: Server) -> None:
        self._server = server
        server.opened += 1

    def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        self._server.note(calls, until)
        assert self._server.gate.wait(PATIENCE)
        return self._server.respond(calls)

    def close(self) -> None:
        self._server.closed += 1


class AwaitingExecutor:
    def __init__(self, server: Server) -> None:
        self._server = server
        server.opened += 1

    async def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        self._server.note(calls, until)
        await asyncio.to_thread(self._server.gate.wait, PATIENCE)
        return self._server.respond(calls)

    def close(self) -> None:
        self._server.closed += 1


class Callers(Protocol):
    """Threads or coroutines that ask a queue, all at once or one by one."""

    counts: queue.Counts

    def start(self, operation: Operation[Any], id: bytes, *, size: int = 0, urgent: bool = False) -> None:
        """Have one more ask, and go on when it waits."""
        ...

    def results(self) -> list[object]:
        """What all of them got, in the order of their start: a result, or an exception."""
        ...

    def close(self) -> None: ...


class Threads:
    def __init__(self, server: Server, deadline: float) -> None:
        self._queue = ThreadQueue(lambda: BlockingExecutor(server), deadline)
        self.counts = self._queue.counts
        self._pool = ThreadPoolExecutor(300)
        self._futures: list[Any] = []

    def start(self, operation: Operation[Any], id: bytes, *, size: int = 0, urgent: bool = False) -> None:
        before = self._known()
        self._futures.append(self._pool.submit(self._queue.perform, operation, id, size=size, urgent=urgent))
        until = time.monotonic() + PATIENCE
        while self._known() == before and not self._futures[-1].done():
            assert time.monotonic() < until
            time.sleep(0.0001)

    def _known(self) -> tuple[int, int]:
        pending = self._queue._pending
        return len(pending._urgent) + len(pending._others), self.counts.calls

    def results(self) -> list[object]:
        return [future.exception(PATIENCE) or future.result() for future in self._futures]

    def close(self) -> None:
        self._queue.close()
        self._pool.shutdown()


class Coroutines:
    def __init__(self, server: Server, deadline: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._queue = self._run(self._open(server, deadline))
        self.counts = self._queue.counts
        self._tasks: list[asyncio.Task[Any]] = []

    async def _open(self, server: Server, deadline: float) -> LoopQueue:
        return LoopQueue(lambda: AwaitingExecutor(server), deadline, asyncio.get_running_loop())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def start(self, operation: Operation[Any], id: bytes, *, size: int = 0, urgent: bool = False) -> None:
        async def begin() -> None:
            task = self._loop.create_task(self._queue.perform(operation, id, size=size, urgent=urgent))
            self._tasks.append(task)
            for _ in range(3):
                await asyncio.sleep(0)

        self._run(begin())

    def results(self) -> list[object]:
        async def gather() -> list[object]:
            return list(await asyncio.gather(*self._tasks, return_exceptions=True))

        results: list[object] = self._run(gather())
        return results

    def close(self) -> None:
        self._queue.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Make = Callable[..., Callers]


@pytest.fixture(params=[Threads, Coroutines])
def make(request: pytest.FixtureRequest) -> Generator[Make]:
    made: list[Callers] = []

    def make(server: Server, deadline: float = PATIENCE) -> Callers:
        made.append(request.param(server, deadline))
        return made[-1]

    yield make
    for callers in made:
        callers.close()


def test_a_lone_call_goes_at_once_and_alone(make: Make) -> None:
    server = Server()
    callers = make(server)
    for number in range(3):
        callers.start(ask(f"call {number}"), bytes([number]))
        callers.results()
    assert server.batches == [["call 0"], ["call 1"], ["call 2"]]
    assert server.opened == 1


def held(server: Server, callers: Callers) -> None:
    """A first call that is in flight until the gate is opened."""
    server.gate.clear()
    callers.start(ask("first"), b"\0")
    assert server.entered.acquire(timeout=PATIENCE)


def test_what_arrives_meanwhile_is_the_next_batch_sorted_by_record(make: Make) -> None:
    server = Server()
    callers = make(server)
    held(server, callers)
    for name, id in [("c", b"3"), ("a", b"1"), ("b", b"2")]:
        callers.start(ask(name), id)
    server.gate.set()
    assert callers.results() == [[("first",)], [("c",)], [("a",)], [("b",)]]
    assert server.batches == [["first"], ["a", "b", "c"]]
    assert (callers.counts.batches, callers.counts.calls) == (2, 4)


def test_completions_go_before_claims(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "BATCH", 2)
    server = Server()
    callers = make(server)
    held(server, callers)
    for name, id, urgent in [
        ("claim 1", b"1", False),
        ("claim 2", b"2", False),
        ("done 3", b"3", True),
        ("done 4", b"4", True),
    ]:
        callers.start(ask(name), id, urgent=urgent)
    server.gate.set()
    callers.results()
    assert server.batches == [["first"], ["done 3", "done 4"], ["claim 1", "claim 2"]]


def test_two_calls_about_one_record_are_never_in_one_batch(make: Make) -> None:
    server = Server()
    callers = make(server)
    held(server, callers)
    for name, id in [("x", b"1"), ("again", b"1"), ("y", b"2"), ("and again", b"1")]:
        callers.start(ask(name), id)
    server.gate.set()
    assert callers.results()[1:] == [[("x",)], [("again",)], [("y",)], [("and again",)]]
    assert server.batches == [["first"], ["x", "y"], ["again"], ["and again"]]


def test_an_operation_of_several_calls_takes_several_batches(make: Make) -> None:
    server = Server()
    callers = make(server)
    callers.start(ask("call", times=3), b"1")
    assert callers.results() == [[("call",)] * 3]
    assert server.batches == [["call"]] * 3


def test_bodies_bound_a_batch(make: Make) -> None:
    server = Server()
    callers = make(server)
    held(server, callers)
    for number in range(1, 4):
        callers.start(ask(str(number)), bytes([number]), size=queue.BATCH_BYTES // 2)
    callers.start(ask("huge"), b"\xff", size=5 * queue.BATCH_BYTES)
    server.gate.set()
    callers.results()
    assert server.batches == [["first"], ["1", "2"], ["3"], ["huge"]]


def test_a_full_queue_refuses_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "FULL", 2)
    server = Server()
    callers = make(server)
    held(server, callers)
    for number in range(1, 4):
        callers.start(ask(str(number)), bytes([number]))
    server.gate.set()
    *served, refused = callers.results()
    assert served == [[("first",)], [("1",)], [("2",)]]
    assert isinstance(refused, StoreUnavailable)
    assert "nothing was done" in str(refused)


def test_trouble_of_one_call_is_its_own(make: Make) -> None:
    seen: set[str] = set()

    def respond(calls: Sequence[Call]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for name, _ in calls:
            first = name not in seen
            seen.add(name)
            if name == "locked" and first:
                outcomes.append(Passing("locked"))
            elif name == "oversized":
                outcomes.append(Trouble("too large"))
            else:
                outcomes.append([(name,)])
        return outcomes

    server = Server(respond)
    callers = make(server)
    held(server, callers)
    for name, id in [("locked", b"1"), ("oversized", b"2"), ("good", b"3")]:
        callers.start(ask(name), id)
    server.gate.set()
    _, locked, oversized, good = callers.results()
    assert (locked, good) == ([("locked",)], [("good",)])
    assert isinstance(oversized, StoreUnavailable)
    assert "too large" in str(oversized)
    assert callers.counts.alone == 1


def test_a_batch_that_fails_as_a_whole_is_taken_apart(make: Make) -> None:
    def respond(calls: Sequence[Call]) -> list[Outcome]:
        if "bad" in (name for name, _ in calls):
            raise Trouble("a value is out of range")
        return echo(calls)

    server = Server(respond)
    callers = make(server)
    held(server, callers)
    for name, id in [("a", b"1"), ("bad", b"2"), ("c", b"3")]:
        callers.start(ask(name), id)
    server.gate.set()
    _, a, bad, c = callers.results()
    assert (a, c) == ([("a",)], [("c",)])
    assert isinstance(bad, StoreUnavailable)
    assert sorted(server.batches[2:]) == [["a"], ["bad"], ["c"]]


def test_a_stale_connection_is_replaced_and_the_batch_repeated(make: Make) -> None:
    failures = [Lost(stale=True)]

    def respond(calls: Sequence[Call]) -> list[Outcome]:
        if len(calls) > 1 and failures:
            raise failures.pop()
        return echo(calls)

    server = Server(respond)
    callers = make(server)
    held(server, callers)
    callers.start(ask("a"), b"1")
    callers.start(ask("b"), b"2")
    server.gate.set()
    assert callers.results()[1:] == [[("a",)], [("b",)]]
    assert server.batches == [["first"], ["a", "b"], ["a", "b"]]


def test_a_server_that_is_gone_fails_the_batch_at_once(make: Make) -> None:
    def respond(calls: Sequence[Call]) -> list[Outcome]:
        raise Lost(stale=False)

    server = Server(respond)
    callers = make(server)
    held(server, callers)
    for number in range(1, 20):
        callers.start(ask(str(number)), bytes([number]))
    server.gate.set()
    results = callers.results()
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert len({id(result) for result in results}) == len(results), "each caller raises an error of its own"
    assert len(server.batches) == 2


def test_an_error_of_an_operation_is_its_own(make: Make) -> None:
    def damaged() -> Operation[None]:
        yield "look", {}
        raise UnreadableRecord("damaged")

    def broken() -> Operation[None]:
        yield "look", {}
        raise KeyError("secret")

    server = Server()
    callers = make(server)
    held(server, callers)
    callers.start(damaged(), b"1")
    callers.start(broken(), b"2")
    callers.start(ask("good"), b"3")
    server.gate.set()
    _, first, second, good = callers.results()
    assert isinstance(first, UnreadableRecord)
    assert isinstance(second, StoreUnavailable)
    assert "KeyError" in str(second)
    assert "secret" not in str(second)
    assert good == [("good",)]


def test_callers_leave_at_their_deadline_and_do_not_cut_the_connection(make: Make) -> None:
    server = Server()
    callers = make(server, deadline=0.2)
    held(server, callers)
    callers.start(ask("waits"), b"1")
    if isinstance(callers, Threads):  # of which the first runs the batch, and cannot leave it
        waits = callers._futures[1].exception(PATIENCE)
    else:
        first, waits = callers.results()
        assert "whether it was done is not known" in str(first)
    assert isinstance(waits, StoreUnavailable)
    assert "timed out after 0.2 s; nothing was done" in str(waits)
    assert server.closed == 0
    server.gate.set()
    callers.results()
    callers.start(ask("after"), b"1")
    assert callers.results()[-1] == [("after",)]
    assert ["waits"] not in server.batches


def test_a_hundred_at_once_all_get_their_own(make: Make) -> None:
    server = Server()
    callers = make(server)
    for number in range(200):
        callers.start(ask(f"{number}", times=2), bytes([number % 50, 0]))
    assert callers.results() == [[(f"{number}",)] * 2 for number in range(200)]


def test_closing_closes_the_connections_and_the_queue_can_be_used_again(make: Make) -> None:
    server = Server()
    callers = make(server)
    callers.start(ask("a"), b"1")
    callers.results()
    callers._queue.close()  # type: ignore[attr-defined]  # both have one
    assert server.closed == 1
    callers.start(ask("b"), b"1")
    assert callers.results()[-1] == [("b",)]


def test_a_cancelled_coroutine_withdraws_what_was_not_begun() -> None:
    async def play() -> None:
        server = Server()
        queue = LoopQueue(lambda: AwaitingExecutor(server), PATIENCE, asyncio.get_running_loop())
        server.gate.clear()
        first = asyncio.create_task(queue.perform(ask("first"), b"0"))
        await asyncio.to_thread(server.entered.acquire, timeout=PATIENCE)
        second = asyncio.create_task(queue.perform(ask("second"), b"1"))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        await asyncio.wait({first, second})
        server.gate.set()
        assert await queue.perform(ask("third"), b"0") == [("third",)]
        assert server.batches == [["first"], ["third"]]
        assert server.closed == 0, "the connection went on to the end of its batch"
        queue.close()

    asyncio.run(play())


def test_an_interrupted_leader_fails_its_batch_and_passes_the_lead_on() -> None:
    def respond(calls: Sequence[Call]) -> list[Outcome]:
        if ("interrupt", {}) in calls:
            raise KeyboardInterrupt
        return echo(calls)

    server = Server(respond)
    callers = Threads(server, PATIENCE)
    server.gate.clear()
    callers.start(ask("interrupt"), b"0")
    assert server.entered.acquire(timeout=PATIENCE)
    callers.start(ask("next"), b"1")
    server.gate.set()
    interrupted, after = callers.results()
    assert isinstance(interrupted, KeyboardInterrupt)
    assert after == [("next",)]
    assert server.closed == 1
    callers.close()


def test_the_lead_goes_to_the_one_with_most_time_left() -> None:
    server = Server()
    callers = Threads(server, PATIENCE)
    held(server, callers)
    for number in range(1, 4):
        callers.start(ask(str(number)), bytes([number]))
    youngest = time.monotonic() + PATIENCE
    server.gate.set()
    callers.results()
    assert server.batches[1] == ["1", "2", "3"]
    assert server.untils[1] > server.untils[0]
    assert youngest - server.untils[1] < youngest - server.untils[0]
    callers.close()
