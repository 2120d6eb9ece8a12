"""How an engine is made is how the store's connections are opened, and its own pool is left alone."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pg8000.dbapi  # type: ignore[import-untyped]
import psycopg
import pytest
from sqlalchemy import Engine, NullPool, StaticPool, create_engine, event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from retrysafe import stores
from retrysafe._core.model import Reserved
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql.sqlalchemy import StoreOfEngine
from retrysafe.stores.sql.sqlalchemy.engines import blocking_part
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.engines import engine_for
from tests.stores.rows import PATIENT

DRIVERS = ("asyncpg", "pg8000", "psycopg", "psycopg_async")
SOME = DRIVERS if "RETRYSAFE_LONG" in os.environ else ("asyncpg", "psycopg")


def works(store: StoreOfEngine) -> bool:
    """Whether both halves, the keeper and the operator's end do."""
    try:
        claim, other = a_claim("one"), a_claim("other")
        keeper, admin = store.open_keeper(), store.open_admin()
        assert store.reserve(claim) == Reserved(1)
        assert asyncio.run(store.aio.reserve(other)) == Reserved(1)
        assert keeper.renew([claim, other]) == [True, True]
        assert admin.statistics().total.records == {"in_progress": 2}
        keeper.close()
        admin.close()
        return store.finish(other, an_outcome()) and asyncio.run(store.aio.finish(claim, an_outcome()))
    finally:
        store.close()


@pytest.mark.parametrize("driver", SOME)
def test_a_store_knows_its_engine(database: str, driver: str) -> None:
    """So that a guard can make sessions of it, and a completion can join their transaction."""
    engine = engine_for(database, driver)
    store = stores.from_engine(engine, deadline=PATIENT)
    assert store.engine is engine
    assert store.joint.dialect == "postgresql"
    assert works(store)


@pytest.mark.parametrize("driver", DRIVERS)
def test_connections_are_made_by_the_creator(database: str, driver: str) -> None:
    """The address is wrong, and `creator` knows better: every connection of the store is of its making."""
    made: list[object] = []
    url = make_url(database)
    address: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username}

    def create() -> object:
        made.append(driver)
        if driver == "pg8000":
            return pg8000.dbapi.connect(**address, database=url.database)
        return psycopg.connect(database)

    async def create_async() -> object:
        made.append(driver)
        if driver == "asyncpg":
            return await asyncpg.connect(**address, database=url.database)
        return await psycopg.AsyncConnection.connect(database)

    wrong = "postgresql://nobody@127.0.0.1:1/nothing"
    if driver in ("asyncpg", "psycopg_async"):
        engine = engine_for(wrong, driver, async_creator=create_async)
    else:
        engine = engine_for(wrong, driver, creator=create)
    assert works(stores.from_engine(engine, deadline=PATIENT))
    assert len(made) >= 3


@pytest.mark.parametrize("driver", DRIVERS)
def test_listeners_open_connections_too(database: str, driver: str) -> None:
    """One supplies what a token service would, another sets what every connection must have set."""
    user = "store_user"
    with psycopg.connect(database, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [user]).fetchall():
            connection.execute(f"CREATE ROLE {user} LOGIN")
        connection.execute(f"CREATE SCHEMA ours AUTHORIZATION {user}")
    engine = engine_for(str(make_url(database).set(username="nobody_yet")), driver)

    @event.listens_for(blocking_part(engine), "do_connect")
    def supply(dialect: object, record: object, args: object, parameters: dict[str, Any]) -> None:
        parameters["user"] = user

    @event.listens_for(blocking_part(engine), "connect")
    def set_path(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("SET search_path = ours")
        cursor.close()
        connection.commit()

    assert works(stores.from_engine(engine, deadline=PATIENT))
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT schemaname, tableowner FROM pg_tables WHERE tablename = 'retrysafe_records'"
        ).fetchall()
        connection.execute("DROP SCHEMA ours CASCADE")
    assert found == [("ours", user)]


