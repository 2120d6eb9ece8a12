"""What PostgreSQL makes of the statements: each finds its records by an index."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from retrysafe.stores.sql.migrations import source
from retrysafe.stores.sql.postgresql.wire import known
from retrysafe.testing.postgres import PostgresServer

BY_ID = (
    "reserve take_over look finish finish_late finish_received outcome_is_stored conclude conclude_or_fail "
    "payload checkpoint release release_all renew settled add_deliveries"
).split()

VALUES = {
    **dict.fromkeys(("id", "token", "previous", "fingerprint", "body"), r"'\x01'"),
    "due_in": "NULL",
    "claims": """'[["01", "01", 30, 0], ["02", "02", 30, 0]]'""",
    "deliveries": """'[["01", 1, [0.5]], ["02", 1, [0.5]]]'""",
}


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator["psycopg.Connection[Any]"]:
    """Tables that are empty and were never analysed."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(source("postgresql").encode())
        yield connection
    postgres.drop_database(url)


def plan(connection: "psycopg.Connection[Any]", mode: str, name: str, **given: str) -> str:
    statement = known()[name]
    chosen = {**VALUES, **given}
    values = ", ".join(chosen.get(argument, "'1'") for argument in statement.arguments)
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute("DEALLOCATE ALL")
        connection.execute(f"PREPARE {name}_{mode} AS ".encode() + statement.text)
        lines = connection.execute(f"EXPLAIN EXECUTE {name}_{mode}({values})".encode()).fetchall()
    return "\n".join(line for (line,) in lines)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("name", BY_ID)
def test_a_record_is_found_by_its_id(connection: "psycopg.Connection[Any]", name: str, mode: str) -> None:
    """Even in a table of which the planner knows nothing, with arguments known or not."""
    found = plan(connection, mode, name)
    assert re.search("Index (Only )?Scan using retrysafe_records_pkey", found)
    assert "Seq Scan on retrysafe" not in found


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [False, True])
def test_a_replay_is_one_lookup_and_writes_nothing(
    connection: "psycopg.Connection[Any]", mode: str, analysed: bool
) -> None:
    """It finds the record by its id and inserts nothing; a fresh key takes the same lookup and an insert,
    which looks for a conflict once more."""
    statement = known()["reserve"]
    with connection.transaction(force_rollback=True):
        connection.execute(_MANY)
        if analysed:
            connection.execute("ANALYZE retrysafe_records")
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute("DEALLOCATE ALL")
        connection.execute(b"PREPARE reserve AS " + statement.text)
        for id, inserted in (("sha256('7')", 0), ("sha256('a new one')", 1)):
            chosen = {**VALUES, "id": id}
            values = ", ".join(chosen.get(argument, "'1'") for argument in statement.arguments)
            before = _activity(connection)
            [(attempt, *record)] = connection.execute(f"EXECUTE reserve({values})".encode()).fetchall()
            assert (attempt, record[0]) == ((1, None) if inserted else (None, 1))
            done = [now - then for now, then in zip(_activity(connection), before, strict=True)]
            assert done == [0, 1 + inserted, inserted, 0], "scans of the table, of an index, inserts, updates"


def _activity(connection: "psycopg.Connection[Any]") -> "tuple[int, ...]":
    found: tuple[int, ...] | None = connection.execute(
        "SELECT seq_scan, idx_scan, n_tup_ins, n_tup_upd FROM pg_stat_xact_user_tables"
        " WHERE relname = 'retrysafe_records'"
    ).fetchone()
    assert found is not None
    return found


def test_a_replay_takes_no_lock(database: str) -> None:
    """The server gives a transaction its number with the first row that it writes or locks."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(source("postgresql").encode())
        connection.execute(_MANY)
        statement = known()["reserve"]
        connection.execute(b"PREPARE reserve AS " + statement.text)
        for id, writes in (("sha256('7')", False), ("sha256('a new one')", True)):
            chosen = {**VALUES, "id": id}
            values = ", ".join(chosen.get(argument, "'1'") for argument in statement.arguments)
            with connection.transaction():
                connection.execute(f"EXECUTE reserve({values})".encode())
                number = connection.execute("SELECT txid_current_if_assigned()").fetchone()
            assert (number != (None,)) is writes


def test_a_column_more_needs_no_counting(connection: "psycopg.Connection[Any]") -> None:
    """`reserve` says both results with one list of columns, that of the record which it finds."""
    statement = known()["reserve"]
    wider = statement.text.replace(b"SELECT record.version,", b"SELECT 42, record.version,")
    assert wider != statement.text
    connection.execute(b"PREPARE wider AS " + wider)
    connection.execute("DEALLOCATE wider")


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [False, True])
def test_what_has_expired_is_found_by_its_expiry(
    connection: "psycopg.Connection[Any]", mode: str, analysed: bool
) -> None:
    """As soon as there are more than a handful of pages, which are as quickly read through.  Once the table
    was analysed, in the order of the index, so that a limit ends the search; and what was found is removed
    where it stands."""
    with connection.transaction(force_rollback=True):
        connection.execute(_MANY)
        if analysed:
            connection.execute("ANALYZE retrysafe_records")
        found = plan(connection, mode, "purge", door="NULL")  # as services do
    assert "retrysafe_records_expires_at" in found
    assert "Tid Scan" in found
    assert "Seq Scan" not in found
    assert "Sort" not in found or not analysed


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_what_is_due_is_found_by_its_time(connection: "psycopg.Connection[Any]", mode: str) -> None:
    """Of all callbacks, only those that wait for a worker are looked at."""
    with connection.transaction(force_rollback=True):
        connection.execute(_MANY)
        connection.execute("UPDATE retrysafe_records SET door = 'callback'")
        connection.execute(
            "UPDATE retrysafe_records SET due_at = now() "
            "WHERE id IN (SELECT id FROM retrysafe_records LIMIT 9)"
        )
        connection.execute("ANALYZE retrysafe_records")
        found = plan(connection, mode, "due")
    assert "retrysafe_records_due_at" in found
    assert "Seq Scan" not in found


def test_finishing_touches_no_index(connection: "psycopg.Connection[Any]") -> None:
    """A finished record stays on its page, in time as well as in a transaction of the caller's own."""
    with connection.transaction(force_rollback=True):
        connection.execute(_MANY)
        before = _updates(connection)
        for number, name in enumerate(("finish", "conclude", "conclude_or_fail"), 7):
            statement = known()[name]
            statement_name = f"hot_{name}"
            connection.execute(f"PREPARE {statement_name} AS ".encode() + statement.text)
            chosen = {**VALUES, "id": f"sha256('{number}')", "state": "'completed'"}
            values = ", ".join(chosen.get(argument, "'1'") for argument in statement.arguments)
            assert connection.execute(f"EXECUTE {statement_name}({values})".encode()).rowcount == 1
        done = [now - then for now, then in zip(_updates(connection), before, strict=True)]
    assert done == [3, 3]


def _updates(connection: "psycopg.Connection[Any]") -> "tuple[int, ...]":
    found: tuple[int, ...] | None = connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'retrysafe_records'"
    ).fetchone()
    assert found is not None
    return found


_MANY = """
    INSERT INTO retrysafe_records
    SELECT
        sha256(CAST(CAST(n AS text) AS bytea)), 1, '\\x01', '\\x02', 'in_progress', 'lease', 1, now(), 0,
        'request', '[]', 'key', 'POST', '/orders', 'request', NULL, now(), now(), NULL,
        now() + interval '1 day', now(), NULL, NULL, NULL, 0
    FROM generate_series(1, 3000) AS n
"""
