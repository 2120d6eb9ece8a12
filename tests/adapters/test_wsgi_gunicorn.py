"""gunicorn as the documentation of `retrysafe.wsgi` says to configure it: how its workers live and end."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import retrysafe.wsgi
from retrysafe.testing.adapters.client import PATIENCE, Client, Connection, Reply, common, settled, until
from retrysafe.testing.adapters.crash import DISCONNECTED
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh

DOCUMENTED = [
    textwrap.dedent(block)
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", retrysafe.wsgi.__doc__ or "", re.MULTILINE)
    if block.strip()
]

APPLICATION = """
import os, pathlib, time
from urllib.parse import parse_qs
from retrysafe import Guard, scopes
from retrysafe.wsgi import Middleware

here = pathlib.Path(__file__).parent
guard = Guard(f"sqlite:///{here / 'keys.db'}", scope=scopes.header("X-Tenant"), lease=1.0, grace=10.0)
guard.check()  # before the fork, if it is preloaded: nothing that it opened may be used by a worker

def work(environ, start_response):
    query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    effects = here / ("effects-" + query["label"])
    if environ["REQUEST_METHOD"] == "POST":
        with effects.open("a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(float(query.get("seconds", 0)))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Connection-Of", str(os.getpid()))])
    return [os.urandom(8).hex().encode()]

app = Middleware(work, guard)
"""


READY = """
_documented = post_worker_init

def post_worker_init(worker):
    _documented(worker)
    worker.log.info("Worker ready")
