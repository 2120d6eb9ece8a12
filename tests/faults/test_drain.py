"""SIGTERM and rolling deploys (F6): what runs is finished, what is new is sent elsewhere, replays go on."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Unpack

import pytest

from retrysafe import Guard, scopes
from retrysafe._core.model import Claim, Reservation
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection, Message, Receive, Send
from retrysafe.policy import Options
from retrysafe.stores.contract import Store
from retrysafe.stores.memory import MemoryStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.adapters.client import PATIENCE, Reply, common
from retrysafe.testing.adapters.client import Connection as Socket
from retrysafe.testing.adapters.client import until as wait_until
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh
from tests.faults.trapped import Trapped
from tests.faults.wire import Heard, call, connection, respond, until


class Workshop:
    """A guarded application whose slow handlers end when they are told to."""

    def __init__(self, store: Store, **options: Unpack[Options]) -> None:
        self.finish = asyncio.Event()
        self.runs = list[str]()
        said: Options = {"scope": scopes.header("X-Tenant"), **options}
        self.guard = Guard(store, **said)
        self.app = Middleware(self._handle, self.guard)

    async def _handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        self.runs.append(scope["path"])
        if scope["path"] == "/slow":
            await self.finish.wait()
        await respond(send, 201, fresh("answer").encode())

    async def ask(self, path: str, key: str) -> Heard:
        return await call(self.app, connection(path, key=key))

    @asynccontextmanager
    async def running(self, key: str) -> AsyncGenerator["asyncio.Task[Heard]"]:
        """A slow request whose handler is at work."""
        before = len(self.runs)
        task = asyncio.ensure_future(self.ask("/slow", key))
        await until(lambda: len(self.runs) > before)
        yield task
        self.finish.set()
        await task


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = (
        MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "k.db", deadline=20.0)
    )
    yield store
    store.close()


def test_what_runs_is_finished(store: Store) -> None:
    """F6: new keys get 503 `draining` with `Retry-After` and do not run; replays, refusals of duplicates and
    the running handler go on; the drain is over when the last handler is."""

    async def deploy() -> None:
        shop = Workshop(store)
        old, slow, new = fresh(), fresh(), fresh()
        first = await shop.ask("/charges", old)
        async with shop.running(slow) as running:
            draining = asyncio.ensure_future(shop.guard.drain_async(PATIENCE))
            await asyncio.sleep(0)
            refused = await shop.ask("/charges", new)
            assert (refused.status, refused.code) == (503, "draining")
            assert int(refused.header(b"retry-after") or b"0") >= 1
            assert refused.header(b"x-should-retry") == b"true"
            replay = await shop.ask("/charges", old)
            assert (replay.status, replay.replayed, replay.body) == (201, True, first.body)
            assert (await shop.ask("/slow", slow)).code == "in-flight"
            assert (await shop.ask("/other", old)).code == "key-reused"
            assert not draining.done()
        assert await draining == 0
        answered = running.result()
        assert answered.status == 201
        assert (await shop.ask("/slow", slow)).body == answered.body
        assert shop.runs == ["/charges", "/slow"]
        shop.guard.resume()
        assert (await shop.ask("/charges", new)).status == 201
        shop.guard.close()

    asyncio.run(deploy())


def test_the_grace_is_over(store: Store) -> None:
    """F6: a drain waits no longer than its grace and says how many it left; those keep their lease."""

    async def deploy() -> None:
        shop = Workshop(store, lease=0.6, abandoned="retry")
        slow = fresh()
        async with shop.running(slow) as running:
            began = time.monotonic()
            assert await shop.guard.drain_async(0.05) == 1
            assert time.monotonic() - began < PATIENCE / 2
            await asyncio.sleep(1.0)  # longer than the lease
            assert (await shop.ask("/slow", slow)).code == "in-flight"
        assert (await shop.ask("/slow", slow)).body == running.result().body
        assert shop.runs == ["/slow"]
        shop.guard.close()

    asyncio.run(deploy())


def test_waiters_get_their_answer(store: Store) -> None:
    """F6 in waiting mode: whoever waits for a running handler when the drain begins is answered by it."""

    async def deploy() -> None:
        shop = Workshop(store, in_flight="wait", wait_for=PATIENCE)
        slow = fresh()
        async with shop.running(slow) as running:
            waiter = asyncio.ensure_future(shop.ask("/slow", slow))
            await asyncio.sleep(0.05)
            draining = asyncio.ensure_future(shop.guard.drain_async(PATIENCE))
            await asyncio.sleep(0.05)
            assert not waiter.done()
        waited = await waiter
        assert (waited.replayed, waited.body) == (True, running.result().body)
        assert await draining == 0
        shop.guard.close()

    asyncio.run(deploy())


def test_a_claim_whose_handler_has_not_begun(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: a drain that begins between claim and handler: the claim is released, the handler does not run."""

    async def deploy() -> None:
        shop = Workshop(store)
        reserve = shop.guard.runtime.aio.reserve

        async def and_drain(claim: Claim) -> Reservation:
            reservation = await reserve(claim)
            shop.guard.runtime.draining = True
            return reservation

        key = fresh()
        with monkeypatch.context() as patch:
            patch.setattr(shop.guard.runtime.aio, "reserve", and_drain)
            assert (await shop.ask("/charges", key)).code == "draining"
        assert shop.runs == []
        shop.guard.resume()
        answer = await shop.ask("/charges", key)
        assert (answer.status, answer.replayed) == (201, False)
        shop.guard.close()

    asyncio.run(deploy())


