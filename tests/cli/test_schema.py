"""`retrysafe migrate` and `retrysafe sql`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.records import Shop
from tests.cli.terminal import run, shown


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_migrate(tmp_path: Path) -> None:
    """Makes a new store that the other commands can use; the second time there is nothing to do."""
    path = tmp_path / "keys.db"
    url = f"sqlite:///{path}"
    first, second = run("migrate", store=url), run("migrate", "--json", store=url)
    assert (first.code, second.code) == (0, 0)
    assert "retrysafe_records" in first.out
    assert "nothing to do" in json.loads(second.out)["done"]
    assert run("ls", store=url).code == 0
    assert "Nothing to do" in shown("migrate", store=url).text


def test_migrate_refuses_tables_of_another_version(shop: Shop) -> None:
    """What a newer release made is not touched: exit code 3 and a sentence."""
    shop.finished("completed-key-001")
    shop.close()
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("UPDATE retrysafe_meta SET value = 99 WHERE name = 'schema'")
        connection.commit()
    for command in ("migrate", "ls", "stats", "audit", "purge"):
        done = run(command, store=shop.url)
        assert (done.code, done.out) == (3, ""), command
        assert "version 99" in done.err
        assert "Traceback" not in done.err


def test_sql(tmp_path: Path) -> None:
    """What it prints makes the same tables as migrate does, and needs no store to be printed."""
    done = run("sql", "--dialect", "sqlite")
    assert (done.code, done.err) == (0, "")
    with closing(sqlite3.connect(tmp_path / "by_hand.db")) as connection:
        connection.executescript(done.out)
    run("migrate", store=f"sqlite:///{tmp_path / 'migrated.db'}")
    assert tables(tmp_path / "by_hand.db") == tables(tmp_path / "migrated.db")
    assert run("ls", store=f"sqlite:///{tmp_path / 'by_hand.db'}").code == 0
    assert json.loads(run("sql", "--json").out) == {"dialect": "sqlite", "sql": done.out}
    assert "CREATE TABLE" in shown("sql").text


def test_an_unknown_dialect() -> None:
    """Says which there are."""
    done = run("sql", "--dialect", "oracle")
    assert (done.code, done.out) == (2, "")
    assert "sqlite" in done.err


def test_indexes_on_request(shop: Shop) -> None:
    """By name, once, on tables in use; `ls` finds by them what it found before."""
    shop.finished("completed-key-001")
    done = run("migrate", "--index", "request-id", "--index", "scope", store=shop.url)
    assert (done.code, done.out) == (0, "Created retrysafe_records_request_id, retrysafe_records_scope.\n")
    again = run("migrate", "--index", "scope", store=shop.url)
    assert again.out.startswith("Nothing to do")
    for filters in (["--request-id", "req-7f3a"], ["--scope", "user=42"]):
        assert len(json.loads(run("ls", "--json", *filters, store=shop.url).out)["records"]) == 1
    refused = run("migrate", "--index", "key", store=shop.url)
    assert refused.code == 2
    assert "request-id" in refused.err


def test_sql_after_a_migration() -> None:
    """Only what a database of an earlier release lacks."""
    for dialect in ("sqlite", "postgresql"):
        whole, rest = (run("sql", "--dialect", dialect, "--after", after).out for after in ("0", "1"))
        assert whole.endswith(rest)
        assert "CREATE TABLE IF NOT EXISTS retrysafe_records" not in rest
        assert "ADD COLUMN" in rest
