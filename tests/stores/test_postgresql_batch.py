"""The function that does a batch on PostgreSQL: as single statements would, and where it cannot be had."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg import pq
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe import stores
from retrysafe._core.model import Claim, Found, Inbox, Reserved
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Query
from retrysafe.stores.contract import Store
from retrysafe.stores.queue import Call
from retrysafe.stores.sql import codec
from retrysafe.stores.sql.migrations import migrations, source
from retrysafe.stores.sql.postgresql import PostgresStore, plans
from retrysafe.stores.sql.postgresql.batch import Combined, binary, literal
from retrysafe.stores.sql.postgresql.wire import BINARY, known
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.admins import PATIENT


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, deadline=PATIENT)
    store.look(b"nothing")
    yield store
    store.close()


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


async def together(store: PostgresStore, claims: Sequence[Claim]) -> list[object]:
    return await asyncio.gather(*(store.aio.reserve(claim) for claim in claims), return_exceptions=True)


def uses_function(store: PostgresStore) -> bool:
    return store._postgres._source.mode.combined


def test_fresh_taken_and_expired_in_one_batch(store: PostgresStore, database: str) -> None:
    """Each gets its own: a new record, the one that is there, its own earlier success, the place of an
    expired one; and completions beside them."""
    names = ("taken", "own", "expired", "running", "other", "done", "looked at")
    taken, own, expired, running, other, done, looked_at = map(a_claim, names)
    for claim in (taken, own, expired, running, other, done, looked_at):
        store.reserve(claim)
    for claim in (taken, expired, done):
        store.finish(claim, an_outcome(str(claim.key).encode()))
    execute(
        database,
        "UPDATE retrysafe_records SET expires_at = now() - interval '1 s', details = '[[\"a\",\"b\"]]', "
        "deliveries = 9 WHERE key = 'expired'",
    )

    async def batch() -> list[object]:
        first = [store.aio.reserve(a_claim("first"))]  # is under way while the others gather
        others = [
            store.aio.reserve(a_claim("fresh")),
            store.aio.reserve(a_claim("taken")),
            store.aio.reserve(own),
            store.aio.reserve(a_claim("expired")),
            store.aio.finish(running, an_outcome(b"running")),
            store.aio.finish(done, an_outcome(b"done")),
            store.aio.finish(a_claim("nothing"), an_outcome()),
            store.aio.finish(a_claim("other"), an_outcome(b"of another attempt")),
            store.aio.look(looked_at.id),
        ]
        return await asyncio.gather(*first, *others)

    first, fresh, found, again, anew, stored, repeated, absent, fenced, looked = asyncio.run(batch())
    assert (first, fresh, again, anew) == (Reserved(1), Reserved(1), Reserved(1), Reserved(1))
    assert isinstance(found, Found)
    assert found.record.response == an_outcome(b"taken").response
    assert (stored, repeated, absent, fenced) == (True, True, False, False)
    assert isinstance(looked, Found)
    assert looked.record.token == looked_at.token
    record = store.look(expired.id)
    assert record is not None
    assert (record.record.details, record.record.deliveries, record.record.response) == ((), 1, None)
    assert uses_function(store)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_payloads_beside_the_function(database: str, driver: str) -> None:
    """A claim that brings one is a statement of its own in the batch; the function replaces no record that
    waits for a worker, and leaves no payload of one that has expired."""
    receipt = a_claim()._replace(door="callback", action="orders", inbox=Inbox(b"\n1", 60.0))

    def received(key: str) -> Claim:
        return receipt._replace(id=a_claim(key).id, key=key)

    done, waits = received("done"), received("waits")
    with closing(a_store(database, driver)) as store, closing(store.open_admin()) as admin:
        for claim in (done, waits):
            store.reserve(claim)
        store.finish(done, an_outcome())
        execute(
            database,
            "UPDATE retrysafe_records SET expires_at = now() - interval '1 s', "
            "lease_until = now() - interval '1 s', held_until = now() - interval '1 s'",
        )

        async def batch() -> list[object]:
            claims = [
                a_claim("first"),  # is under way while the others gather
                received("new"),
                received("newer")._replace(inbox=Inbox(None, None)),
                a_claim("done"),
                a_claim("waits"),
                a_claim("fresh"),
            ]
            return await asyncio.gather(*map(store.aio.reserve, claims), return_exceptions=True)

        *made, found, fresh = asyncio.run(batch())
        assert [*made, fresh] == [Reserved(1)] * 5
        assert isinstance(found, Found)
        assert found.record.token == waits.token
        payloads = [admin.payload(a_claim(key).id) for key in ("new", "newer", "done", "waits", "fresh")]
        assert payloads == [b"\n1", None, None, b"\n1", None]
        assert [each.due_at is not None for each in admin.list(Query(key="new"))] == [True]
        assert [each.due_at for each in admin.list(Query(key="done"))] == [None]


def test_a_damaged_record_is_alone(postgres: PostgresServer) -> None:
    """A text that is not UTF-8, which a database without an encoding can hold, makes the whole batch fail: it
    is taken apart."""
    main = postgres.url("postgres")
    execute(main, "CREATE DATABASE octets ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    database = postgres.url("octets")
    damaged = a_claim("damaged")
    with closing(PostgresStore(database, deadline=PATIENT)) as store:
        store.reserve(damaged)
        execute(database, r"UPDATE retrysafe_records SET target = E'/\xe9' WHERE key = 'damaged'")
        others = [a_claim(f"other {n}") for n in range(10)]

        async def batch() -> list[object]:
            return await asyncio.gather(
                store.aio.reserve(a_claim("before")),  # is under way while the others gather
                *(store.aio.reserve(claim) for claim in [*others[:5], a_claim("damaged"), *others[5:]]),
                return_exceptions=True,
            )

        _, *found = asyncio.run(batch())
        assert isinstance(found.pop(5), StoreError)
        assert found == [Reserved(1)] * 10
    execute(main, "DROP DATABASE octets WITH (FORCE)")


def test_without_the_function(store: PostgresStore, database: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where it was never made, or was dropped: the same results, by single statements."""
    execute(database, "DROP FUNCTION retrysafe_batch_1")
    claims = [a_claim(f"{n}") for n in range(20)]
    assert asyncio.run(together(store, claims)) == [Reserved(1)] * 20
    assert not uses_function(store)
    assert all(
        isinstance(found, Found) for found in asyncio.run(together(store, [a_claim("3"), a_claim("4")]))
    )
    assert not caplog.records


