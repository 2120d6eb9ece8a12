"""A connection that is opened in a thread: for the caller that waits, or for the next one."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.connecting import Connecting

PATIENCE = 30.0
"""Seconds for what should take none, on a machine that is busy."""

SOON = 0.05


class Connection:
    def __init__(self) -> None:
        self.has_worked = False
        self.usable = True
        self.closed = threading.Event()

    def close(self) -> None:
        self.usable = False
        self.closed.set()

    discard = close


class Server:
    """Connects when it is told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.tries = 0
        self.refusal: StoreUnavailable | None = None

    def connect(self) -> Connection:
        self.tries += 1
        assert self.gate.wait(PATIENCE)
        if self.refusal is not None:
            raise self.refusal
        return Connection()


Connect = Callable[[Connecting[Connection], float], Connection]


def blocking(connecting: Connecting[Connection], within: float) -> Connection:
    return connecting.connected(time.monotonic() + within)


@pytest.fixture(params=["blocking", "awaiting"])
def connected(request: pytest.FixtureRequest) -> Iterator[Connect]:
    if request.param == "blocking":
        yield blocking
        return
    with asyncio.Runner() as runner:  # one loop for all calls of a test

        def awaiting(connecting: Connecting[Connection], within: float) -> Connection:
            until = time.monotonic() + within
            return runner.run(connecting.connected_async(until, runner.get_loop()))

        yield awaiting


def test_one_connection_is_used_again_and_replaced_when_it_is_lost(connected: Connect) -> None:
    server = Server()
    server.gate.set()
    connecting = Connecting(server.connect)
    first = connected(connecting, PATIENCE)
    assert connected(connecting, PATIENCE) is first
    first.usable = False
    assert connected(connecting, PATIENCE) is not first
    assert (server.tries, first.closed.is_set()) == (2, True)


def test_what_is_opened_too_late_is_there_for_the_next(connected: Connect) -> None:
    server = Server()
    connecting = Connecting(server.connect)
    with pytest.raises(StoreUnavailable, match="timed out connecting"):
        connected(connecting, SOON)
    server.gate.set()
    assert connected(connecting, PATIENCE).usable
    assert server.tries == 1


def test_a_late_refusal_is_not_for_the_next(connected: Connect) -> None:
    """Whatever was wrong at that time, it is tried again."""
    server = Server()
    server.refusal = StoreUnavailable("out of connections")
    connecting = Connecting(server.connect)
    with pytest.raises(StoreUnavailable, match="timed out connecting"):
        connected(connecting, SOON)
    opening = connecting._opening
    assert opening is not None
    server.gate.set()
    assert opening.exception(PATIENCE) is server.refusal
    server.refusal = None
    assert connected(connecting, PATIENCE).usable
    assert server.tries == 2


def test_what_is_opened_after_the_end_is_closed(connected: Connect) -> None:
    server = Server()
    connecting = Connecting(server.connect)
    with pytest.raises(StoreUnavailable):
        connected(connecting, SOON)
    opening = connecting._opening
    assert opening is not None
    connecting.close()
    server.gate.set()
    assert opening.result(PATIENCE).closed.wait(PATIENCE)
