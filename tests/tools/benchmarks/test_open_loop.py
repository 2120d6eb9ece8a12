"""Requests at a rate are sent when they are due, whatever the server does, and each is accounted for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import pytest

from benchmarks import open_loop
from benchmarks.load import ANSWER, BODY, Order, Tally
from benchmarks.open_loop import OpenLoop
from tests.tools.benchmarks.test_bench import pytestmark as needs_linux

pytestmark = needs_linux

Respond = Callable[[int], Awaitable[bytes]]

CREATED = b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n" % len(ANSWER) + ANSWER
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


@contextmanager
def serving(respond: Respond) -> Generator[int]:
    """A server that gives each request, by its number, what the function returns; nothing closes it."""
    loop = asyncio.new_event_loop()
    numbers = iter(range(10_000))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(BODY):
                response = await respond(next(numbers))
                writer.write(response)
                if not response:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:

        async def end() -> None:
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def carried_out(respond: Respond, rate: float, seconds: float) -> Tally:
    with serving(respond) as port:
        return OpenLoop(Order(port, "fresh", seconds, rate=rate)).carry_out()


def test_a_slow_server_gets_no_fewer_requests() -> None:
    """A loop that waited for each response could send two or three in this time."""

    async def slowly(_: int) -> bytes:
        await asyncio.sleep(0.3)
        return CREATED

    tally = carried_out(slowly, rate=40, seconds=0.75)
    assert (tally.offered, tally.requests, tally.errors) == (30, 30, 0)
    assert 0.3 <= tally.p50 <= tally.p99


def test_connections_are_used_again() -> None:
    connected: set[asyncio.Task[None] | None] = set()

    async def at_once(_: int) -> bytes:
        connected.add(asyncio.current_task())
        return CREATED

    tally = carried_out(at_once, rate=100, seconds=0.5)
    assert tally.requests == 50
    assert len(connected) < 50


def test_failures_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, cut off, and without a response in time; every request is one or the other, or succeeded."""
    monkeypatch.setattr(open_loop, "TIMEOUT", 0.5)

    async def badly(number: int) -> bytes:
        match number % 4:
            case 0:
                return CREATED
            case 1:
                return REFUSED
            case 2:
                return b""
            case _:
                await asyncio.sleep(60)
                return CREATED

    tally = carried_out(badly, rate=80, seconds=0.5)
    assert tally.offered == 40
    assert tally.requests == 10
    assert tally.kinds == {"status 503": 10, "the connection was closed": 10, "no response in time": 10}


def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they fail at once: the generator must not run out of descriptors."""
    monkeypatch.setattr(open_loop, "TIMEOUT", 0.5)
    monkeypatch.setattr(open_loop, "UNDER_WAY", 5)

    async def never(_: int) -> bytes:
        await asyncio.sleep(60)
        return b""

    tally = carried_out(never, rate=100, seconds=0.2)
    assert tally.kinds == {"too many under way": 15, "no response in time": 5}