"""
"""A signal is lost on a worker that is being started, and gunicorn does not send it again."""


class Gunicorn(Client):
    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(port=0)
        self.folder = folder
        self._log = folder / "log"
        (folder / "shop.py").write_text(APPLICATION)
        hooks = next(block for block in DOCUMENTED if "worker_exit" in block)
        (folder / "gunicorn.conf.py").write_text("from shop import guard\n\n" + hooks + READY)
        command = [sys.executable, "-m", "gunicorn", "--bind=127.0.0.1:0", "--log-level=info", *arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "shop:app"], cwd=folder, stderr=log, start_new_session=True
            )
        workers = 2 if "--workers=2" in arguments else 1
        until(lambda: self.log.count("Worker ready") >= workers)
        found = re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", self.log)
        assert found is not None, self.log
        self.port = int(found[1])

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, key: str, label: str, seconds: float = 0) -> Reply:
        return self.post("/", key=key, user=None, fields=[("X-Tenant", "acme")], label=label, seconds=seconds)

    def workers(self, label: str) -> list[int]:
        """Who had the effect, in order."""
        file = self.folder / f"effects-{label}"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def effects(self, label: str) -> int:
        return len(self.workers(label))

    def written(self, label: str) -> int:
        return self.effects(label)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def gunicorn(tmp_path: Path) -> Iterator[Callable[..., Gunicorn]]:
    started: list[Gunicorn] = []

    def start(*arguments: str) -> Gunicorn:
        started.append(Gunicorn(tmp_path, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.kill()


KINDS = pytest.mark.parametrize(
    "kind",
    [
        ["--worker-class=sync", "--workers=2"],
        ["--worker-class=gthread", "--threads=4"],
        ["--worker-class=gthread", "--threads=4", "--workers=2", "--preload"],
    ],
    ids=["sync", "gthread", "preload"],
)


def test_the_example_is_an_example(tmp_path: Path) -> None:
    """The application of the documentation runs once, as it is printed there."""
    example = next(block for block in DOCUMENTED if "Middleware(pay" in block)
    names: dict[str, Any] = {}
    exec(example.replace("sqlite:///keys.db", f"sqlite:///{tmp_path}/keys.db"), names)
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "wsgi.url_scheme": "http",
        "HTTP_X_TENANT": "acme",
        "HTTP_IDEMPOTENCY_KEY": "k",
    }
    started: list[Any] = []
    bodies = [names["app"](dict(environ), lambda *head: started.append(head)) for _ in range(2)]
    assert bodies == [[b"paid"], [b"paid"]]
    assert [("idempotent-replayed", "true") in head[1] for head in started] == [False, True]
    names["guard"].close()


@KINDS
def test_a_killed_worker(gunicorn: Callable[..., Gunicorn], kind: list[str]) -> None:
    """SIGKILL in the middle of a handler: in flight, then unknown, and the worker that follows works."""
    server = gunicorn(*kind)
    key, label = fresh("key"), fresh("label")
    running = server.running(lambda: server.send(key, label, 30), label)
    os.kill(server.workers(label)[0], signal.SIGKILL)
    assert isinstance(running.exception(), DISCONNECTED)
    unknown = settled(lambda: server.send(key, label, 30))
    assert_problem(unknown, 409, "outcome-unknown")
    assert server.effects(label) == 1
    key, other = fresh("key"), fresh("label")
    first = server.send(key, other)
    assert first.status == 200
    assert_replay(first, server.send(key, other))
    assert server.workers(other) != server.workers(label)


@KINDS
def test_a_graceful_end(gunicorn: Callable[..., Gunicorn], kind: list[str]) -> None:
    """SIGTERM: what runs is finished, stored and answered; the next server replays it."""
    server = gunicorn(*kind)
    key, label = fresh("key"), fresh("label")
    running = server.running(lambda: server.send(key, label, 1), label)
    server.process.send_signal(signal.SIGTERM)
    first = running.result()
    assert first.status == 200
    assert server.process.wait(PATIENCE) == 0
    assert_replay(first, gunicorn(*kind).send(key, label, 1))
    assert server.effects(label) == 1


def test_nothing_new_while_it_drains(gunicorn: Callable[..., Gunicorn]) -> None:
    """A request that was on its way when the signal came is answered: with a replay, or not run."""
    server = gunicorn("--worker-class=gthread", "--threads=16")
    done, label = fresh("key"), fresh("label")
    first = server.send(done, label)
    slow = fresh("label")
    running = server.running(lambda: server.send(fresh("key"), slow, 4), slow)
    with ExitStack() as open_connections:
        old, *others = [open_connections.enter_context(server.connect()) for _ in range(10)]
        # A head without its end is a request in progress, for which a server waits.
        for connection in (old, *others):
            _half(connection, done if connection is old else fresh("key"), label)
        assert old.is_silent(0.3)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "Handling signal: term" in server.log)
        answers: list[Reply] = []
        # The worker hears of it when the machine gets round to it: whoever is earlier is served.
        while not answers or answers[-1].status == 200:
            others[len(answers)].send(b"\r\n")
            answers.append(others[len(answers)].reply())
            time.sleep(0.2)
        assert_problem(answers[-1], 503, "draining")
        old.send(b"\r\n")
        assert_replay(first, old.reply())
    assert running.result().status == 200
    assert server.effects(label) == len(answers)


def _half(connection: Connection, key: str, label: str) -> None:
    head = f"POST /?label={label}&seconds=0 HTTP/1.1\r\nHost: shop.test\r\nX-Tenant: acme\r\n"
    connection.send(f'{head}Idempotency-Key: "{key}"\r\nContent-Length: 0\r\n'.encode())


def test_a_worker_that_takes_too_long(gunicorn: Callable[..., Gunicorn]) -> None:
    """gunicorn aborts it, which raises `SystemExit` in the handler: unknown, and not run again."""
    server = gunicorn("--worker-class=sync", "--workers=2", "--timeout=1")
    key, label = fresh("key"), fresh("label")
    broken = server.running(lambda: server.send(key, label, 30), label)
    error = broken.exception()
    assert isinstance(error, DISCONNECTED) or broken.result().status >= 500
    assert "WORKER TIMEOUT" in server.log
    unknown = settled(lambda: server.send(key, label, 30))
    assert_problem(unknown, 409, "outcome-unknown")
    assert server.effects(label) == 1


def test_a_frozen_worker(gunicorn: Callable[..., Gunicorn]) -> None:
    """SIGSTOP through its lease: unknown meanwhile, its own answer when it wakes, and one effect."""
    server = gunicorn("--worker-class=gthread", "--threads=2", "--workers=2", "--preload", "--timeout=60")
    key, label = fresh("key"), fresh("label")
    running = server.running(lambda: server.send(key, label, 1), label)
    frozen = server.workers(label)[0]
    os.kill(frozen, signal.SIGSTOP)
    try:
        unknown = settled(lambda: _by_another(server, key, label))
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert_problem(unknown, 409, "outcome-unknown")
    first = running.result()
    assert first.status == 200
    assert_replay(first, server.send(key, label, 1))
    assert server.effects(label) == 1


def _by_another(server: Gunicorn, key: str, label: str) -> Reply:
    """Ask until a worker answers that is not frozen: the kernel may hand the connection to either."""
    while True:
        with server.connect() as connection:
            fields = [("X-Tenant", "acme"), ("Content-Length", "0"), ("Connection", "close")]
            connection.head("POST", f"/?label={label}&seconds=1", common(key, None, fields))
            if not connection.is_silent(1.0):
                return connection.reply()
