"""Workers die, sleep and lose their connections in transactional mode, anywhere and at every named place.

A short version of what `python -m tests.crash` does at length.  I14: committed effects are stored answers,
none or one for each key.  I5: what any client was told is what everybody is told.  I11: no key stays stuck.
"""

from pathlib import Path

import pytest

from retrysafe.testing.postgres import PostgresServer
from tests.crash.campaign import Plan, as_text, run, shortfalls


def _survives(plan: Plan, folder: Path) -> None:
    report = run(plan, folder)
    strokes = plan.kills + plan.freezes + plan.cuts
    assert not shortfalls(report, successes=strokes // 2), as_text(report)


def test_kills_on_sqlite(tmp_path: Path) -> None:
    """F1 to F5, I14: SIGKILL before, inside and after every step, and at random."""
    _survives(Plan(f"sqlite:///{tmp_path / 'shop.db'}", "sqlite3", kills=25), tmp_path)


def test_freezes_on_sqlite(tmp_path: Path) -> None:
    """F7, I14: SIGSTOP beyond the lease, and then it goes on.  Whoever sleeps as the only writer is waited
    for."""
    _survives(Plan(f"sqlite:///{tmp_path / 'shop.db'}", "sqlite3", freezes=8), tmp_path)


@pytest.mark.parametrize("way", ["psycopg", "psycopg async"])
def test_kills_on_postgresql(postgres: PostgresServer, tmp_path: Path, way: str) -> None:
    """The same, with handlers in threads and in the event loop."""
    _survives(Plan(postgres.new_database(), way, kills=13), tmp_path)  # type: ignore[arg-type]  # of two


def test_freezes_on_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """F7, F8: a worker that sleeps inside its transaction loses it, and nobody waits for it for ever."""
    _survives(Plan(postgres.new_database(), "psycopg", freezes=8), tmp_path)


@pytest.mark.parametrize("way", ["psycopg", "psycopg async"])
def test_cuts_on_postgresql(postgres: PostgresServer, tmp_path: Path, way: str) -> None:
    """F12, I16: connections are cut before, during and after the completion and the COMMIT."""
    _survives(Plan(postgres.new_database(), way, cuts=12), tmp_path)  # type: ignore[arg-type]  # of two
