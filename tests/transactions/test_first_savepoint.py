"""The first savepoint of a call is only pretended: nobody may notice, whatever is undone and however."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from retrysafe import Guard, stores
from retrysafe.sqlalchemy import begin, sessionmaker
from retrysafe.sqlalchemy.dialect import INFO_KEY
from tests.transactions.calls import guarded
from tests.transactions.ledgers import INSERT, SELECT, Broken, Place, a_guard, on_server


@pytest.fixture(params=["psycopg", "pg8000"])
def server(request: pytest.FixtureRequest, database: str) -> Iterator[Place]:
    place = on_server(database, request.param)
    yield place
    place.engine.dispose()


@pytest.fixture
def guard(server: Place) -> Guard:
    return a_guard(stores.from_engine(server.engine))


def test_a_session_starts_over(server: Place, guard: Guard) -> None:
    def handler() -> None:
        with sessionmaker(guard)() as session:
            for name in ("a", "b"):
                session.execute(INSERT, {"name": name})
                session.rollback()
            session.execute(INSERT, {"name": "c"})
            session.commit()
            session.execute(INSERT, {"name": "d"})
            session.rollback()
            session.execute(INSERT, {"name": "e"})
            session.commit()

    assert guarded(guard, handler) == 201
    assert server.audit() == ["c", "e"]


def test_it_starts_over_after_an_error(server: Place, guard: Guard) -> None:
    """PostgreSQL refuses everything after an error, until it is rolled back."""

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            with pytest.raises(DBAPIError):
                session.execute(text("SELECT no_such_column FROM items"))
            session.rollback()
            with pytest.raises(DBAPIError), session.begin_nested():
                session.execute(text("SELECT no_such_column FROM items"))
            session.execute(INSERT, {"name": "b"})
            session.commit()

    assert guarded(guard, handler) == 201
    assert server.audit() == ["b"]


def test_everything_is_undone(server: Place, guard: Guard) -> None:
    """Then the answer is kept without an effect."""

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler) == 201
    assert server.audit() == []


def test_blocks_of_core(server: Place, guard: Guard) -> None:
    def put(name: str, *, fail: bool = False) -> None:
        with begin(guard) as db:
            db.execute(INSERT, {"name": name})
            if fail:
                raise Broken

    def handler() -> None:
        with pytest.raises(Broken):
            put("a", fail=True)
        put("b")
        with pytest.raises(Broken):
            put("c", fail=True)
        with begin(guard) as db:
            assert db.scalars(SELECT).all() == ["b"]

    assert guarded(guard, handler) == 201
    assert server.audit() == ["b"]


def _set_tenant(cursor: Any) -> None:
    cursor.execute("SELECT set_config('app.tenant', 'acme', true)")


@pytest.mark.parametrize("moment", ["begin", "engine_connect", "checkout"])
def test_what_a_listener_sets_for_the_transaction_stays(server: Place, guard: Guard, moment: str) -> None:
    """As who the tenant is, where the database has policies: with it gone, they would let nothing through."""
    if moment == "checkout":
        event.listen(server.engine, moment, lambda driver, _, __: _set_tenant(driver.cursor()))
    else:
        event.listen(server.engine, moment, lambda db: _set_tenant(db.connection.cursor()))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            session.rollback()
            assert session.scalar(text("SELECT current_setting('app.tenant')")) == "acme"

    assert guarded(guard, handler) == 201


def test_what_a_raw_cursor_has_written(server: Place, guard: Guard) -> None:
    """SQLAlchemy does not see it, and still a commit keeps it."""

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.connection().connection.cursor().execute("INSERT INTO items VALUES ('a')")
            session.commit()
            session.scalars(SELECT).all()

    assert guarded(guard, handler) == 201
    assert server.audit() == ["a"]


def test_the_connection_is_lost(server: Place, guard: Guard, database: str) -> None:
    """Nothing is kept, the handler learns of it, and the connection is not used again."""

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            backend = session.scalar(text("SELECT pg_backend_pid()"))
            with psycopg.connect(database, autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(%s)", [backend])
            session.rollback()
            session.execute(INSERT, {"name": "b"})

    assert guarded(guard, handler, Exception) >= 500
    assert server.audit() == []


def test_its_traces_are_gone(server: Place, guard: Guard) -> None:
    """A pooled connection does not remember whose it was."""

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            session.commit()
            assert INFO_KEY in session.connection().info

    assert guarded(guard, handler) == 201
    with server.engine.connect() as db:
        assert INFO_KEY not in db.info
        db.execute(INSERT, {"name": "b"})
        db.commit()
    assert server.audit() == ["a", "b"]
