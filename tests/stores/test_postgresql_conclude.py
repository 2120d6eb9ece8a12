"""Keeping an outcome in a transaction of the caller's own, on PostgreSQL."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from retrysafe._core.model import Claim, Final, Inbox, Reserved
from retrysafe.stores.admin import Query
from retrysafe.stores.queue import Arguments, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.postgresql.wire import BINARY, Statement
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import A_FAILURE, the_record
from tests.stores.rows import PATIENT, Rows

Connection = psycopg.Connection[Any]


@pytest.fixture
def rows(database: str) -> Iterator[Rows]:
    rows = Rows(database)
    yield rows
    rows.close()


@pytest.fixture
def store(rows: Rows) -> Iterator[PostgresStore]:
    store = PostgresStore(rows.url, deadline=PATIENT)
    yield store
    store.close()


@pytest.fixture
def caller(rows: Rows) -> Iterator[Connection]:
    """A connection of the application's, in a transaction."""
    connection = psycopg.connect(rows.url)
    connection.execute("SELECT 1")
    yield connection
    connection.close()


def concluded(store: PostgresStore, caller: Connection, claim: Claim, final: Final | None = None) -> bool:
    def execute(sql: str, arguments: Arguments) -> Sequence[Row]:
        return caller.execute(re.sub(r":(\w+)", r"%(\1)s", sql).encode(), arguments).fetchall()

    return store.joint.perform(operations.conclude(claim, final or an_outcome()), execute)


def reserved(store: PostgresStore, **more: object) -> Claim:
    claim = a_claim()._replace(mode="tx", **more)  # type: ignore[arg-type]
    assert store.reserve(claim) == Reserved(1)
    return claim


