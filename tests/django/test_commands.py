"""The management commands: what a scheduler runs, what a team reads, and the command line in a project."""

import importlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from retrysafe._core import keys
from retrysafe._core.model import Claim, Door, Final, Response
from retrysafe.cli.format import plural
from retrysafe.coverage import exempt
from retrysafe.django import guard, idempotent
from retrysafe.django.models import Record, RouteCount, Verdict
from tests.cli.records import Shop

runs: list[str] = []


@idempotent
def order(request: HttpRequest, pk: int) -> HttpResponse:
    runs.append("order")
    return HttpResponse(f"order {len(runs)}", status=201)


def refund(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.method == "POST")


@exempt("a second login does no harm")
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("welcome")


urlpatterns = [path("orders/<int:pk>/", order), path("refunds/", refund), path("login/", login)]


class Ended(NamedTuple):
    out: str
    err: str
    code: int


def run(*arguments: str, **options: Any) -> Ended:
    """A command in this process, and the exit code that it would end with."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err, **options)
    except CommandError as error:
        return Ended(out.getvalue(), f"{err.getvalue()}{error}", error.returncode)
    return Ended(out.getvalue(), err.getvalue(), 0)


def claim(key: str, door: Door = "request", *, retention: float = 0.0) -> Claim:
    """A record of nobody's: its lease has ended, and by default its retention too."""
    found = Claim(
        id=keys.digest(door, (("user", "alice"),), key),
        token=os.urandom(16),
        fingerprint=sha256(b"what was asked").digest(),
        lease=0.0,
        retention=retention,
        hold=0.0,
        door=door,
        scope=(("user", "alice"),),
        key=key,
        action="POST" if door == "request" else "jobs",
        target="/orders/1/",
        request_id="req-1",
        correlation_id=None,
    )
    guard().store.reserve(found)
    return found


def expire(number: int, door: Door = "request", prefix: str = "expired") -> None:
    """So many completed records that have expired."""
    for one in range(number):
        done = claim(f"{prefix}-{door}-{one:06}", door)
        assert guard().store.finish(done, Final("completed", Response(201)))


def doors() -> list[str]:
    return sorted(Record.objects.values_list("door", flat=True))


def test_each_cleanup_removes_what_is_its_own(each_database: str) -> None:
    """Keys of requests and operations by one command, receipts of callbacks by the other; the rest stays."""
    for door in ("request", "operation", "callback"):
        expire(2, door)
        guard().store.finish(
            claim(f"valid-{door}-0001", door, retention=3600), Final("completed", Response(201))
        )
    assert run("cleanup_idempotency_keys", "--dry-run") == Ended(
        "4 expired keys; 4 would be removed.\n", "", 0
    )
    assert run("cleanup_idempotency_keys") == Ended("Removed 4 expired keys; 0 left.\n", "", 0)
    assert doors() == ["callback"] * 3 + ["operation", "request"]
    assert run("cleanup_callback_receipts") == Ended("Removed 2 expired receipts; 0 left.\n", "", 0)
    assert doors() == ["callback", "operation", "request"]


def test_limit_and_batch() -> None:
    """No more than asked for, of all doors together, in batches of any size; nothing is said where asked."""
    expire(3)
    expire(3, "operation")
    assert run("cleanup_idempotency_keys", "--dry-run", "--limit", "4").out.endswith(
        "; 4 would be removed.\n"
    )
    done = run("cleanup_idempotency_keys", "--limit", "4", "--batch", "2")
    assert done.out == "Removed 4 expired keys; 2 left.\n"
    assert run("cleanup_idempotency_keys", verbosity=0) == Ended("", "", 0)
    assert doors() == []
    assert run("cleanup_idempotency_keys", "--limit", "none").code == 1  # as argparse has it in a call


