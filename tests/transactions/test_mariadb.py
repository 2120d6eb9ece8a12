"""What is MySQL's and MariaDB's own inside of guarded calls: statements that commit, deadlocks that roll back
everything, and a session that is frozen in its completion."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

import retrysafe.pymysql
from retrysafe import CommitRefused, ConfigurationError, NotJoined, stores
from retrysafe._core.model import Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.sqlalchemy import async_sessionmaker, begin, sessionmaker
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.mysql import join as mysql_join
from retrysafe.stores.sql.mysql.join import MARK
from retrysafe.stores.sql.sqlalchemy import StoreOfEngine
from retrysafe.testing.stores import a_claim, an_outcome
from tests.transactions.calls import Ledger, guarded, in_thread
from tests.transactions.ledgers import InMariaDB, a_guard, connect_mysql
from tests.transactions.test_semantics import ask

PATIENT = 20.0
COMMITS = ["COMMIT", "CREATE TABLE other (id int)", "/*! COMMIT */", "SET autocommit = 1", "TRUNCATE items"]


@pytest.fixture
def engine(mariadb_database: str) -> Iterator[Engine]:
    engine = create_engine(mariadb_database.replace("mysql:", "mysql+pymysql:"))
    yield engine
    engine.dispose()


@pytest.fixture
def audit(mariadb_database: str) -> InMariaDB:
    return InMariaDB(mariadb_database)


Write = Callable[[str], object]
Block = Callable[[], Any]


def blocks(engine: Engine, url: str) -> "dict[str, tuple[Any, Block]]":
    """Guards, and blocks that join their calls: each gives a function that executes."""
    guard = a_guard(stores.from_engine(engine, deadline=PATIENT))
    maker = sessionmaker(guard)

    @contextmanager
    def session() -> Generator[Write]:
        with maker() as opened:
            yield lambda sql: opened.execute(text(sql))
            opened.commit()

    @contextmanager
    def core() -> Generator[Write]:
        with begin(guard) as opened:
            yield lambda sql: opened.execute(text(sql))

    @contextmanager
    def direct() -> Generator[Write]:
        with (
            retrysafe.pymysql.connection(guard, partial(connect_mysql, url)) as db,
            db.cursor() as cursor,
        ):
            yield lambda sql: cursor.execute(sql)

    return {"session": (guard, session), "core": (guard, core), "pymysql": (guard, direct)}


@pytest.fixture(params=["session", "core", "pymysql"])
def block(request: pytest.FixtureRequest, engine: Engine, mariadb_database: str) -> Any:
    return blocks(engine, mariadb_database)[request.param]


# --- statements that commit


@pytest.mark.parametrize("statement", COMMITS)
def test_a_statement_that_commits_is_refused(audit: InMariaDB, block: Any, statement: str) -> None:
    """Before it is sent, so nothing is committed early."""
    guard, opened = block

    def handler() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('a')")
            write(statement)

    assert guarded(guard, handler, NotJoined) == 500
    assert audit() == []


def test_temporary_tables_are_not(audit: InMariaDB, block: Any) -> None:
    """They commit nothing."""
    guard, opened = block

    def handler() -> None:
        with opened() as write:
            write("CREATE TEMPORARY TABLE mine (name text)")
            write("INSERT INTO mine VALUES ('a')")
            write("INSERT INTO items (name) SELECT name FROM mine")
            write("DROP TEMPORARY TABLE mine")
            assert audit() == []

    assert guarded(guard, handler) == 201
    assert audit() == ["a"]


def test_a_procedure_that_commits(audit: InMariaDB, block: Any, mariadb_database: str) -> None:
    """It cannot be prevented.  But the completion knows that its transaction is another one: it fails."""
    guard, opened = block
    with closing(connect_mysql(mariadb_database)) as db, db.cursor() as cursor:
        cursor.execute("DROP PROCEDURE IF EXISTS commits")
        cursor.execute("CREATE PROCEDURE commits() COMMIT")

    def handler() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('early')")
            write("CALL commits()")
            write("INSERT INTO items (name) VALUES ('late')")

    assert guarded(guard, handler, CommitRefused) == 500
    assert audit() == ["early"]


# --- deadlocks


class Rival:
    """Another transaction, which deadlocks with the one that runs `meet`, and is the one that goes on."""

    def __init__(self, url: str) -> None:
        self._db = connect_mysql(url)
        self._cursor = self._db.cursor()
        # Heavier than the other, so the server prefers to roll that one back.
        self._cursor.execute("INSERT INTO rows_of_rival (n) VALUES (1), (2), (3), (4), (5), (6), (7), (8)")
        self._cursor.execute("UPDATE locked SET n = n + 1 WHERE id = 2")

    def meet(self, write: Write) -> None:
        """Raises the deadlock in `write`'s transaction."""
        write("UPDATE locked SET n = n + 1 WHERE id = 1")
        waiting = threading.Thread(
            target=lambda: self._cursor.execute("UPDATE locked SET n = n + 1 WHERE id = 1")
        )
        waiting.start()
        try:
            time.sleep(0.2)  # until it waits; were it too early, the other one would wait, and both go on
            write("UPDATE locked SET n = n + 1 WHERE id = 2")
        finally:
            waiting.join()
            self._db.rollback()

    def close(self) -> None:
        self._db.close()