def settings(caller: Connection) -> list[str]:
    names = ("lock_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
    return [caller.execute(f"SHOW {name}".encode()).fetchone()[0] for name in names]  # type: ignore[index]


def test_it_comes_with_the_commit(store: PostgresStore, caller: Connection) -> None:
    """Nobody sees it before, and a rollback takes it back."""
    claim = reserved(store)
    assert concluded(store, caller, claim) is True
    assert the_record(store, claim).state == "in_progress"
    caller.rollback()
    assert the_record(store, claim).state == "in_progress"
    assert concluded(store, caller, claim) is True
    caller.commit()
    record = the_record(store, claim)
    assert (record.state, record.mode, record.response) == ("completed", "tx", an_outcome().response)


def test_whoever_was_overtaken_is_told(store: PostgresStore, caller: Connection, rows: Rows) -> None:
    """In time for a rollback; and so is whoever has finished before."""
    claim = reserved(store)
    rows.elapse(31.0)
    successor = a_claim()
    assert store.take_over(successor, claim.token, "in_progress") == Reserved(2)
    assert concluded(store, caller, claim) is False
    assert concluded(store, caller, successor) is True
    assert concluded(store, caller, successor) is False


def test_a_successor_that_was_quicker(store: PostgresStore, caller: Connection, rows: Rows) -> None:
    """It takes over while we wait for its row: the fence is looked at again, when the row is ours."""
    claim = reserved(store)
    rows.elapse(31.0)
    answers: list[bool] = []
    with psycopg.connect(rows.url) as successor:
        successor.execute("UPDATE retrysafe_records SET token = 'another'")
        waiting = threading.Thread(target=lambda: answers.append(concluded(store, caller, claim)))
        waiting.start()
        _until(lambda: rows.execute(_WAITING) == [(1,)])
        successor.commit()
        waiting.join()
    assert answers == [False]


def test_a_late_one_is_kept_for_its_retention(store: PostgresStore, caller: Connection, rows: Rows) -> None:
    """With one statement; and one in time leaves the expiry alone."""
    claim = reserved(store)
    before = the_record(store, claim)
    assert concluded(store, caller, claim) is True
    caller.rollback()
    rows.elapse(10.0)
    assert concluded(store, caller, claim) is True
    caller.commit()
    assert the_record(store, claim).expires_at == before.expires_at
    late = a_claim("late")
    store.reserve(late)
    rows.elapse(3700.0)
    assert concluded(store, caller, late) is True
    caller.commit()
    record = the_record(store, late)
    assert record.completed_at is not None
    assert abs(record.expires_at - record.completed_at - 3600.0) < 0.001


def test_it_ends_the_wait_of_a_payload(store: PostgresStore, caller: Connection, rows: Rows) -> None:
    """With the commit: no worker handles again what was handled, and a rollback leaves it due."""
    claim = reserved(store, door="callback", action="orders", inbox=Inbox(b"\n1", 60.0))
    with closing(store.open_admin()) as admin:
        for end in (caller.rollback, caller.commit):
            assert concluded(store, caller, claim) is True
            end()
            rows.elapse(31.0)
            assert [due.payload for due in admin.due("orders")] == []
            [seen] = admin.list(Query())
            assert (seen.due_at is None) is (end == caller.commit)
        again = a_claim("again")._replace(door="callback", action="orders", inbox=Inbox(b"\n2", None))
        store.reserve(again)
        assert concluded(store, caller, again, A_FAILURE._replace(due_in=5.0)) is True
        caller.commit()
        rows.elapse(5.0)
        assert [due.payload for due in admin.due("orders")] == [b"\n2"]


def test_its_end_must_come(store: PostgresStore, caller: Connection) -> None:
    """From then on, and to the end of the transaction, nothing waits for longer than the lease."""
    claim = reserved(store, lease=2.5)
    caller.rollback()
    assert settings(caller) == ["0", "0", "on"]
    concluded(store, caller, claim)
    assert settings(caller) == ["2500ms", "2500ms", "on"]
    caller.rollback()
    assert settings(caller) == ["0", "0", "on"]


def test_what_was_shorter_stays_shorter(store: PostgresStore, caller: Connection) -> None:
    """Whoever has chosen bounds of his own keeps them; and an answer is durable, whatever was chosen."""
    claim = reserved(store)
    caller.execute("SET LOCAL lock_timeout = '700ms'")
    caller.execute("SET LOCAL idle_in_transaction_session_timeout = '1h'")
    caller.execute("SET LOCAL synchronous_commit = off")
    concluded(store, caller, claim)
    assert settings(caller) == ["700ms", "30s", "on"]


def test_a_frozen_worker_loses_the_key(store: PostgresStore, caller: Connection) -> None:
    """It concluded and never committed: its session is ended, and what it did is undone."""
    claim = reserved(store, lease=0.3)
    concluded(store, caller, claim)
    successor = a_claim()
    assert store.take_over(successor, claim.token, "in_progress") != Reserved(2), (
        "not while the lease is alive"
    )
    store.release(claim)  # waits for the row, and gets it
    assert store.reserve(successor) == Reserved(1)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        caller.commit()


def sent_without_an_end(store: PostgresStore, caller: Connection, claim: Claim) -> None:
    """What a driver sends that will send the COMMIT with it, and breaks off before."""

    def send(sql: str, arguments: Arguments) -> Sequence[Row]:
        statement = Statement("", sql)
        values, formats = statement.bind(arguments)
        caller.pgconn.enter_pipeline_mode()
        caller.pgconn.send_query_params(statement.text, values, None, formats, BINARY)
        caller.pgconn.send_flush_request()
        while caller.pgconn.flush() or caller.pgconn.is_busy():
            caller.pgconn.consume_input()
        result = caller.pgconn.get_result()
        assert result is not None
        return statement.read(result)

    assert store.joint.perform(operations.conclude_or_fail(claim, an_outcome()), send)


def test_a_worker_that_is_cut_off_before_its_commit_loses_the_key(
    store: PostgresStore, caller: Connection, rows: Rows
) -> None:
    """The server is not idle, since the COMMIT is to come with the completion: it has a timeout for that."""
    if caller.info.server_version < 170000:
        pytest.skip("before PostgreSQL 17 the server has no timeout for that")
    claim = reserved(store, lease=0.3)
    sent_without_an_end(store, caller, claim)
    assert rows.execute("SELECT 1 FROM retrysafe_records FOR UPDATE SKIP LOCKED") == []
    store.release(claim)  # waits for the row, and gets it
    assert store.reserve(a_claim()) == Reserved(1)
    session = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    _until(lambda: rows.execute(session, [caller.info.backend_pid]) == [])


def test_a_transaction_timeout_of_the_callers_stays(
    store: PostgresStore, caller: Connection, rows: Rows
) -> None:
    """The shorter one is in force, as with the other timeouts, and it ends with the transaction."""
    if caller.info.server_version < 170000:
        pytest.skip("before PostgreSQL 17 the server has no timeout for that")
    for own, lease, expected in (("0", 20.0, "20s"), ("7s", 20.0, "7s"), ("1h", 20.0, "20s")):
        caller.execute(f"SET LOCAL transaction_timeout = '{own}'".encode())
        claim = reserved(store, lease=lease)

        def execute(sql: str, arguments: Arguments) -> Sequence[Row]:
            return caller.execute(re.sub(r":(\w+)", r"%(\1)s", sql).encode(), arguments).fetchall()

        assert store.joint.perform(operations.conclude_or_fail(claim, an_outcome()), execute)
        assert caller.execute("SHOW transaction_timeout").fetchone() == (expected,)
        caller.rollback()
        assert caller.execute("SHOW transaction_timeout").fetchone() == ("0",)
        store.release(claim)


def test_an_end_is_told_with_the_commit(store: PostgresStore, caller: Connection, rows: Rows) -> None:
    """And not before: whoever hears it must find it."""
    claim = reserved(store, announced=True)
    heard = threading.Event()
    store.subscribe(claim.id, heard.set)
    _until(lambda: rows.execute(_LISTENING) == [(1,)])
    concluded(store, caller, claim)
    assert not heard.wait(0.2)
    caller.commit()
    assert heard.wait(PATIENT)


def _until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENT
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.02)


_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
_LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN retrysafe' AND datname = current_database()"
)