@pytest.mark.parametrize("driver", SOME)
@pytest.mark.parametrize("pool", [NullPool, StaticPool])
def test_any_pool_will_do(database: str, driver: str, pool: type) -> None:
    """One that keeps no connection, and one that has a single one for everybody."""
    assert works(stores.from_engine(engine_for(database, driver, poolclass=pool), deadline=PATIENT))


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_exhausted_pool_does_not_concern_the_store(database: str, driver: str) -> None:
    """The application has taken the only connection of its engine, and waits for the store with it."""
    engine = engine_for(database, driver, pool_size=1, max_overflow=0, pool_timeout=0.1)
    store = stores.from_engine(engine, deadline=PATIENT)
    if isinstance(engine, Engine):
        with engine.connect():
            assert works(store)
        engine.dispose()
    else:

        async def inside(engine: AsyncEngine) -> None:
            async with engine.connect():
                assert await asyncio.to_thread(works, store)
            await engine.dispose()

        asyncio.run(inside(engine))


@pytest.mark.parametrize("driver", SOME)
def test_a_disposed_engine_does_not_concern_the_store(database: str, driver: str) -> None:
    """`dispose` replaces the engine's pool, as after a fork; the store opens its connections as before."""
    engine = engine_for(database, driver)
    store = stores.from_engine(engine, deadline=PATIENT)
    assert store.look(a_claim().id) is None
    blocking_part(engine).dispose(close=False)
    assert works(store)


@pytest.mark.parametrize("driver", SOME)
def test_strict_engines_work(database: str, driver: str) -> None:
    """The application wants every transaction serializable; our statements are repeated if need be."""
    store = stores.from_engine(engine_for(database, driver, isolation_level="SERIALIZABLE"), deadline=PATIENT)

    async def crowd() -> list[object]:
        return await asyncio.gather(*(store.aio.reserve(a_claim()) for _ in range(20)))

    assert sum(isinstance(answer, Reserved) for answer in asyncio.run(crowd())) == 1
    store.close()


# --- refusals


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_error_tells_no_password(database: str, driver: str) -> None:
    """What is told of a server that is not there, or of a role that is not known, is no secret."""
    for url in (
        make_url(database).set(port=1, password="hunter2"),
        make_url(database).set(username="unknown", password="hunter2"),
    ):
        store = stores.from_engine(engine_for(url.render_as_string(hide_password=False), driver))
        with pytest.raises(StoreUnavailable, match="cannot connect to PostgreSQL: ") as refused:
            store.look(a_claim().id)
        assert "hunter2" not in str(refused.value)
        with pytest.raises(StoreUnavailable, match="cannot connect to PostgreSQL: "):
            asyncio.run(store.aio.look(a_claim().id))
        store.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_a_creator_raises_is_named_only(database: str, driver: str) -> None:
    """Its words are the application's, and may hold a secret."""

    def create() -> object:
        raise LookupError("no token for hunter2")

    store = stores.from_engine(engine_for(database, driver, creator=create))
    with pytest.raises(StoreUnavailable, match=r"^cannot connect to PostgreSQL: LookupError$"):
        store.look(a_claim().id)
    store.close()


