"""`in_flight="wait"` under a server with few threads: duplicates of a slow request leave some for others."""

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import islice

from retrysafe.testing.adapters.client import PATIENCE, Client, Reply
from retrysafe.testing.adapters.suite import assert_problem, assert_replay

DUPLICATES = 3

SERVER = """
import logging, sys, threading, time
import waitress
from retrysafe import Guard, scopes
from retrysafe.wsgi import Middleware

end = threading.Event()
runs = 0

def app(environ, start_response):
    global runs
    if environ["PATH_INFO"] == "/slow":
        runs += 1
        print("slow", flush=True)
        end.wait()
    start_response("201 Created", [("Content-Type", "text/plain")])
    return [b"%d" % runs]

def wait_for_input():
    sys.stdin.readline()
    end.set()

logging.basicConfig(stream=sys.stdout, format="%(message)s")
threading.Thread(target=wait_for_input, daemon=True).start()
guard = Guard("memory:", scope=scopes.header("Authorization"), in_flight="wait", wait_for=60, OPTIONS)
server = waitress.create_server(Middleware(app, guard), host="127.0.0.1", port=0, threads=4)
print(server.effective_port, flush=True)

def report():
    while guard.runtime.wait_limit._blocked < 3:
        time.sleep(0.01)
    print("three wait", flush=True)

threading.Thread(target=report, daemon=True).start()
server.run()
"""


class Site:
    """waitress with its usual 4 threads, and an application whose `/slow` ends when it is told to."""

    def __init__(self, process: "subprocess.Popen[str]", pool: ThreadPoolExecutor) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output, self._pool = process.stdin, process.stdout, pool
        self.client = Client(int(self._output.readline()))

    def until(self, said: str) -> None:
        """Wait for the server to say so."""
        assert any(line.startswith(said) for line in self._output), f"it ended without saying {said}"

    def end(self) -> None:
        self._input.write("\n")
        self._input.flush()

    def send(self, path: str, key: str = "slow") -> "Future[Reply]":
        return self._pool.submit(self.client.post, path, key=key)


@contextmanager
def serving(options: str = "") -> Generator[Site]:
    command = [sys.executable, "-c", SERVER.replace("OPTIONS", options)]
    with (
        ThreadPoolExecutor(DUPLICATES + 2) as pool,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            yield Site(process, pool)
        finally:
            process.kill()


def test_others_are_served_meanwhile() -> None:
    """One duplicate waits, the others are refused at once with hints, and requests that have nothing to do
    with them find a thread."""
    with serving() as site:
        first = site.send("/slow")
        site.until("slow")
        duplicates = [site.send("/slow") for _ in range(DUPLICATES)]
        refused = list(islice(as_completed(duplicates, PATIENCE), DUPLICATES - 1))
        for reply in (future.result() for future in refused):
            assert_problem(reply, 409, "in-flight")
            assert int(reply.header("Retry-After") or 0) >= 1
        for number in range(10):
            assert site.send("/other", key=f"other-{number}").result(PATIENCE).status == 201
        [waiting] = set(duplicates) - set(refused)
        assert not first.done()
        assert not waiting.done()
        site.end()
        assert first.result(PATIENCE).essence == (201, b"1")
        assert_replay(first.result(), waiting.result(PATIENCE))


def test_as_many_wait_as_the_guard_says() -> None:
    """With as many waiters as there are threads left, other requests queue: what the default prevents."""
    with serving("wait_threads=3") as site:
        first = site.send("/slow")
        site.until("slow")
        duplicates = [site.send("/slow") for _ in range(DUPLICATES)]
        site.until("three wait")  # or the other request might come first, and find a thread
        other = site.send("/other", key="other")
        site.until("Task queue depth")
        assert not other.done()
        site.end()
        for duplicate in duplicates:
            assert_replay(first.result(PATIENCE), duplicate.result(PATIENCE))
        assert other.result(PATIENCE).status == 201
        assert first.result().essence == (201, b"1")


def test_no_thread_may_wait() -> None:
    """Zero, for servers with a thread or two: as if every duplicate were rejected."""
    with serving("wait_threads=0") as site:
        first = site.send("/slow")
        site.until("slow")
        assert_problem(site.send("/slow").result(PATIENCE), 409, "in-flight")
        site.end()
        assert first.result(PATIENCE).status == 201
