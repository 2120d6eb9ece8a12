"""How long things last over WSGI: iterables are closed, workers are ended, clients hang up."""

import gc
from collections.abc import Callable, Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from retrysafe import Guard, current
from retrysafe.errors import NotGuarded
from tests.core.garbage import garbage_of_ours, sweep
from tests.core.wsgi_calls import TEXT, Closing, Served, Site, a_guard, an_environ, created

__all__ = ["a_guard"]

MakeGuard = Callable[..., Guard]


def test_it_is_closed_once_after_its_last_byte(a_guard: MakeGuard) -> None:
    """And before its answer is sent: what `close()` does belongs to the request."""
    log: list[str] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        return Closing([b"one", b"two"], log)

    class Watching(Served):
        def send(self, piece: bytes) -> None:
            log.append("sent")

    site = Site(respond, a_guard(), validated=False)
    Watching(site.app, an_environ())
    assert log == ["read", "closed", "sent"]


def _failing() -> Iterator[bytes]:
    yield b"half"
    raise ValueError("first")


def test_it_is_closed_when_it_fails(a_guard: MakeGuard) -> None:
    """Once; and what went wrong first is what is raised, whatever `close()` adds to it."""
    log: list[str] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        return Closing(_failing(), log, OSError("second"))

    site = Site(respond, a_guard(), validated=False)
    assert str(site().error) == "first"
    assert log == ["closed"]
    assert site().status == 500
    assert site.runs == 1


def test_a_close_that_fails_is_a_failure(a_guard: MakeGuard) -> None:
    """A framework commits there: an answer whose commit failed must not be kept."""
    log: list[str] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        return Closing([b"done"], log, OSError("the commit failed"))

    site = Site(respond, a_guard(), validated=False)
    first = site()
    assert (first.status, str(first.error)) == (500, "the commit failed")
    assert (site().status, site.runs, log) == (500, 1, ["read", "closed"])


def test_nothing_is_written_after_the_end(a_guard: MakeGuard) -> None:
    """What `close()` writes would come after the last byte: it is told so, and that is a failure."""
    write: Callable[[bytes], object] = print

    class Writing(Closing):
        def close(self) -> None:
            write(b"more")

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        nonlocal write
        write = start_response("200 OK", list(TEXT))
        return Writing([b"done"], [])

    site = Site(respond, a_guard(), validated=False)
    first = site()
    assert (first.status, str(first.error)) == (500, "the application wrote to a response that was complete")
    assert b"more" not in first.body


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("within", [True, False])
def test_a_worker_that_is_ended_leaves_the_outcome_unknown(
    a_guard: MakeGuard, end: type[BaseException], within: bool
) -> None:
    """gunicorn aborts a handler with `SystemExit`: nobody knows how far it came, so nothing is written."""
    log: list[str] = []

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise end

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        if not within:
            raise end
        return Closing(pieces(), log, OSError("not what counts"))

    guard = a_guard(lease=0.3)
    site = Site(respond, guard, validated=False)
    assert isinstance(site().error, end)
    assert log == (["closed"] if within else [])
    assert guard.runtime.unfinished() == 0
    codes: list[bytes] = []
    while b"outcome-unknown" not in (found := site().body):  # the lease is not renewed any more
        codes.append(found)
    assert all(b"in-flight" in found for found in codes)
    assert site.runs == 1


def test_a_client_that_hangs_up_while_its_answer_flows(a_guard: MakeGuard) -> None:
    """The server's `write` says so: the application is stopped and closed, as a server would have done."""
    log: list[str] = []

    def pieces() -> Iterator[bytes]:
        while True:  # without an end of its own
            yield b"event"

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return Closing(pieces(), log)

    class HangingUp(Served):
        def send(self, piece: bytes) -> None:
            super().send(piece)
            if len(self.pieces) == 3:
                raise BrokenPipeError

    site = Site(respond, a_guard(), validated=False)
    broken = HangingUp(site.app, an_environ())
    assert isinstance(broken.error, BrokenPipeError)
    assert log == ["closed"]
    retry = site()
    assert (retry.status, retry.replayed, site.runs) == (500, True, 1)


def test_current_is_there_and_nowhere_else(a_guard: MakeGuard) -> None:
    """In the handler, in the generator that streams, in `close()`; not in the thread's next request."""
    seen: list[str] = []

    def pieces() -> Iterator[bytes]:
        try:
            seen.append(current().request_id)
            yield b"one"
        finally:
            seen.append(current().request_id)

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        seen.append(current().request_id)
        start_response("200 OK", list(TEXT))
        return pieces()

    site = Site(respond, a_guard())
    site(HTTP_X_REQUEST_ID="r-1")
    assert seen == ["r-1"] * 3
    with pytest.raises(NotGuarded):
        current()
    assert isinstance(site(key=None).error, NotGuarded)


def test_background_after(a_guard: MakeGuard) -> None:
    """`close()` is the background task of WSGI: the answer is stored and sent before it; a drain waits."""
    guard = a_guard(background="after")
    log: list[str] = []

    class Working(Closing):
        def close(self) -> None:
            log.append(f"{current().request_id}, {guard.runtime.unfinished()} running")
            super().close()

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("201 Created", list(TEXT))
        return Working([b"made"], log, OSError("the client does not mind"))

    class Watching(Served):
        def send(self, piece: bytes) -> None:
            super().send(piece)
            log.append("sent")

    site = Site(respond, guard, validated=False)
    first = Watching(site.app, an_environ(HTTP_X_REQUEST_ID="r-1"))
    assert log == ["read", "sent", "r-1, 1 running", "closed"]
    assert (first.status, str(first.error)) == (201, "the client does not mind")
    assert guard.runtime.unfinished() == 0
    assert (site().status, site().replayed, site.runs) == (201, True, 1)


def test_background_after_a_failure(a_guard: MakeGuard) -> None:
    """There is nothing to wait for: it is closed at once, and once."""
    log: list[str] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        return Closing(_failing(), log)

    site = Site(respond, a_guard(background="after"), validated=False)
    assert str(site().error) == "first"
    assert log == ["closed"]


def test_a_request_leaves_no_garbage(a_guard: MakeGuard) -> None:
    """What it was made of goes when it is over, without waiting for a collector that stops everybody."""
    site = Site(created, a_guard(), validated=False)
    site(key="to warm up, with a key")
    older = sweep()
    gc.disable()
    try:
        for key in ("one", "two", "two"):
            site(key=key)
        site.environs.clear()
        assert garbage_of_ours(older) == []
    finally:
        gc.enable()