@pytest.mark.parametrize("driver", SOME)
def test_a_role_that_may_make_no_tables_is_told_who_can(database: str, driver: str) -> None:
    """The same words, whichever driver the engine has."""
    with psycopg.connect(database, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'poor'").fetchall():
            connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    store = stores.from_engine(
        engine_for(str(make_url(database).set(username="poor")), driver), deadline=PATIENT
    )
    with pytest.raises(SchemaMismatch, match=r"may not create them .*`retrysafe migrate` as a role"):
        store.reserve(a_claim())
    with pytest.raises(SchemaMismatch, match="this role may not create them"):
        asyncio.run(store.aio.reserve(a_claim()))
    store.close()


@pytest.mark.parametrize("driver", SOME)
def test_tables_of_another_version_are_refused(database: str, driver: str) -> None:
    """And none of them is touched."""
    store = stores.from_engine(engine_for(database, driver), deadline=PATIENT)
    assert works(store)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE retrysafe_meta SET value = '2' WHERE name = 'schema'")
    store = stores.from_engine(engine_for(database, driver), deadline=PATIENT)
    with pytest.raises(SchemaMismatch, match="schema version 2 and this release works with 1"):
        store.reserve(a_claim("three"))
    store.close()


# --- SQLite


@pytest.mark.parametrize("driver", ["pysqlite", "aiosqlite"])
def test_an_sqlite_engine_gives_the_store_on_its_file(tmp_path: Path, driver: str) -> None:
    engine = engine_for(f"sqlite:///{tmp_path}/app.db", driver)
    store = stores.from_engine(engine, deadline=PATIENT)
    assert isinstance(store, SQLiteStore)
    assert store.path == f"{tmp_path}/app.db"
    assert store.engine is engine
    assert store.joint.dialect == "sqlite"
    assert works(store)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///file:keys.db?uri=true", "by an SQLite URI"),
        ("sqlite:///file::memory:?uri=true&cache=shared", "by an SQLite URI"),
    ],
)
def test_sqlite_without_a_plain_file_is_refused(url: str, complaint: str) -> None:
    """A database in memory cannot be shared, and the options of a URI would not be."""
    with pytest.raises(ConfigurationError, match=complaint):
        stores.from_engine(create_engine(url))


# --- no engine at all


def test_what_is_no_engine_is_refused() -> None:
    for given in ("postgresql://localhost/db", None, object()):
        with pytest.raises(ConfigurationError, match=r"expected an Engine or an AsyncEngine"):
            stores.from_engine(given)  # type: ignore[arg-type]


def test_half_an_engine_is_refused() -> None:
    """An asynchronous engine's inner part cannot be used by itself."""
    engine = create_async_engine("postgresql+asyncpg://localhost/db")
    with pytest.raises(ConfigurationError, match="pass the AsyncEngine itself"):
        stores.from_engine(engine.sync_engine)


def test_a_deadline_lies_ahead() -> None:
    for url in ("sqlite:///app.db", "postgresql+pg8000://localhost/db", "postgresql+psycopg://localhost/db"):
        with pytest.raises(ConfigurationError, match="must be greater than 0, got 0"):
            stores.from_engine(create_engine(url), deadline=0)


def test_making_a_store_touches_nothing() -> None:
    """No file, no server: neither exists here."""
    for driver in DRIVERS:
        stores.from_engine(engine_for("postgresql://nobody@127.0.0.1:1/nothing", driver)).close()


def test_the_extra_is_named_where_sqlalchemy_is_missing() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from retrysafe import stores\n"
        "try: stores.from_engine(object())\n"
        "except stores.ConfigurationError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'retrysafe[sqlalchemy]'" in done.stdout


def test_psycopg_is_not_needed_for_other_drivers() -> None:
    """Nor is any driver loaded that the engine does not use."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from sqlalchemy import create_engine\n"
        "from sqlalchemy.ext.asyncio import create_async_engine\n"
        "from retrysafe import stores\n"
        "for engine in (create_async_engine('postgresql+asyncpg://x@127.0.0.1:1/y'),\n"
        "               create_engine('postgresql+pg8000://x@127.0.0.1:1/y')):\n"
        "    store = stores.from_engine(engine)\n"
        "    admin = store.open_admin()\n"
        "    for ask in (lambda: store.look(b''), admin.expired):\n"
        "        try: ask()\n"
        "        except Exception as error: print(error)\n"
        "    print([finding.level for finding in admin.diagnose()])\n"
        "    store.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("cannot connect to PostgreSQL") >= 4