def test_the_application_hears_of_its_shutdown_last(store: Store) -> None:
    """F6: a handler still needs what the application closes at its shutdown, so that waits for it."""

    async def deploy() -> None:
        shop = Workshop(store)
        heard: list[str] = []
        shutdown = asyncio.Event()

        async def receive() -> Message:
            await shutdown.wait()
            return {"type": "lifespan.shutdown"}

        async def application(scope: Connection, receive: Receive, send: Send) -> None:
            heard.append((await receive())["type"])

        async def send(message: Message) -> None:
            raise AssertionError(message)

        lifespan = Middleware(application, shop.guard)
        ending = asyncio.ensure_future(lifespan({"type": "lifespan"}, receive, send))
        async with shop.running(fresh()):
            shutdown.set()
            await asyncio.sleep(0.1)
            assert heard == []
        await ending
        assert heard == ["lifespan.shutdown"]
        shop.guard.close()

    asyncio.run(deploy())


def test_blocking(store: Store) -> None:
    """F6: `guard.drain()` does the same from a thread that has no event loop."""

    async def deploy() -> None:
        shop = Workshop(store)
        left: list[int] = []
        async with shop.running(fresh()):
            thread = threading.Thread(target=lambda: left.append(shop.guard.drain(PATIENCE)))
            thread.start()
            await until(lambda: shop.guard.runtime.draining)
            assert (await shop.ask("/charges", fresh())).code == "draining"
        await asyncio.to_thread(thread.join, PATIENCE)
        assert left == [0]
        shop.guard.close()

    asyncio.run(deploy())


def test_a_signal_stops_the_claims() -> None:
    """F6: `drain_on` stops claiming at the signal, and whoever was to be told is still told."""
    told: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: told.append(number))
    try:
        guard = Guard(MemoryStore(), scope=scopes.header("X-Tenant"))
        guard.drain_on(signal.SIGUSR1)
        assert not guard.runtime.draining
        signal.raise_signal(signal.SIGUSR1)
        assert guard.runtime.draining
        assert told == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def _half(api: Trapped, path: str, key: str, label: str) -> Socket:
    """A request that has arrived but for its last byte."""
    half = Socket(api.port)
    half.head("POST", f"{path}?label={label}", common(key, "alice", [("Content-Length", "2")]))
    half.send(b"{")
    return half


def _whole(api: Trapped, path: str, key: str, label: str) -> Reply:
    return api.post(path, key=key, body=b"{}", label=label)


def test_a_real_server(tmp_path: Path) -> None:
    """F6 over sockets: SIGTERM while one handler is slow, one request is half here, and one is a replay."""
    old = Trapped.start(tmp_path, grace=10)
    next_one = Trapped.start(tmp_path)
    try:
        _deploy(old, next_one)
    finally:
        old.end()
        next_one.end()


def _deploy(old: Trapped, next_one: Trapped) -> None:
    known, slow, new = fresh(), fresh(), fresh()
    known_label, slow_label, new_label = fresh("label"), fresh("label"), fresh("label")
    first = _whole(old, "/charges", known, known_label)

    def lasting(api: Trapped) -> Reply:
        return api.lasting(key=slow, label=slow_label, seconds=1.5)

    running = old.running(lambda: lasting(old), slow_label)
    with (
        closing(_half(old, "/charges", known, known_label)) as replay,
        closing(_half(old, "/charges", new, new_label)) as refused,
    ):
        _wait_for_the_half(old)
        old.terminate()
        _wait_until_closed(old)
        for half in (replay, refused):
            half.send(b"}")
        assert_problem(answer := refused.reply(), 503, "draining")
        assert int(answer.header("Retry-After") or 0) >= 1
        assert_replay(first, replay.reply())
    done = running.result(PATIENCE)
    assert done.status == 200
    assert old.exit_status() == 0
    assert_replay(done, lasting(next_one))
    assert next_one.effects(slow_label) == 1
    assert next_one.effects(new_label) == 0
    answer = _whole(next_one, "/charges", new, new_label)
    assert (answer.status, answer.replayed) == (201, False)


def _wait_for_the_half(api: Trapped) -> None:
    """What was sent before this request and on the same machine has been read when it is answered."""
    for _ in range(3):
        api.effects("-")


def _wait_until_closed(api: Trapped) -> None:
    """Until it takes no connections any more, and so has begun to drain."""

    def closed() -> bool:
        try:
            Socket(api.port).close()
        except OSError:
            return True
        return False

    wait_until(closed)