@pytest.fixture
def rival(mariadb_database: str, audit: InMariaDB) -> Iterator[Rival]:
    with closing(connect_mysql(mariadb_database)) as db, db.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS locked, rows_of_rival")
        cursor.execute("CREATE TABLE locked (id int PRIMARY KEY, n int NOT NULL)")
        cursor.execute("CREATE TABLE rows_of_rival (n int NOT NULL)")
        cursor.execute("INSERT INTO locked VALUES (1, 0), (2, 0)")
        db.commit()
    rival = Rival(mariadb_database)
    yield rival
    rival.close()


def test_a_deadlock_that_was_caught(audit: InMariaDB, block: Any, rival: Rival) -> None:
    """It has undone what came before it.  Nothing of the rest is committed, and the client may try again."""
    guard, opened = block
    again: list[bool] = []

    def meets() -> None:
        with opened() as write:
            rival.meet(write)

    def goes_on() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('after')")

    def handler() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('before')")
        if not again:
            again.append(True)
            with pytest.raises((DBAPIError, pymysql.OperationalError), match="1213"):
                meets()
            with pytest.raises(NotJoined, match="deadlock"):
                goes_on()

    async def scenario() -> None:
        ledger: Any = Ledger(guard)
        first = await ask(ledger, lambda: asyncio.to_thread(handler), raises=CommitRefused)
        assert (first.status, audit()) == (503, [])
        second = await ask(ledger, lambda: asyncio.to_thread(handler))
        assert (second.status, second.replayed, audit()) == (201, False, ["before"])

    asyncio.run(scenario())
    guard.close()


def test_a_deadlock_of_the_first_block(audit: InMariaDB, block: Any, rival: Rival) -> None:
    """Nothing but its own changes was undone, so the handler may go on."""
    guard, opened = block

    def meets() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('before')")
            rival.meet(write)

    def handler() -> None:
        with pytest.raises((DBAPIError, pymysql.OperationalError), match="1213"):
            meets()
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('after')")

    assert guarded(guard, handler) == 201
    assert audit() == ["after"]


