"""Batches, growth, purge and overload: each runs, and counts what did happen."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import batches, database, goals, records
from benchmarks.database import Kind, MariaDB, PostgreSQL, Valkey
from benchmarks.growth import Growth, Pair, available
from benchmarks.overload import Level, Overload, Size
from benchmarks.records import Place
from retrysafe import stores
from retrysafe._core.model import Found, Reserved
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from tests.servers import missing
from tests.tools.benchmarks.test_bench import ROOT, run
from tests.tools.benchmarks.test_bench import pytestmark as needs_linux

pytestmark = needs_linux


@pytest.fixture(params=goals.STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A store, in the server that all tests share."""
    match request.param:
        case "SQLite":
            yield Place.new("SQLite", tmp_path / "store", None)
        case "PostgreSQL":
            yield Place("PostgreSQL", tmp_path, request.getfixturevalue("database"))
        case "MariaDB":
            server: MariaDBServer = request.getfixturevalue("mariadb")
            yield (made := Place.new("MariaDB", tmp_path / "store", MariaDB(server)))
            server.drop_database(made.url)
        case _:
            yield Place.new("Valkey", tmp_path / "store", Valkey(request.getfixturevalue("valkey")))


def measured(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    file = tmp_path / "figures.json"
    ended = run(*arguments, "--quick", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(file.read_text(encoding="utf-8")), ended.stdout


def test_batches(tmp_path: Path) -> None:
    """Every store, with one connection and with many: what it puts into a commit, and its server's time."""
    document, printed = measured(tmp_path, "batches")
    [indexed] = [one for one in document["batches"] if one["indexes"]]
    found = {(one["store"], one["connections"]): one for one in document["batches"] if not one["indexes"]}
    assert found.keys() == {(store, level) for store in available() for level in (1, 32)}
    # A lone key is reserved and completed in a commit each; several share one.
    assert found["SQLite", 1]["operations_per_commit"] == pytest.approx(1, abs=0.15)
    assert found["SQLite", 32]["operations_per_commit"] > 1.5
    for (store, level), one in found.items():
        if store != "SQLite":
            assert min(one["commits"], one["log_bytes"], one["database_cpu"], one["opened"]) > 0, store
            assert (one["flushes"] is None) is (store == "Valkey")
            assert one["operations_per_commit"] > (1.5 if level > 1 else 0.5), store
    assert (indexed["store"], indexed["connections"], indexed["indexes"]) == ("PostgreSQL", 32, True)
    assert "PostgreSQL, 32 connections" in printed


def test_growth(tmp_path: Path) -> None:
    """Every store, with as many records as were asked for; figures of so few are not held against goals."""
    document, printed = measured(tmp_path, "growth", "--records", "3000")
    assert [one["store"] for one in document["growth"]] == available()
    for one in document["growth"]:
        assert one["records"] == 3000
        for figure in ("fresh", "replay", "fresh_cpu", "replay_cpu", "memory"):
            assert min(one[figure].values()) > 0, (one["store"], figure)
    assert document["figures"] == {}
    assert "Growth: PostgreSQL, one caller" in printed


def test_purge(tmp_path: Path) -> None:
    """Every store, purged at twice the rate of the traffic, which has no errors."""
    document, printed = measured(tmp_path, "purge", "--records", "3000")
    assert [one["store"] for one in document["purge"]] == available()
    for one in document["purge"]:
        assert one["errors"] == 0
        assert 0 < one["removed"] + one["removed_besides"] <= 3000
        assert one["asked_per_second"] == 2 * one["inserted_per_second"]
    assert document["figures"] == {}
    assert "Purge under load, at 2 times the insert rate" in printed


def test_overload(tmp_path: Path) -> None:
    """Once and twice what a slow PostgreSQL can take, with successes and connections told."""
    document, printed = measured(tmp_path, "overload", "--delay", "0.03")
    found = document["overload"]
    assert found["delay"] == 0.03
    assert found["capacity"] == max(found["search"].values()) > 0
    once, twice = found["levels"]
    assert (once["times"], twice["times"]) == (1, 2)
    assert twice["offered"] == pytest.approx(2 * once["offered"], abs=2)
    for level in (once, twice):
        assert level["succeeded"] + sum(level["failures"].values()) == level["offered"]
        assert level["connections_opened"] > 0
    assert once["succeeded"] > 0
    # A reservation and a completion, each a round trip.
    assert once["p50"] >= 0.06
    assert document["figures"] == {}
    assert "30 ms per round trip" in printed


def test_filled(place: Place) -> None:
    """Bulk rows are records like others: they replay, and expire when they should."""
    records.fill(place, 300)
    store = stores.open(place.url)
    admin = store.open_admin()
    assert admin.statistics().total.records["completed"] == 301
    assert admin.expired() == 0
    known = records.some_ids(place, 30)
    assert len(set(known)) == 30
    for id in known:
        assert isinstance(store.reserve(records.claim(id)), Found)
    assert isinstance(store.reserve(records.claim()), Reserved)
    admin.close()
    store.close()


def test_filled_with_expired_records(place: Place) -> None:
    records.fill(place, 300, expired=True)
    store = stores.open(place.url)
    admin = store.open_admin()
    assert admin.expired() == 300
    assert admin.purge(1000).records == 300
    admin.close()
    store.close()


def test_purge_keeps_its_pace(place: Place) -> None:
    """It removes everything, and takes as long as the rate that was asked for says."""
    records.fill(place, 900, expired=True)
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.purger", place.url, "400", ""],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    assert ended.stdout.splitlines() == ["0", "200", "400", "600", "800", "900"]
    assert time.monotonic() - began >= 2.0


def test_commits_of_sqlite_are_counted(tmp_path: Path) -> None:
    """By the file itself: each reservation and each completion of a lone caller is one."""
    place = Place.new("SQLite", tmp_path / "store", None)
    store = stores.open(place.url)
    for number in range(4):
        claim = records.claim()
        before = batches.sqlite_commits(place) if number else 0
        store.reserve(claim)
        store.finish(claim, records.ANSWER)
        assert number == 0 or batches.sqlite_commits(place) - before == 2
    store.close()


def test_commits_of_postgresql_are_counted(postgres: PostgresServer, database: str) -> None:
    """All that a connection did is there once it is closed."""
    shared = PostgreSQL(postgres)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE marks (mark integer)")
    before = shared.counters(database)
    with psycopg.connect(database, autocommit=True) as connection:
        for mark in range(20):
            connection.execute("INSERT INTO marks VALUES (%s)", [mark], prepare=False)
    after = shared.counters(database)
    assert after.commits - before.commits == 20
    assert after.sessions - before.sessions == 1
    assert after.log_bytes > before.log_bytes


@pytest.mark.parametrize("kind", ["MariaDB", "Valkey"])
def test_commits_of_other_servers_are_counted(kind: Kind) -> None:
    """What a lone caller reserves and finishes is a commit each, and is written to the log."""
    if absent := database.missing(kind):
        missing(f"{', '.join(absent)} is not installed")
    with database.running(kind, None) as shared:
        url = shared.new()
        _keys(url, 2)  # makes the tables
        before = shared.counters(url)
        _keys(url, 20)
        after = shared.counters(url)
    # A connection that is opened says some things more.
    assert 40 <= after.commits - before.commits <= 70
    assert 1 <= after.sessions - before.sessions <= 3
    assert after.log_bytes > before.log_bytes


def _keys(url: str, number: int) -> None:
    store = stores.open(url)
    for _ in range(number):
        claim = records.claim()
        store.reserve(claim)
        store.finish(claim, records.ANSWER)
    store.close()


def test_many_records_of_postgresql_are_five_million() -> None:
    """A goal is about so many records, and not about a million there."""
    pair = Pair(few=1.0, many=1.0)
    for number, judged in ((1_000_000, False), (5_000_000, True)):
        assert bool(Growth("PostgreSQL", 10_000, number, pair, pair, pair, pair, pair).figures()) is judged


def test_goals_of_growth() -> None:
    """A million records are held against the goals, by the ratio of the medians."""
    pair = Pair(few=2.0, many=3.0)
    grown = Growth("SQLite", 10_000, 1_000_000, pair, Pair(1.0, 1.1), pair, pair, Pair(40e6, 41e6))
    assert grown.figures() == {
        "growth, SQLite: times p50 of a fresh key, many records": 1.5,
        "growth, SQLite: times p50 of a replay, many records": pytest.approx(1.1),
        "growth, SQLite: MB of process memory, many records": 1.0,
    }


def test_goal_of_overload() -> None:
    """Goodput at twice the load is held against what the store can take, not against a collapse before it."""
    found = Overload(0.08, Size().seconds, 50.0, 8, {8: 50.0, 16: 50.0}, is_exhausted=True)
    for times, goodput in ((1.0, 10.0), (2.0, 10.0)):
        found.levels.append(Level(times, 1200, 50 * times, 120, goodput, 1.0, 2.0, 363, 0.1, {}))
    assert found.figures() == {"overload: share of the capacity at twice its load": 0.2}