def test_an_unknown_outcome_does_not_disappear_unnoticed() -> None:
    """It is named on stderr; a scheduler that is to take notice of it is given 1."""
    lost = claim("lost-key-00000001")
    done = run("cleanup_idempotency_keys")
    assert (done.code, done.out) == (0, "Removed 1 expired key; 0 left.\n")
    assert "1 abandoned record expired unresolved" in done.err
    assert lost.id.hex()[:8] in done.err
    assert "req-1" in done.err
    claim("lost-key-00000002")
    assert run("cleanup_idempotency_keys", "--fail-unresolved").code == 1
    assert doors() == []


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    """No tables: 3, and what to do. Settings that cannot be read: 2."""
    with override_settings(RETRYSAFE={"STORE": f"sqlite:///{tmp_path}/missing/keys.db"}):
        done = run("cleanup_idempotency_keys")
    assert (done.code, done.out) == (3, "")
    assert "the store cannot be used" in done.err
    with override_settings(RETRYSAFE={"STORE": "sqlite:///keys.db", "DATABSE": "default"}):
        done = run("cleanup_callback_receipts")
    assert done.code == 2
    assert "did you mean 'DATABASE'" in done.err


def test_another_database() -> None:
    """By its alias; one that is none, or beside a store that is not Django's, is wrong usage."""
    expire(2)
    # Its tables are there, but migrations of retrysafe are applied to the one of the settings.
    assert run("cleanup_idempotency_keys", "--database", "second").code == 3
    assert run("cleanup_idempotency_keys", "--database", "default").out.startswith("Removed 2 ")
    assert run("cleanup_idempotency_keys", "--database", "third").code == 2
    with override_settings(RETRYSAFE={"STORE": "sqlite:///keys.db"}):
        assert "leave one of them out" in run("idempotency_stats", "--database", "default").err


def test_progress_on_a_terminal() -> None:
    """One line that is written over, where somebody sees it, and nothing in a log."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    expire(4)
    err = Terminal()
    call_command("cleanup_idempotency_keys", "--batch", "2", stdout=io.StringIO(), stderr=err, no_color=True)
    assert "\r2 of 4 removed\r4 of 4 removed\r" in err.getvalue()
    assert not err.getvalue().endswith("\n")


def test_cleanups_at_once(each_database: str) -> None:
    """Several remove each record once, and requests are served meanwhile."""
    expire(300)

    def clean(_: int) -> int:
        words = run("cleanup_idempotency_keys", "--batch", "10").out.split()
        return int(words[1])

    with override_settings(ROOT_URLCONF=__name__), ThreadPoolExecutor(4) as threads:
        cleanups = [threads.submit(clean, number) for number in range(3)]
        served = [
            Client(headers={"Authorization": "Bearer alice"}).post(
                "/orders/1/", headers={"Idempotency-Key": f"during-cleanup-{number:04}"}
            )
            for number in range(20)
        ]
        assert sum(one.result() for one in cleanups) == 300
    assert {response.status_code for response in served} == {201}
    assert Record.objects.count() == 20


# --- statistics


def test_the_share_of_calls_without_a_key(client: Client) -> None:
    """Of each route, so that a team knows where keys can be required."""
    for counted in (RouteCount, Verdict):
        counted.objects.all().delete()  # of other tests
    key = {"Idempotency-Key": "with-a-key-000001"}
    assert client.post("/orders/1/", headers=key).status_code == 201
    assert client.post("/orders/1/", headers=key).status_code == 201
    for _ in range(3):
        assert client.post("/orders/2/").status_code == 201
    guard().close()  # which writes its counts
    found = json.loads(run("idempotency_stats", "--json").out)
    (place,) = [one for one in found["calls"] if one["route"] == "/orders/{pk}/"]
    assert (place["without_key"], place["counted"], place["duplicates"]) == (3, 5, 1)
    assert place["share_without_key"] == 0.6
    text = run("idempotency_stats").out
    (line,) = [line for line in text.splitlines() if line.startswith("/orders/{pk}/")]
    assert line.split()[1:4] == ["5", "3", "60.0%"]
    assert run("idempotency_stats", "--groups", "0").out.count("/orders/") == 0


def test_statistics_of_nothing() -> None:
    """An empty store is no error."""
    found = run("idempotency_stats")
    assert found.code == 0
    assert "in progress  0" in found.out


# --- routes


def test_routes(client: Client) -> None:
    """Protected, exempt and not; with an exit code for CI."""
    found = run("idempotency_routes")
    assert found.code == 0
    assert found.out.splitlines()[1].split()[:3] == ["POST", "/refunds/", "unprotected"]
    assert "a second login does no harm" in found.out
    assert "settings.RETRYSAFE" in run("idempotency_routes", "--json").out
    failed = run("idempotency_routes", "--fail-unprotected")
    assert failed.code == 1
    assert "1 mutating route is not protected: POST /refunds/" in failed.err
    assert run("idempotency_routes", "--fail-unprotected", "--except", "/refunds/").code == 0
    with override_settings(RETRYSAFE={"EXEMPT": ["POST /refunds/"]}):
        assert run("idempotency_routes", "--fail-unprotected").code == 0
    with override_settings(RETRYSAFE={"EXEMPT": ["/gone/"]}):
        assert "'/gone/' exempts no route" in run("idempotency_routes", "--fail-unprotected").err
    document = json.loads(run("idempotency_routes", "--json").out)
    assert [route["state"] for route in document["routes"]] == ["optional"] * 4 + ["unprotected", "exempt"]
    assert document["ok"] is False


# --- the command line


def test_the_command_line_on_the_projects_store(client: Client) -> None:
    """No `--store`; what it advises is what can be typed there; tables are Django's business."""
    lost = claim("lost-key-00000001", retention=3600)
    (record,) = json.loads(run("retrysafe", "ls", "--json").out)["records"]
    assert record["id"] == lost.id.hex()
    shown = json.loads(run("retrysafe", "show", record["id"][:8], "--json").out)
    assert shown["commands"][-1].startswith(f"python manage.py retrysafe release {record['id'][:8]} ")
    assert run("retrysafe", "release", record["id"][:8], "--reason", "nothing was done", "--yes").code == 0
    assert Record.objects.count() == 0
    for words, advice in ((("migrate",), "manage.py migrate"), (("sql",), "manage.py sqlmigrate")):
        refused = run("retrysafe", *words)
        assert refused.code == 2
        assert advice in refused.err
    assert run("retrysafe", "ls", "--store", "memory:").code == 2
    routes = json.loads(run("retrysafe", "routes", "--json").out)["routes"]
    assert {route["path"] for route in routes} == {"/orders/{pk}/", "/refunds/", "/login/"}
    assert "Idempotency-Key" in run("retrysafe", "skill").out