def test_a_deadlock_on_a_connection_with_autocommit(
    audit: InMariaDB, engine: Engine, rival: Rival, mariadb_database: str
) -> None:
    """What comes after it is not committed before the guard commits, and then the connection is as it was."""
    guard = a_guard(stores.from_engine(engine, deadline=PATIENT))
    with closing(connect_mysql(mariadb_database)) as db, db.cursor() as cursor:
        db.autocommit(True)

        def handler() -> None:
            with retrysafe.pymysql.connection(guard, lambda: nullcontext(db)) as joined:
                cursor.execute("INSERT INTO items (name) VALUES ('before')")
                with pytest.raises(pymysql.OperationalError, match="1213"):
                    rival.meet(cursor.execute)
                joined.rollback()
                cursor.execute("INSERT INTO items (name) VALUES ('after')")
                assert audit() == []

        assert guarded(guard, handler) == 201
        assert audit() == ["after"]
        assert db.get_autocommit() is True
        cursor.execute("SELECT @@autocommit")
        assert cursor.fetchall() == ((1,),)
    guard.close()


def test_a_connection_of_a_pool_after_a_deadlock(
    audit: InMariaDB, engine: Engine, rival: Rival, mariadb_database: str
) -> None:
    """It is of use to the next call."""
    guard = a_guard(stores.from_engine(engine, deadline=PATIENT))
    with closing(connect_mysql(mariadb_database)) as db, db.cursor() as cursor:
        deadlocks = [rival.meet]

        def handler() -> None:
            with retrysafe.pymysql.connection(guard, lambda: nullcontext(db)):
                cursor.execute("INSERT INTO items (name) VALUES ('a')")
                if deadlocks:
                    deadlocks.pop()(cursor.execute)

        assert guarded(guard, handler, pymysql.OperationalError) == 500
        assert guarded(guard, handler) == 201
        assert audit() == ["a"]
    guard.close()


def test_a_deadlock_that_leaves_the_handler(audit: InMariaDB, block: Any, rival: Rival) -> None:
    """Everything is undone, and the key is free."""
    guard, opened = block

    def handler() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('a')")
            rival.meet(write)

    error = DBAPIError if block[1].__name__ != "direct" else pymysql.OperationalError
    assert guarded(guard, handler, error) == 500
    assert audit() == []


def test_a_deadlock_in_a_coroutine(audit: InMariaDB, rival: Rival, mariadb_database: str) -> None:
    """The same by asyncmy: caught, and nothing of the rest is committed."""

    async def scenario() -> None:
        engine = create_async_engine(mariadb_database.replace("mysql:", "mysql+asyncmy:"))
        guard = a_guard(stores.from_engine(engine, deadline=PATIENT))
        maker = async_sessionmaker(guard)

        async def handler() -> None:
            async with maker() as session:
                await session.execute(text("INSERT INTO items (name) VALUES ('before')"))
                await session.commit()
                with pytest.raises(DBAPIError, match="1213"):
                    await session.run_sync(lambda sync: rival.meet(lambda sql: sync.execute(text(sql))))
                await session.rollback()
                with pytest.raises(NotJoined, match="deadlock"):
                    await session.execute(text("INSERT INTO items (name) VALUES ('after')"))

        ledger: Any = Ledger(guard)
        assert (await ask(ledger, handler, raises=CommitRefused)).status == 503
        guard.close()
        await engine.dispose()

    asyncio.run(scenario())
    assert audit() == []


def test_a_lock_that_was_not_to_be_had(audit: InMariaDB, block: Any, rival: Rival) -> None:
    """Only its statement is undone, and the handler may go on."""
    guard, opened = block

    def handler() -> None:
        with opened() as write:
            write("INSERT INTO items (name) VALUES ('a')")
            write("SET SESSION innodb_lock_wait_timeout = 1")
            with pytest.raises((DBAPIError, pymysql.OperationalError), match="1205"):
                write("UPDATE locked SET n = n + 1 WHERE id = 2")

    assert guarded(guard, handler) == 201
    assert audit() == ["a"]


# --- the connection


