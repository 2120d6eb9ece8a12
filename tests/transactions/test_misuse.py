"""What must not be done inside of a guarded call, and is said so in words."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

import retrysafe.psycopg
import retrysafe.sqlite3
from retrysafe import ConfigurationError, Guard, NotJoined, scopes, stores
from retrysafe.sqlalchemy import async_sessionmaker, begin, sessionmaker
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import Served, an_environ, created
from tests.transactions.calls import Ledger, guarded
from tests.transactions.ledgers import INSERT, InFile, InServer, Place, a_guard
from tests.transactions.test_semantics import ask

# --- sqlite3


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "END", "BEGIN"])
def test_sqlite3_ended_by_hand(path: Path, audit: InFile, statement: str) -> None:
    """SQLite itself is told to refuse it: nothing is committed early."""
    guard = a_guard(f"sqlite:///{path}")

    def handler() -> None:
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES ('a')")
            db.execute(statement)

    assert guarded(guard, handler, NotJoined) == 500
    assert audit() == []


def test_sqlite3_commit_and_rollback_are_provisional(path: Path, audit: InFile) -> None:
    """What came before a commit() is safe from a rollback(), and real with the answer."""
    guard = a_guard(f"sqlite:///{path}")

    def handler() -> None:
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES ('a')")
            db.commit()
            assert audit() == []
            db.execute("INSERT INTO items VALUES ('b')")
            db.rollback()
            db.executescript("INSERT INTO items VALUES ('c;c'); INSERT INTO items VALUES ('d') -- the end")
            db.executemany("INSERT INTO items VALUES (?)", [["e"], ["f"]])
            db.close()
            with db:
                db.execute("INSERT INTO items VALUES ('g')")
            assert audit() == []

    assert guarded(guard, handler) == 201
    assert audit() == ["a", "c;c", "d", "e", "f", "g"]


def test_sqlite3_setup(path: Path, audit: InFile) -> None:
    """Pragmas that cannot be changed within a transaction are set before it."""
    guard = a_guard(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        db.execute(
            "CREATE TABLE lines (o REFERENCES orders DEFERRABLE INITIALLY DEFERRED, n TEXT DEFAULT 'line')"
        )

    def handler() -> None:
        with retrysafe.sqlite3.connection(
            guard, setup=lambda db: db.execute("PRAGMA foreign_keys = ON")
        ) as db:
            db.execute("INSERT INTO lines (o) VALUES (7)")

    # A constraint that is only looked at when it is committed: refused for certain, so undone, and free.
    assert guarded(guard, handler, retrysafe.CommitRefused) == 500
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM lines").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM retrysafe_records").fetchone() == (0,)


def test_sqlite3_a_connection_that_is_kept(
    path: Path, audit: InFile, caplog: pytest.LogCaptureFixture
) -> None:
    """A block that was never left has not committed: its changes are undone, and the rest is kept."""
    guard = a_guard(f"sqlite:///{path}")
    blocks: list[Any] = []

    def handler() -> None:
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES ('a')")
        blocks.append(retrysafe.sqlite3.connection(guard))
        blocks[0].__enter__().execute("INSERT INTO items VALUES ('b')")

    assert guarded(guard, handler) == 201
    assert audit() == ["a"]
    assert "its uncommitted changes are undone" in caplog.text
    with pytest.raises(sqlite3.ProgrammingError):
        blocks[0].__exit__(None, None, None)


def test_sqlite3_busy(path: Path, audit: InFile) -> None:
    """Where another program keeps the database, nothing was done: 503, and the client may try again."""
    guard = a_guard(stores.open(f"sqlite:///{path}", deadline=0.3))

    def handler() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with retrysafe.sqlite3.connection(guard):
                raise AssertionError("it is not ours")

    assert guarded(guard, handler) == 503


# --- psycopg


def test_psycopg_refuses_commit_and_rollback(database: str) -> None:
    """By its own rules; and nothing is committed early."""
    audit, guard = InServer(database), a_guard(database)

    def handler() -> None:
        with ConnectionPool(database, min_size=1, open=True) as pool:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")
                for forbidden in (db.commit, db.rollback):
                    with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
                        forbidden()
                with db.transaction(force_rollback=True):
                    db.execute("INSERT INTO items VALUES ('b')")
                with db.transaction():
                    db.execute("INSERT INTO items VALUES ('c')")
            raise KeyError  # the pool is closed: everything must be undone by then or be undone with it

    assert guarded(guard, handler, KeyError) == 500
    assert audit() == []
    assert audit.idle_in_transaction() == 0


def test_psycopg_ended_by_hand(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """A COMMIT in SQL cannot be prevented: the answer is kept all the same, and the log says what it did."""
    audit, guard = InServer(database), a_guard(database)
    with ConnectionPool(database, min_size=1, open=True) as pool:

        def handler() -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")
                db.execute("COMMIT")

        assert guarded(guard, handler) == 201
    assert audit() == ["a"]
    assert "a handler ended the transaction of its guarded call" in caplog.text


def test_psycopg_in_another_database(database: str, postgres: Any) -> None:
    """Nothing is committed where the record is not: undone, and the error says why."""
    elsewhere = postgres.new_database()
    audit, guard = InServer(elsewhere), a_guard(database)
    with ConnectionPool(elsewhere, min_size=1, open=True) as pool:

        def handler() -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")

        assert guarded(guard, handler, retrysafe.CommitRefused) == 500
        with closing(stores.open(elsewhere).open_admin()) as admin:
            admin.migrate()
        assert guarded(guard, handler, retrysafe.CommitRefused) == 500
    assert audit() == []
    postgres.drop_database(elsewhere)


# --- SQLAlchemy


def test_a_session_of_another_guard(path: Path, audit: InFile, tmp_path: Path) -> None:
    """It could not be committed with the answer: it is refused, and not quietly left outside."""
    guard = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))
    InFile(tmp_path / "other.db")
    other = sessionmaker(a_guard(stores.from_engine(create_engine(f"sqlite:///{tmp_path / 'other.db'}"))))

    def handler() -> None:
        with pytest.raises(NotJoined, match="another guard"), other() as session:
            session.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler) == 201


def test_a_session_with_a_second_database(path: Path, audit: InFile, tmp_path: Path) -> None:
    """The same for one session that goes to two databases."""
    guard = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))
    second = create_engine(f"sqlite:///{tmp_path / 'second.db'}")
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as session:
            session.execute(INSERT, {"name": "a"})
            with pytest.raises(NotJoined, match="another database"):
                session.execute(INSERT, {"name": "b"}, bind_arguments={"bind": second})
            session.commit()

    assert guarded(guard, handler) == 201
    assert audit() == ["a"]


@pytest.mark.parametrize("method", ["commit", "rollback"])
def test_the_connection_under_a_session(place: Place, method: str) -> None:
    """A real commit or rollback by way of the connection is refused, and everything is undone."""
    engine = place.engine
    guard = a_guard(stores.from_engine(engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as session:
            session.execute(INSERT, {"name": "a"})
            getattr(session.connection(), method)()

    assert guarded(guard, handler, NotJoined) == 500
    assert place.audit() == []
    with engine.connect() as connection:  # which the pool gave back clean
        assert connection.execute(text("SELECT count(*) FROM items")).scalar() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "  -- now\n/* really */ commit work",
        ";COMMIT",
        "ROLLBACK",
        "END",
        "BEGIN",
        "start transaction",
    ],
)
def test_a_session_ended_by_hand(place: Place, statement: str) -> None:
    """The same in SQL: refused before it reaches the database, so nothing is committed early."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            session.execute(text(statement))

    assert guarded(guard, handler, NotJoined) == 500
    assert place.audit() == []