def test_another_store_can_be_migrated(tmp_path: Path) -> None:
    """Where the records are in no database of Django's, the command line makes the tables."""
    with override_settings(RETRYSAFE={"STORE": f"sqlite:///{tmp_path}/keys.db"}):
        assert run("retrysafe", "migrate").code == 0
        assert run("retrysafe", "ls").code == 0
    assert (tmp_path / "keys.db").exists()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    """The command line says what to install; the other commands need none of it."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("typer", "rich") or name.startswith(
            ("retrysafe.cli", "retrysafe.django.management")
        ):
            monkeypatch.delitem(sys.modules, name)

    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name.split(".")[0] in ("typer", "rich"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    refused = run("retrysafe", "ls")
    assert refused.code == 1
    assert "pip install 'retrysafe[cli]'" in refused.err
    for name in (
        "cleanup_idempotency_keys",
        "cleanup_callback_receipts",
        "idempotency_stats",
        "idempotency_routes",
    ):
        importlib.import_module(f"retrysafe.django.management.commands.{name}")
        assert run(name).code == 0


# --- as processes


_MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "shop_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

_SETTINGS = """
SECRET_KEY = "of tests alone"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "retrysafe.django"]
MIDDLEWARE = ["django.contrib.auth.middleware.AuthenticationMiddleware", "retrysafe.django.Middleware"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {path!r}}}}}
ROOT_URLCONF = "shop_urls"
USE_TZ = True
"""

_URLS = """
from django.http import HttpResponse
from django.urls import path

def refund(request):
    return HttpResponse(request.POST["amount"])

