"""The reference application itself: what a suite that runs against it relies on."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from retrysafe.testing.adapters.client import Reply, settled, until
from retrysafe.testing.adapters.server import Option, Server
from retrysafe.testing.adapters.suite import fresh
from retrysafe.testing.reference.ledger import Ledger
from retrysafe.testing.reference.multipart import parts_of

COMMAND = [sys.executable, "-m", "retrysafe.testing.reference"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator["Starter"]:
    starter = Starter(tmp_path)
    yield starter
    for server in starter.started:
        server.kill()


class Starter:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Server] = []

    def __call__(self, **options: Option) -> Server:
        store = f"sqlite:///{self.folder / 'keys.db'}"
        server = Server("asgi", store, self.folder / "effects", **options)
        self.started.append(server)
        return server


def happened(server: Server, times: int) -> bool:
    return server.effects("crash") == times


def refused(server: Server) -> bool:
    try:
        server.effects("-")
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["rails", "--store=memory:", "--port=0"], "invalid choice: 'rails'"),
        (["asgi", "--store=memory:", "--port=0", "--profile=oasis"], "invalid choice: 'oasis'"),
        (["asgi", "--port=0"], "--store"),
        (["asgi", "--store=nonsense", "--port=0"], "has no scheme"),
        (["asgi", "--store=memory:", "--port=0", "--lease=0"], "lease=0.0 must be a"),
        (["asgi", "--store=memory:", "--port=0", "--workers=0"], "less than 1"),
        (
            ["asgi", "--store=memory:", "--port=0", "--server=sync"],
            "for django, flask and wsgi",
        ),
        (["asgi", "--store=memory:", "--port=0", "--preload"], "for django, flask and wsgi"),
        (["wsgi", "--store=memory:", "--port=0", "--server=flask"], "invalid choice: 'flask'"),
        (["wsgi", "--store=memory:", "--port=0", "--server=waitress", "--workers=2"], "is one process"),
        (["wsgi", "--store=nonsense", "--port=0"], "has no scheme"),
        (["asgi", "--store=memory:", "--port=0", "--tx"], 'effects="database"'),
        (["asgi", "--store=sqlite:///x.db", "--port=0", "--tx", "--failed=retry"], "--failed means nothing"),
        (["wsgi", "--store=sqlite:///x.db", "--port=0", "--tx", "--abandoned=hold"], "is rolled back"),
        (["wsgi", "--store=sqlite+aiosqlite:///x.db", "--port=0", "--tx"], "wsgi has no event loop"),
        (["asgi", "--store=sqlite+nothing:///x.db", "--port=0"], "SQLAlchemy has no driver"),
        (["django", "--store=memory:", "--port=0"], "not a database of this Django project"),
        (["django-async", "--store=sqlite+aiosqlite:///x.db", "--port=0"], "not a database of this Django"),
        (["django-async", "--store=sqlite:///x.db", "--port=0", "--server=sync"], "for django, flask"),
        (["django", "--store=sqlite:////no/such/folder/x.db", "--port=0"], "tables cannot be created"),
        (["django", "--store=postgresql://127.0.0.1:1/x", "--port=0"], "tables cannot be created"),
        (["asgi", "--store=sqlite:////no/such/folder/x.db", "--port=0", "--tx"], "tables cannot be created"),
        (["asgi", "--store=postgresql://127.0.0.1:1/x", "--port=0", "--tx"], "tables cannot be created"),
    ],
)
def test_what_it_cannot_do_it_says(arguments: list[str], complaint: str) -> None:
    """A wrong option ends it at once, with a sentence and without a traceback."""
    result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_variable_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile's environment is read when it starts."""
    monkeypatch.setenv("IDEMPOTENCY_TTL_HOURS", "a day")
    arguments = ["asgi", "--store=memory:", "--port=0", "--profile=erp"]
    result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert "IDEMPOTENCY_TTL_HOURS is 'a day'" in result.stderr


@pytest.mark.parametrize("workers", [1, 3])
def test_it_stops_when_asked(servers: Starter, workers: int) -> None:
    """SIGTERM: status 0, and nobody listens any more."""
    server = servers(workers=workers)
    assert server.effects("-") == 0
    server.terminate()
    assert server.exit_status() == 0
    assert refused(server)


def test_it_gives_up_after_its_grace(servers: Starter) -> None:
    """A handler that takes longer does not keep the process; its outcome is not known then."""
    server = servers(grace=1, lease=1)
    key, label = fresh("key"), fresh("label")

    def send() -> Reply:
        return server.lasting(key=key, seconds=30, label=label)

    running = server.running(send, label)
    began = time.monotonic()
    server.terminate()
    server.exit_status()
    assert time.monotonic() - began < 5
    # Whatever the server says of a request that it broke off, it is no success.
    assert isinstance(running.exception(), HTTPException | OSError) or running.result().status >= 500
    server.restart()
    assert settled(send).code == "outcome-unknown"
    assert server.effects(label) == 1