def test_a_role_that_may_not_create_it(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """A service that has only the rights to work says what the database lacks, and works."""
    first, second, _, *later = migrations("postgresql")
    execute(database, first.source + second.source)
    for statement in [each for migration in later for each in migration.statements[:-1]]:
        if "FUNCTION" not in statement:
            execute(database, statement)
    role = f"service_{database.rpartition('_')[2]}"
    execute(database, f"CREATE ROLE {role} LOGIN")
    execute(database, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    execute(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        theirs = database.replace("postgres@", f"{role}@")
        with closing(PostgresStore(theirs, deadline=PATIENT)) as store:
            claims = [a_claim(f"{n}") for n in range(20)]
            assert asyncio.run(together(store, claims)) == [Reserved(1)] * 20
            assert not uses_function(store)
            with closing(store.open_admin()) as admin:
                assert len(admin.list(Query())) == 20
                found = {finding.check: finding for finding in admin.diagnose()}["schema"]
        assert "the database lacks migration 3 (batch)" in caplog.text
        assert (found.level, "migration 3 (batch)" in found.found) == ("warning", True)
        with closing(stores.open(database)) as owner, closing(owner.open_admin()) as admin:
            assert admin.migrate() == (
                "applied migration 3 (batch), migration 4 (payloads), migration 5 (routes)"
            )
        with closing(PostgresStore(theirs, deadline=PATIENT)) as store:
            more = [a_claim("new"), a_claim("newer"), a_claim("newest")]
            assert asyncio.run(together(store, more)) == [Reserved(1)] * 3
            assert uses_function(store)
    finally:
        execute(database, f"DROP OWNED BY {role}")
        execute(database, f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "state", ["empty", "vacuumed while empty", "vacuumed with one record", "unanalysed", "analysed"]
)
def test_records_are_found_by_their_index(database: str, state: str) -> None:
    """Whatever the server believes about the table: a batch reads no record but those that it is about."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(source("postgresql").encode())
        if state == "vacuumed with one record":
            connection.execute(_MANY.replace(b"generate_series(1, 5000)", b"generate_series(0, 0)"))
        if state.startswith("vacuumed"):
            connection.execute("VACUUM ANALYZE retrysafe_records")
        for calls in _calls("first"):  # the server plans them now, for the table as it is
            _call(connection, calls)
        if state != "empty":
            connection.execute(_MANY)
        if state == "analysed":
            connection.execute("VACUUM ANALYZE retrysafe_records")
        with connection.transaction():
            before, about = _records_read(connection), 0
            for calls in [each for batch in range(8) for each in _calls(f"{batch}")]:
                _call(connection, calls)
                about += len(calls)
            assert _records_read(connection) - before <= about


def _calls(name: str) -> list[list[Call]]:
    claims = [a_claim(f"{name} {n}") for n in range(8)]
    bids: list[Call] = [("reserve", codec.bid(claim)) for claim in claims]
    finals: list[Call] = [("finish", codec.outcome(claim, an_outcome())) for claim in claims]
    return [bids, finals, bids, [*bids, *finals]]


def _call(connection: "psycopg.Connection[Any]", calls: Sequence[Call]) -> None:
    [(_, arguments)] = Combined(calls, binary).calls
    statement = known()["batch"]
    values, formats = statement.bind({**arguments, "patience": 1.0})
    result = connection.pgconn.exec_params(statement.text, values, None, formats, BINARY)
    assert result.status == pq.ExecStatus.TUPLES_OK, result.error_message


def _records_read(connection: "psycopg.Connection[Any]") -> int:
    found: tuple[int] | None = connection.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
        "WHERE relname = 'retrysafe_records'"
    ).fetchone()
    assert found is not None
    return found[0]


_MANY = b"""
    INSERT INTO retrysafe_records (
        id, version, token, fingerprint, state, mode, attempt, lease_until, checkpointed, door, scope, key,
        action, target, request_id, created_at, updated_at, expires_at, held_until, omitted
    )
    SELECT
        sha256(CAST(CAST(n AS text) AS bytea)), 1, '\\x01', '\\x02', 'in_progress', 'lease', 1, now(), 0,
        'request', '[]', 'key', 'POST', '/orders', 'request', now(), now(), now() + interval '1 day', now(), 0
    FROM generate_series(1, 5000) AS n
"""


def test_arrays() -> None:
    """As the server writes them: of every kind, with and without elements, and with none among them."""
    assert binary("text", ["a", None, ""]) == bytes.fromhex(
        "00000001 00000001 00000019 00000003 00000001 00000001 61 ffffffff 00000000"
    )
    assert binary("float8", [1, 0.5])[20:] == bytes.fromhex(
        "00000008 3ff0000000000000 00000008 3fe0000000000000"
    )
    assert binary("int4", [-1])[20:] == bytes.fromhex("00000004 ffffffff")
    assert binary("bytea", []) == bytes.fromhex("00000000 00000000 00000011")


def test_arrays_as_text() -> None:
    """For drivers that cannot send them in binary form."""
    assert literal("text", ["a\\b", 'c"d', None, "", "NULL"]) == '{"a\\\\b","c\\"d",NULL,"","NULL"}'
    assert literal("bytea", [b"\x00\xff"]) == '{"\\\\x00ff"}'
    assert literal("float8", [1.5, 1e300]) == "{1.5,1e+300}"
    assert literal("int4", []) == "{}"


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_old_plans_are_discarded(database: str, monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    """A statement that was prepared while the table was empty reads all of it, until it is planned anew."""
    now = [0.0]
    monkeypatch.setattr(plans, "monotonic", lambda: now[0])
    with closing(a_store(database, driver)) as store:
        store.look(b"nothing")
        execute(database, "VACUUM ANALYZE retrysafe_records")

        def takes() -> float:
            began = time.perf_counter()
            store.look(a_claim().id)
            return time.perf_counter() - began

        for _ in range(10):  # so often that the server keeps its plan
            takes()
        execute(database, _MANY.decode().replace("5000", "40000"))
        slow = median(takes() for _ in range(15))
        now[0] = 11.0
        takes()
        assert median(takes() for _ in range(15)) < slow / 2


def a_store(database: str, driver: str) -> Store:
    if driver == "psycopg":
        return PostgresStore(database, deadline=PATIENT)
    engine = create_async_engine(database.replace("postgresql:", f"postgresql+{driver}:"))
    return stores.from_engine(engine, deadline=PATIENT)