urlpatterns = [path("refunds/", refund)]
"""


class Project:
    """A project in a folder, whose `manage.py` is run as a scheduler runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "shop.db"
        (folder / "manage.py").write_text(_MANAGE)
        (folder / "shop_settings.py").write_text(_SETTINGS.format(path=str(self.database)))
        (folder / "shop_urls.py").write_text(_URLS)
        self._environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ},
            "LC_ALL": "C.UTF-8",
            # Not asked: the project says where its store is.
            "RETRYSAFE_STORE": "sqlite:////nowhere/keys.db",
        }

    def manage(self, *arguments: str) -> Ended:
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ended(done.stdout, done.stderr, done.returncode)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "manage.py", *arguments]


@pytest.fixture
def shop_project(tmp_path: Path) -> Project:
    found = Project(tmp_path)
    assert found.manage("migrate", "--verbosity", "0").code == 0
    return found


def test_exit_codes_of_processes(tmp_path: Path) -> None:
    """0, 1, 2 and 3, as documented; the store is the project's, whatever the environment says."""
    project = Project(tmp_path)
    unmade = project.manage("cleanup_idempotency_keys")
    assert unmade.code == 3, unmade
    assert "migrate" in unmade.err
    assert project.manage("migrate", "--verbosity", "0") == Ended("", "", 0)
    assert project.manage("cleanup_idempotency_keys").code == 0
    assert project.manage("cleanup_idempotency_keys", "--limit", "0").code == 2
    assert project.manage("idempotency_routes", "--fail-unprotected").code == 1
    assert project.manage("retrysafe", "ls", "--settings=shop_settings").code == 0
    assert project.manage("retrysafe", "show", "unknown-key-0001").code == 1
    assert "Usage: python manage.py retrysafe" in project.manage("retrysafe", "--help").out
    assert project.manage("retrysafe", "lss").code == 2
    sql = project.manage("sqlmigrate", "retrysafe", "0001").out
    assert "CREATE TABLE IF NOT EXISTS retrysafe_records" in sql


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def full_shop(shop_project: Project) -> Iterator[Shop]:
    shop = Shop(shop_project.database)
    shop.expired(1)
    # Copies, because each reservation is a commit of its own.
    with closing(sqlite3.connect(shop_project.database)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(retrysafe_records)")][1:]
        database.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1999) "
            f"INSERT INTO retrysafe_records (id, {', '.join(columns)}) "
            f"SELECT randomblob(32), {', '.join(columns)} FROM retrysafe_records, n"
        )
    yield shop
    shop.close()


def test_a_killed_cleanup(shop_project: Project, full_shop: Shop) -> None:
    """What it had removed is removed, the rest is as it was, and the next run finishes."""
    admin = full_shop.store.open_admin()
    cleanup = shop_project.start("cleanup_idempotency_keys", "--batch", "1")
    try:
        full_shop.at(0)
        _until(lambda: admin.expired() < 2000)
    finally:
        cleanup.send_signal(signal.SIGKILL)
        cleanup.communicate()
    left = admin.expired()
    assert 0 < left < 2000
    assert [one.found for one in admin.diagnose() if one.check == "integrity"] == [
        "PRAGMA quick_check found no damage"
    ]
    assert shop_project.manage("cleanup_idempotency_keys").out == f"Removed {left:,} expired keys; 0 left.\n"
    admin.close()


def test_an_interrupted_cleanup(shop_project: Project, full_shop: Shop) -> None:
    """Ctrl-C ends it after the batch, says how far it came, and is not a success."""
    admin = full_shop.store.open_admin()
    cleanup = shop_project.start("cleanup_idempotency_keys", "--batch", "1")
    full_shop.at(0)
    _until(lambda: admin.expired() < 2000)
    cleanup.send_signal(signal.SIGINT)
    out, _ = cleanup.communicate(timeout=60)
    assert cleanup.returncode == 130
    left = admin.expired()
    assert 0 < left < 2000
    assert out == f"Removed {plural(2000 - left, 'expired key')}; {left:,} left.\n"
    admin.close()