def test_workers_die_with_their_parent(servers: Starter) -> None:
    """Even by SIGKILL, which the parent cannot pass on."""
    server = servers(workers=3)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: refused(server))


def test_a_killed_worker_is_replaced(servers: Starter) -> None:
    """With several workers `/crash` ends one of them, and there are as many as before."""
    server = servers(workers=2)
    for number in range(1, 5):
        with pytest.raises((HTTPException, OSError)):
            server.post("/crash", label="crash")
        until(partial(happened, server, number))


def test_effects_are_counted_across_processes_and_restarts(servers: Starter) -> None:
    """By label, from the query or the body, whoever had them."""
    server = servers(workers=2)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(server.post, "/charges", label="one") for _ in range(20)]
        futures += [pool.submit(server.post, "/charges", json_body={"label": "two"}) for _ in range(5)]
        answers: list[Reply] = [future.result() for future in futures]
    assert {answer.status for answer in answers} == {201}
    server.restart()
    assert [server.effects(label) for label in ("one", "two", "on")] == [20, 5, 0]
    lines = (servers.folder / "effects").read_text().splitlines()
    assert sorted(lines) == ["one"] * 20 + ["two"] * 5


def test_attempts_are_counted_across_processes(servers: Starter) -> None:
    """`/flaky` fails exactly the first N times, whichever worker is asked."""
    server = servers(workers=3)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(server.post, "/flaky", fail=7, label="flaky") for _ in range(12)]
        statuses = [future.result().status for future in futures]
    assert (statuses.count(500), statuses.count(201)) == (7, 5)


def test_effects_in_the_database(servers: Starter) -> None:
    """With `--tx` they are rows, made once by whoever starts first, and the file is not used: it says so."""
    server = servers(tx=True)
    assert "--effects is not used with --tx" in server.log
    with ThreadPoolExecutor(4) as pool:
        others = [future.result() for future in [pool.submit(servers, tx=True, workers=2) for _ in range(3)]]
    for api in (server, *others):
        assert api.post("/charges", key=fresh("key"), label="one").status == 201
        assert api.post("/charges", label="one").status == 201
    assert [api.effects("one") for api in (server, *others)] == [8] * 4
    with closing(sqlite3.connect(servers.folder / "keys.db")) as database:
        rows = database.execute("SELECT label, count(*) FROM reference_effects GROUP BY label").fetchall()
    assert rows == [("one", 8)]


def test_attempts_are_counted_even_if_they_are_undone(servers: Starter) -> None:
    """With `--tx` a failed attempt leaves no effect, and is an attempt all the same."""
    server = servers(tx=True, workers=2)
    key = fresh("key")
    statuses = [server.post("/flaky", key=key, fail=2, label="flaky").status for _ in range(4)]
    assert statuses == [500, 500, 201, 201]
    assert (server.begun("flaky"), server.written("flaky"), server.effects("flaky")) == (3, 3, 1)


def test_a_deletion_that_was_undone(servers: Starter) -> None:
    """With `--tx` what is deleted is remembered in the database: who died in between has deleted nothing."""
    server = servers(tx=True, lease=0.5, trapdoor=True)
    key, path = fresh("key"), f"/charges/{fresh('id')}"
    server.trap("before Commit")
    with pytest.raises((HTTPException, OSError)):
        server.request("DELETE", path, key=key)
    server.revive()
    assert settled(lambda: server.request("DELETE", path, key=key)).status == 204
    assert server.request("DELETE", path, key=fresh("key")).status == 404
    server.restart()
    assert server.request("DELETE", path).status == 404


def test_any_label_can_be_counted(servers: Starter) -> None:
    """A label comes out of a request: no character of it is too strange for a file or a database."""
    for options in ({}, {"tx": True}):
        server = servers(**options)
        for label in ("o'clock; --", "\0nul", "Ünïcödé \N{SNOWMAN}", ":named %s"):
            assert server.post("/charges", label=label).status == 201
            assert server.effects(label) == 1


def test_a_ledger_numbers_its_lines(tmp_path: Path) -> None:
    """Each line knows how many there were before it, and a label cannot forge a second one."""
    ledger = Ledger(tmp_path / "ledger")
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: ledger.add("a"), range(50)))
    assert sorted(numbers) == list(range(1, 51))
    assert ledger.add("x\na") == 1
    assert ledger.count("a") == 50
    assert ledger.count("x\na") == 1


def test_parts_of_an_upload() -> None:
    """Every byte between the delimiters, line breaks included."""
    body = (
        b"preamble\r\n--b\r\nContent-Disposition: form-data; name=one\r\n\r\n\r\n\x00--b\r\n"
        b'\r\n--b\r\nContent-Disposition: form-data; name="two"; filename="f"\r\n\r\n\r\n--b--\r\nepilogue'
    )
    parts = [("one", b"\r\n\x00--b\r\n"), ("two", b"")]
    assert parts_of('multipart/form-data; boundary="b"', body) == parts
    assert parts_of("text/plain", body) == []