def test_savepoints_in_sql(place: Place) -> None:
    """They end nothing."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(text("SAVEPOINT mine"))
            session.execute(INSERT, {"name": "a"})
            session.execute(text("ROLLBACK TO mine"))
            session.execute(INSERT, {"name": "b"})
            session.execute(text("ROLLBACK TRANSACTION TO SAVEPOINT mine"))
            session.execute(INSERT, {"name": "c"})
            session.execute(text("RELEASE mine"))
            session.commit()

    assert guarded(guard, handler) == 201
    assert place.audit() == ["c"]


def test_a_connection_that_is_closed_by_hand(place: Place) -> None:
    """It is not the handler's to close: refused, undone, and free."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with begin(guard) as connection:
            connection.execute(INSERT, {"name": "a"})
        connection.close()

    assert guarded(guard, handler, NotJoined) == 500
    assert place.audit() == []


def test_a_session_that_is_never_closed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """What it has not committed is undone, as always; what it has is kept."""
    guard = a_guard(stores.from_engine(place.engine))
    kept: list[Any] = []

    def handler() -> None:
        session = sessionmaker(guard)()
        session.execute(INSERT, {"name": "a"})
        session.commit()
        session.execute(INSERT, {"name": "b"})
        kept.append(session)

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a"]
    assert "its uncommitted changes are undone" in caplog.text