def test_what_pymysql_offers_is_provisional(audit: InMariaDB, engine: Engine, mariadb_database: str) -> None:
    """`commit`, `rollback` and `close` of a joined connection; `begin` and autocommit are refused."""
    guard = a_guard(stores.from_engine(engine))
    opened: list[Any] = []

    def connect() -> Any:
        opened.append(connect_mysql(mariadb_database, autocommit=True))
        return opened[-1]

    def handler() -> None:
        with retrysafe.pymysql.connection(guard, connect) as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO items (name) VALUES ('undone')")
            db.rollback()
            cursor.execute("INSERT INTO items (name) VALUES (%s)", ["a"])
            db.commit()
            cursor.execute("INSERT INTO items (name) VALUES ('undone')")
            db.rollback()
            cursor.executemany("INSERT INTO items (name) VALUES (%s)", [["b"], ["c"]])
            with pytest.raises(NotJoined):
                db.begin()
            with pytest.raises(NotJoined):
                db.autocommit(True)
            db.close()
            with db:
                cursor.execute("INSERT INTO items (name) VALUES ('d')")
            assert isinstance(db, pymysql.Connection)
            assert audit() == []
        with retrysafe.pymysql.connection(guard, connect) as again:
            assert again is db
        with pytest.raises(NotJoined, match="outside of every block"):
            db.commit()

    assert guarded(guard, handler) == 201
    assert audit() == ["a", "b", "c", "d"]
    [db] = opened
    assert (type(db), db.open) == (pymysql.Connection, False)


def test_a_connection_of_a_pool_is_given_back_as_it_was(
    audit: InMariaDB, engine: Engine, mariadb_database: str
) -> None:
    """With its own class and its own timeout, after a commit and after a rollback."""
    guard = a_guard(stores.from_engine(engine))
    db = connect_mysql(mariadb_database)

    @contextmanager
    def of_pool() -> Generator[Any]:
        yield db

    def handler(status: int) -> int:
        with retrysafe.pymysql.connection(guard, of_pool) as joined, joined.cursor() as cursor:
            cursor.execute("INSERT INTO items (name) VALUES ('a')")
        return status

    async def scenario() -> None:
        ledger: Any = Ledger(guard)
        for status in (500, 201):
            answer = await ask(ledger, in_thread(partial(handler, status)))
            assert answer.status == status
            assert type(db) is pymysql.Connection
            with db.cursor() as cursor:
                cursor.execute("SELECT @@wait_timeout")
                assert cursor.fetchone() == (28800,)

    asyncio.run(scenario())
    guard.close()
    db.close()
    assert audit() == ["a"]


def test_a_connection_in_a_transaction_is_refused(
    audit: InMariaDB, engine: Engine, mariadb_database: str
) -> None:
    """What was done on it before would be committed with the call, or undone with it."""
    guard = a_guard(stores.from_engine(engine))

    def connect() -> Any:
        db = connect_mysql(mariadb_database)
        with db.cursor() as cursor:
            cursor.execute("INSERT INTO items (name) VALUES ('before')")
        return db

    def handler() -> None:
        with retrysafe.pymysql.connection(guard, connect):
            raise AssertionError("it is not ours")

    assert guarded(guard, handler, NotJoined) == 500
    assert audit() == []


def test_a_function_that_opens_something_else(engine: Engine, audit: InMariaDB) -> None:
    """Such as a connection of another driver's."""
    guard = a_guard(stores.from_engine(engine))

    def handler() -> None:
        with retrysafe.pymysql.connection(guard, engine.connect):  # type: ignore[arg-type]
            raise AssertionError("it is none of PyMySQL's")

    assert guarded(guard, handler, ConfigurationError) == 500
    assert audit() == []


def test_a_store_elsewhere() -> None:
    """A guard whose records are in no MySQL cannot be joined by PyMySQL."""
    with (
        closing(a_guard("memory:", effects="repeatable")) as guard,
        pytest.raises(ConfigurationError, match="needs a guard whose store is in MySQL"),
        retrysafe.pymysql.connection(guard, connect_mysql),  # type: ignore[arg-type]
    ):
        pass


