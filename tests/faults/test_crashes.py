"""Workers die, sleep and lose their connections, anywhere and at every named place; so does the server.

A short version of what `python -m tools.crash` does at length, in all three modes.  I13, I14 and
I15: how often an effect happens.  I5, I1: what any client was told is what everybody is told, and is stored.
I6: what the clients of a key saw is linearizable.  I11: no key stays stuck.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from tools.crash.faults import WHILE_FLOWING
from tools.crash.mariadb import MariaDB
from tools.crash.modes import Mode
from tools.crash.postgresql import PostgreSQL
from tools.crash.run import Options, execute
from tools.crash.sqlite import SQLite
from tools.crash.targets import Target
from tools.crash.valkey import Valkey

SHARES: list[tuple[Mode, int, int]] = [("tx", 10, 4), ("hold", 10, 3), ("retry", 10, 3)]
"""Kills and freezes: thirty and ten for each store."""


def _survives(options: Options, target: Target, folder: Path) -> Mapping[str, Any]:
    outcome = execute(options, target, folder)
    assert outcome.counts["kills"] >= options.kills
    assert outcome.counts["freezes"] >= options.freezes
    assert outcome.counts["cuts"] >= options.cuts
    assert outcome.counts["server kills"] >= options.server_kills
    assert outcome.counts["outages"] >= options.outages
    assert not outcome.violations, outcome
    return outcome.counts


@pytest.mark.parametrize(("mode", "kills", "freezes"), SHARES)
def test_kills_and_freezes_on_sqlite(tmp_path: Path, mode: Mode, kills: int, freezes: int) -> None:
    """F1 to F5, F7: SIGKILL before, inside and after every step, and at random; SIGSTOP beyond the lease, and
    then it goes on.  Whoever sleeps as the only writer is waited for."""
    options = Options("sqlite", (mode,), ("sqlite3",), kills=kills, freezes=freezes)
    _survives(options, SQLite(tmp_path), tmp_path)


@pytest.mark.parametrize(("mode", "kills", "freezes"), SHARES)
def test_kills_and_freezes_on_postgresql(
    postgres: PostgresServer, tmp_path: Path, mode: Mode, kills: int, freezes: int
) -> None:
    """F1 to F5, F7, F8: a worker that sleeps inside its transaction loses it, and nobody waits for it for
    ever."""
    way = "psycopg async" if mode == "retry" else "psycopg"
    options = Options("postgresql", (mode,), (way,), kills=kills, freezes=freezes)
    _survives(options, PostgreSQL(tmp_path, postgres), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("mode", "kills", "freezes"), SHARES)
def test_kills_and_freezes_on_mariadb(
    mariadb: MariaDBServer, tmp_path: Path, mode: Mode, kills: int, freezes: int
) -> None:
    """The same; test_kill.py, test_freeze.py and test_frozen_inside.py have a sample of it."""
    way = "sqlalchemy async" if mode == "retry" else "pymysql"
    options = Options("mariadb", (mode,), (way,), kills=kills, freezes=freezes)
    _survives(options, MariaDB(tmp_path, mariadb), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("mode", "way"), [("hold", "redis"), ("retry", "redis async")])
def test_kills_and_freezes_on_valkey(tmp_path: Path, mode: Mode, way: str) -> None:
    """F1 to F5, F7: in the modes that it has."""
    options = Options("valkey", (mode,), (way,), kills=10, freezes=3)
    with closing(Valkey(tmp_path)) as target:
        _survives(options, target, tmp_path)


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        ("nested", "sqlite3"),
        pytest.param("nested", "sqlalchemy async", marks=pytest.mark.full),
        pytest.param("tx", "sqlalchemy", marks=pytest.mark.full),
        pytest.param("hold", "sqlalchemy async", marks=pytest.mark.full),
        pytest.param("retry", "sqlite3", marks=pytest.mark.full),
    ],
)
def test_operations_on_sqlite(tmp_path: Path, mode: Mode, way: str) -> None:
    """The same where workers call operations.  One that is a part of another's transaction is committed with
    it, and its effect happens once if two share it."""
    options = Options("sqlite", (mode,), (way,), kills=6, freezes=2, door="operation")
    _survives(options, SQLite(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        ("nested", "psycopg async"),
        pytest.param("nested", "sqlalchemy", marks=pytest.mark.full),
        pytest.param("tx", "psycopg", marks=pytest.mark.full),
        pytest.param("hold", "psycopg", marks=pytest.mark.full),
        pytest.param("retry", "psycopg async", marks=pytest.mark.full),
    ],
)
def test_operations_on_postgresql(postgres: PostgresServer, tmp_path: Path, mode: Mode, way: str) -> None:
    """There, one that finds its record being written by another transaction waits for that, and is undone."""
    options = Options("postgresql", (mode,), (way,), kills=6, freezes=2, door="operation")
    _survives(options, PostgreSQL(tmp_path, postgres), tmp_path)


def test_outages_on_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """The database is out of reach beyond the lease while a large response flows: no client gets the end of a
    response that is not stored, so none that has arrived whole is of unknown outcome to its retry."""
    options = Options("postgresql", ("hold",), ("psycopg async",), outages=2)
    counts = _survives(options, PostgreSQL(tmp_path, postgres), tmp_path)
    assert counts["places"][WHILE_FLOWING] >= 1
    assert counts["verdicts"]["broken off"] >= 1


@pytest.mark.parametrize("way", ["psycopg", "psycopg async"])
def test_cuts_on_postgresql(postgres: PostgresServer, tmp_path: Path, way: str) -> None:
    """F12, I16: connections are cut before, during and after the completion and the COMMIT."""
    options = Options("postgresql", ("tx",), (way,), cuts=12)
    _survives(options, PostgreSQL(tmp_path, postgres), tmp_path)


def test_cuts_excuse_whoever_felt_them(postgres: PostgresServer, tmp_path: Path) -> None:
    """I15: and only for what that worker was at; the executions of the others are held to account."""
    options = Options("postgresql", ("retry",), ("psycopg",), cuts=6)
    for attempt in range(5):  # on a machine that is slow enough, every worker is cut whenever one is
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if _survives(options, PostgreSQL(folder, postgres), folder)["executions without excuse"]:
            return
    pytest.fail("no execution was without an excuse")


def test_server_kills_on_postgresql(tmp_path: Path) -> None:
    """F15: the server is killed and started again, under load.  Everything that anybody was told is still
    there, and the fleet serves again by itself."""
    with PostgresServer() as server:
        options = Options("postgresql", ("tx",), ("psycopg",), server_kills=2)
        _survives(options, PostgreSQL(tmp_path, server), tmp_path)


@pytest.mark.full
def test_server_kills_on_mariadb(tmp_path: Path) -> None:
    """F15 there."""
    with closing(MariaDB(tmp_path)) as target:
        _survives(Options("mariadb", ("tx",), ("pymysql",), server_kills=2), target, tmp_path)


@pytest.mark.full
def test_server_kills_on_valkey(tmp_path: Path) -> None:
    """F15 there, with every write on the disk before it is acknowledged."""
    with closing(Valkey(tmp_path)) as target:
        _survives(Options("valkey", ("hold",), ("redis",), server_kills=2), target, tmp_path)