def test_listeners_that_begin_transactions_themselves(path: Path, audit: InFile) -> None:
    """As SQLAlchemy's documentation recommends for SQLite."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    guard = a_guard(stores.from_engine(engine))

    def handler() -> None:
        with sessionmaker(guard).begin() as session:
            session.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler) == 201
    assert audit() == ["a"]


@pytest.mark.parametrize("option", ["bind", "twophase", "join_transaction_mode"])
def test_options_that_are_ours(path: Path, option: str) -> None:
    """They would undo what this is for."""
    guard = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))
    with pytest.raises(ConfigurationError, match=option):
        sessionmaker(guard, **{option: None})


def test_a_guard_without_an_engine(path: Path) -> None:
    guard = a_guard(f"sqlite:///{path}")
    with pytest.raises(ConfigurationError, match="from_engine"):
        sessionmaker(guard)


def test_the_other_kind_of_engine(path: Path) -> None:
    """The message names the function that fits."""
    blocking = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))
    awaited = a_guard(stores.from_engine(create_async_engine(f"sqlite+aiosqlite:///{path}")))
    with pytest.raises(ConfigurationError, match=r"sessionmaker\(guard\)"):
        async_sessionmaker(blocking)
    with pytest.raises(ConfigurationError, match=r"async_sessionmaker\(guard\)"):
        sessionmaker(awaited)


def test_a_store_that_is_in_no_database() -> None:
    """Memory cannot carry anybody's rows."""
    with pytest.raises(ConfigurationError, match="database"):
        Guard("memory:", scope=scopes.public(), effects="database")


def test_the_wrong_library(path: Path, database: str) -> None:
    """Each says what it is for."""
    with pytest.raises(ConfigurationError, match="SQLite"), retrysafe.sqlite3.connection(a_guard(database)):
        pass
    pool: ConnectionPool[Any] = ConnectionPool(database, open=False)
    with (
        pytest.raises(ConfigurationError, match="PostgreSQL"),
        retrysafe.psycopg.connection(a_guard(f"sqlite:///{path}"), pool),
    ):
        pass


def test_an_asynchronous_session_under_wsgi(path: Path, audit: InFile) -> None:
    """There is no event loop that could commit it."""
    guard = a_guard(stores.from_engine(create_async_engine(f"sqlite+aiosqlite:///{path}")))
    maker = async_sessionmaker(guard)

    async def work() -> None:
        async with maker() as session:
            await session.execute(INSERT, {"name": "a"})

    def app(environ: Any, start_response: Any) -> list[bytes]:
        asyncio.run(work())
        return []

    served = Served(Middleware(app, guard), an_environ())
    guard.close()
    assert isinstance(served.error, NotJoined)
    assert audit() == []


# --- blocking code on the event loop


def _sessions(path: Path) -> tuple[Guard, Callable[[], None]]:
    guard = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))

    def write() -> None:
        with sessionmaker(guard).begin() as session:
            session.execute(INSERT, {"name": "a"})

    return guard, write


def _core(path: Path) -> tuple[Guard, Callable[[], None]]:
    guard = a_guard(stores.from_engine(create_engine(f"sqlite:///{path}")))

    def write() -> None:
        with begin(guard) as connection:
            connection.execute(INSERT, {"name": "a"})

    return guard, write


def _sqlite3(path: Path) -> tuple[Guard, Callable[[], None]]:
    guard = a_guard(f"sqlite:///{path}")

    def write() -> None:
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES ('a')")

    return guard, write


on_sqlite = pytest.mark.parametrize("library", [_sessions, _core, _sqlite3])


@on_sqlite
def test_blocking_on_the_event_loop(path: Path, audit: InFile, library: Any) -> None:
    """Refused with words that say what to use, before it waits for the lock that the loop is to release."""
    guard, write = library(path)

    async def handler() -> None:
        with pytest.raises(NotJoined, match=r"async def.*`def`.*async_sessionmaker.*asyncio\.to_thread"):
            write()
        assert audit() == []
        await asyncio.to_thread(write)
        write()  # the lock is held by now, so this waits for nothing

    async def scenario() -> None:
        assert (await ask(cast(Any, Ledger(guard)), handler)).status == 201
        assert audit() == ["a", "a"]
        write()  # no guarded call: an ordinary transaction

    asyncio.run(scenario())
    guard.close()
    assert audit() == ["a", "a", "a"]


@on_sqlite
def test_an_event_loop_under_wsgi(path: Path, audit: InFile, library: Any) -> None:
    """As Flask has for `async def` views: the thread that runs it commits, so no other call is stalled."""
    guard, write = library(path)

    async def view() -> None:
        write()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        asyncio.run(view())
        return created(environ, start_response)  # type: ignore[return-value]

    assert Served(Middleware(app, guard), an_environ()).status == 201
    guard.close()
    assert audit() == ["a"]