# --- frozen inside of the completion (F8)


@pytest.fixture
def store(engine: Engine) -> Iterator[StoreOfEngine]:
    store = stores.from_engine(engine, deadline=PATIENT)
    yield store
    store.close()


def conclude(store: StoreOfEngine, db: Any, claim: Any) -> bool:
    """As a library that joins: up to the COMMIT, which does not come."""

    def execute(sql: str, _: object) -> Any:
        with db.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    execute(MARK, {})
    with closing(db.cursor()) as cursor:
        cursor.execute("INSERT INTO items (name) VALUES ('of the zombie')")
    return store.joint.perform(operations.conclude(claim, an_outcome()), execute)


def test_a_key_is_blocked_for_a_lease(store: StoreOfEngine, audit: InMariaDB, mariadb_database: str) -> None:
    """A session that is silent between its completion and its COMMIT is ended by the server."""
    claim = a_claim()._replace(mode="tx", lease=1.0)
    assert store.reserve(claim) == Reserved(1)
    with closing(connect_mysql(mariadb_database)) as zombie:
        assert conclude(store, zombie, claim) is True
        began = time.monotonic()
        until = began + PATIENT
        successor = a_claim()._replace(mode="tx")
        while store.take_over(successor, claim.token, "in_progress") != Reserved(2):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert store.finish(successor, an_outcome()) is True
        with pytest.raises(pymysql.Error):
            zombie.commit()
        assert audit() == []


def test_a_lease_that_was_renewed_meanwhile(
    store: StoreOfEngine, audit: InMariaDB, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record may change after the transaction's first look, also where the server refuses that."""
    # Servers before 11.4.2 take what this is about for a comment.  Here it is to be executed by those, too.
    monkeypatch.setattr(mysql_join, "_AS_IT_IS", mysql_join._AS_IT_IS.replace("110402", "101108"))
    claim = a_claim()._replace(mode="tx")
    assert store.reserve(claim) == Reserved(1)
    with closing(connect_mysql(mariadb_database)) as db, db.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
        if not cursor.fetchall():
            pytest.skip("this server has no innodb_snapshot_isolation")
        cursor.execute("SET SESSION innodb_snapshot_isolation = ON")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT * FROM items")
        keeper = store.open_keeper()
        assert keeper.renew([claim]) == [True]
        keeper.close()
        assert conclude(store, db, claim) is True
        db.commit()
    assert audit() == ["of the zombie"]
    assert store.reserve(a_claim()).record.state == "completed"  # type: ignore[union-attr]


def test_fenced(store: StoreOfEngine, audit: InMariaDB, mariadb_database: str) -> None:
    """An attempt that was overtaken is told so, however the driver counts rows."""
    claim = a_claim()._replace(mode="tx", lease=0.01)
    assert store.reserve(claim) == Reserved(1)
    time.sleep(0.05)
    successor = a_claim()._replace(mode="tx")
    assert store.take_over(successor, claim.token, "in_progress") == Reserved(2)
    for flag in (0, CLIENT.FOUND_ROWS):
        with closing(connect_mysql(mariadb_database, client_flag=flag)) as db:
            assert conclude(store, db, claim) is False
            db.rollback()
            assert conclude(store, db, successor) is True
            db.rollback()
    assert audit() == []


def test_a_lost_server_is_not_known_to_have_refused(store: StoreOfEngine) -> None:
    """What the client's side says leaves the outcome open; what the server says does not."""
    refuse = store.joint.not_committed
    for code in (2006, 2013, 1053, 1180, 1927):
        assert isinstance(refuse(pymysql.OperationalError(code, "words")), StoreUnavailable)
    for code, passing in ((1213, True), (1205, True), (1048, False), (1644, False), (1305, False)):
        refused = refuse(pymysql.OperationalError(code, "words"))
        assert isinstance(refused, CommitRefused)
        assert refused.passing is passing
