"""Operations whose effects are in the database of their records, alone and inside of one another."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import psycopg_pool
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import retrysafe.psycopg
import retrysafe.sqlite3
from retrysafe import CommitRefused, Guard, NotDone, NotJoined, current, scopes, stores
from retrysafe.operations import Done, InFlight, KeyReused, Undone, operation
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker

SERVICE = scopes.service("billing")


class Ledger(NamedTuple):
    """A table, and how a function writes to it in the transaction of its call."""

    guard: Guard
    write: Callable[[str], None]
    rows: Callable[[], list[str]]


@contextmanager
def by_sqlite3(path: Path) -> Generator[Ledger]:
    guard = Guard(f"sqlite:///{path}", scope=SERVICE)

    def write(item: str) -> None:
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES (?)", [item])

    def rows() -> list[str]:
        with retrysafe.sqlite3.connection(guard) as db:
            return sorted(item for (item,) in db.execute("SELECT item FROM items"))

    with retrysafe.sqlite3.connection(guard) as db:
        db.execute("CREATE TABLE items (item TEXT)")
    yield Ledger(guard, write, rows)
    guard.close()


@contextmanager
def by_session(engine: Engine) -> Generator[Ledger]:
    guard = Guard(stores.from_engine(engine), scope=SERVICE)
    sessions = sessionmaker(guard)

    def write(item: str) -> None:
        with sessions.begin() as session:
            session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})

    def rows() -> list[str]:
        with engine.connect() as db:
            return sorted(item for (item,) in db.execute(text("SELECT item FROM items")))

    with engine.begin() as db:
        db.execute(text("CREATE TABLE items (item TEXT)"))
    yield Ledger(guard, write, rows)
    guard.close()
    engine.dispose()


@contextmanager
def by_psycopg(url: str) -> Generator[Ledger]:
    guard = Guard(url, scope=SERVICE)
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=4) as pool:

        def write(item: str) -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES (%s)", [item])

        def rows() -> list[str]:
            with psycopg.connect(url) as db:
                return sorted(item for (item,) in db.execute("SELECT item FROM items"))

        with psycopg.connect(url) as db:
            db.execute("CREATE TABLE items (item TEXT)")
        yield Ledger(guard, write, rows)
    guard.close()


@pytest.fixture(params=["sqlite3", "pysqlite", "psycopg", "psycopg by an engine"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    path = tmp_path / "app.db"
    match request.param:
        case "sqlite3":
            made = by_sqlite3(path)
        case "pysqlite":
            made = by_session(create_engine(f"sqlite:///{path}"))
        case "psycopg":
            made = by_psycopg(request.getfixturevalue("database"))
        case _:
            url: str = request.getfixturevalue("database")
            made = by_session(create_engine(url.replace("postgresql:", "postgresql+psycopg:")))
    with made as found:
        yield found


def test_effects_and_value_are_committed_together(ledger: Ledger) -> None:
    """And what fails is undone, so that its key is free."""
    fails = [True]

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        ledger.write(item)
        if fails:
            raise RuntimeError(fails.pop())
        return item

    with pytest.raises(RuntimeError):
        order.once("tea", key="k")
    assert ledger.rows() == []
    assert order.once("tea", key="k") == Done("tea", replayed=False)
    assert order.once("tea", key="k") == Done("tea", replayed=True)
    assert ledger.rows() == ["tea"]


def test_an_exception_undoes_even_if_it_is_declared(ledger: Ledger) -> None:
    """Nothing is left of what raised, so there is no outcome to store: the retry runs, and finds the same."""
    calls: list[str] = []

    @operation(ledger.guard, effects="database", raises=(ValueError,))
    def order(item: str) -> None:
        calls.append(item)
        ledger.write(item)
        raise ValueError("sold out")

    for _ in range(2):
        with pytest.raises(ValueError, match="sold out"):
            order.once("tea", key="k")
    assert (ledger.rows(), calls) == ([], ["tea", "tea"])


def test_a_value_that_cannot_be_stored_undoes(ledger: Ledger) -> None:
    """A mistake of the function's costs nothing here."""

    @operation(ledger.guard, effects="database")
    def order(item: str) -> int:
        ledger.write(item)
        return item  # type: ignore[return-value]  # the mistake

    with pytest.raises(ValueError, match="is annotated to return int"):
        order.once("tea", key="k")
    assert ledger.rows() == []


class Nested(NamedTuple):
    outer: Any
    inner: Any
    log: list[str]


def nested(ledger: Ledger, *, fails: list[Exception] | None = None, catches: bool = False) -> Nested:
    """An operation inside of another one, both of which write."""
    log: list[str] = []

    @operation(ledger.guard, effects="database")
    def ship(item: str) -> str:
        ledger.write(f"ship {item}")
        current().on_commit(lambda: log.append(f"shipped {item}"))
        if fails:
            raise fails.pop()
        return f"parcel of {item}"

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        ledger.write(f"order {item}")
        try:
            first = ship.once(item, key=f"ship-{item}")
        except RuntimeError:
            if not catches:
                raise
            return "not shipped"
        again = ship.once(item, key=f"ship-{item}")
        assert (again.value, again.replayed) == (first.value, True)
        log.append("replayed" if first.replayed else "ran")
        return first.value

    return Nested(order, ship, log)


def test_a_nested_operation_has_its_own_record_in_the_same_transaction(ledger: Ledger) -> None:
    """Its key is known inside of it and afterwards; what it left for the commit waits for the outer one."""
    order, ship, log = nested(ledger)
    assert order.once("tea", key="k") == Done("parcel of tea", replayed=False)
    assert ledger.rows() == ["order tea", "ship tea"]
    assert log == ["ran", "shipped tea"]
    assert ship.once("tea", key="ship-tea") == Done("parcel of tea", replayed=True)
    with pytest.raises(KeyReused):
        ship.once("rum", key="ship-tea")
    assert order.once("tea", key="k").replayed


def test_one_that_was_done_before_is_replayed_inside(ledger: Ledger) -> None:
    """Its effect is not repeated for the sake of the outer one."""
    order, ship, log = nested(ledger)
    ship.once("tea", key="ship-tea")
    assert order.once("tea", key="k").value == "parcel of tea"
    assert ledger.rows() == ["order tea", "ship tea"]
    assert log == ["shipped tea", "replayed"]


def test_what_fails_inside_undoes_both(ledger: Ledger) -> None:
    """And both may be tried again."""
    order, ship, log = nested(ledger, fails=[RuntimeError("no van")])
    with pytest.raises(RuntimeError, match="no van"):
        order.once("tea", key="k")
    assert ledger.rows() == []
    assert order.once("tea", key="k") == Done("parcel of tea", replayed=False)
    assert ledger.rows() == ["order tea", "ship tea"]
    assert ship.once("tea", key="ship-tea").replayed
    assert log == ["ran", "shipped tea"]


@pytest.mark.parametrize("error", [RuntimeError("no van"), NotDone("no van")], ids=repr)
def test_a_failure_that_is_caught_undoes_both_all_the_same(ledger: Ledger, error: Exception) -> None:
    """What it wrote cannot be undone alone, and must not be committed without its record."""
    order, _, log = nested(ledger, fails=[error], catches=True)
    with pytest.raises((Undone, NotDone)) as undone:
        order.once("tea", key="k")
    if isinstance(undone.value, Undone):
        assert isinstance(undone.value.__cause__, CommitRefused)
        assert "the operation ship, a part of it, failed" in str(undone.value.__cause__)
    assert (ledger.rows(), log) == ([], [])
    assert order.once("tea", key="k").value == "parcel of tea"
    assert ledger.rows() == ["order tea", "ship tea"]


def test_the_outer_one_fails_afterwards(ledger: Ledger) -> None:
    """The record of the inner one is gone with what it wrote."""
    _, ship, log = nested(ledger)

    @operation(ledger.guard, effects="database")
    def order(item: str) -> None:
        ship.once(item, key="ship-tea")
        raise RuntimeError("no money")

    with pytest.raises(RuntimeError, match="no money"):
        order.once("tea", key="k")
    assert (ledger.rows(), log) == ([], [])
    assert ship.once("tea", key="ship-tea") == Done("parcel of tea", replayed=False)


def test_one_that_runs_elsewhere_is_in_flight(ledger: Ledger) -> None:
    """It is not waited for inside of a transaction."""
    begun, go_on = threading.Event(), threading.Event()

    @operation(ledger.guard, effects="database", action="ship")
    def slow(item: str) -> str:
        begun.set()
        assert go_on.wait(30)
        return item

    @operation(ledger.guard, effects="database")
    def order(item: str) -> None:
        slow.once(item, key="ship")

    thread = threading.Thread(target=lambda: slow.once("tea", key="ship"))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(InFlight):
        order.once("tea", key="k")
    go_on.set()
    thread.join(30)
    order.once("tea", key="k")


def test_the_same_key_inside_of_two_at_once(ledger: Ledger) -> None:
    """One of both does it.  The other one is undone, and its retry finds it done."""
    together = threading.Barrier(2)
    calls: list[str] = []

    @operation(ledger.guard, effects="database")
    def ship(item: str) -> str:
        calls.append(item)
        ledger.write("ship")
        return item

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        together.wait(30)
        ledger.write(f"order {item}")
        return ship.once("tea", key="ship").value

    results: dict[str, object] = {}

    def run(item: str) -> None:
        try:
            results[item] = order.try_once(item, key=item)
        except (NotDone, Undone) as undone:
            # SQLite's one writer was waited for too long; or what the function got from the inner one.
            results[item] = undone

    threads = [threading.Thread(target=run, args=(item,)) for item in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    together.abort()
    assert ledger.rows().count("ship") == 1
    for item, result in results.items():
        if not isinstance(result, Done):
            assert isinstance(result, Undone | NotDone)
            done = _retried(ledger, ship, item)
            assert done.value == "tea"
    assert ledger.rows() == ["order a", "order b", "ship"]


def _retried(ledger: Ledger, ship: Any, item: str) -> Done[str]:
    @operation(ledger.guard, effects="database", action="order")
    def order(item: str) -> str:
        ledger.write(f"order {item}")
        return ship.once("tea", key="ship").value  # type: ignore[no-any-return]

    return order.once(item, key=item)


def test_an_operation_with_other_effects_inside_of_a_transaction(ledger: Ledger) -> None:
    """Its key is reserved beside the transaction, if the database can do both.  SQLite says so at once."""

    @operation(ledger.guard)
    def charge(item: str) -> str:
        return item

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        charge.once(item, key="before")
        ledger.write(item)
        return charge.once(item, key="after").value

    if "sqlite" in repr(ledger.guard.store).lower():
        with pytest.raises(NotJoined, match="Call it before the first write"):
            order.once("tea", key="k")
        assert ledger.rows() == []
        assert charge.once("tea", key="before").replayed
    else:
        assert order.once("tea", key="k").value == "tea"
        assert charge.once("tea", key="after").replayed


def test_one_that_writes_nothing_is_stored_beside_the_transaction(ledger: Ledger) -> None:
    """There is nothing that its record would have to be committed with."""

    @operation(ledger.guard, effects="database")
    def look(item: str) -> str:
        return item

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        return look.once(item, key="look").value

    assert order.once("tea", key="k").value == "tea"
    assert look.once("tea", key="look").replayed


def test_what_is_called_after_the_commit_is_on_its_own(ledger: Ledger) -> None:
    """The transaction is over: it has one of its own."""
    _, ship, log = nested(ledger)

    @operation(ledger.guard, effects="database")
    def order(item: str) -> str:
        ledger.write(f"order {item}")
        current().on_commit(lambda: log.append(ship.once(item, key="ship").value))
        return item

    order.once("tea", key="k")
    assert log == ["shipped tea", "parcel of tea"]
    assert ledger.rows() == ["order tea", "ship tea"]
    assert ship.once("tea", key="ship").replayed


def test_a_session_that_is_passed_joins_and_goes_on_afterwards(tmp_path: Path) -> None:
    """As people pass sessions: opened by the caller, used inside, and again outside."""
    with by_session(create_engine(f"sqlite:///{tmp_path}/app.db")) as ledger:
        sessions = sessionmaker(ledger.guard)

        @operation(ledger.guard, effects="database", ignore=("session",))
        def order(session: Any, item: str) -> str:
            session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})
            session.commit()
            if item == "rum":
                raise RuntimeError("no rum")
            return item

        with sessions() as session:
            session.execute(text("SELECT * FROM items")).all()
            assert order.once(session, "tea", key="k").value == "tea"
            with pytest.raises(RuntimeError):
                order.once(session, "rum", key="r")
            session.execute(text("INSERT INTO items VALUES ('milk')"))
            session.commit()
        assert ledger.rows() == ["milk", "tea"]


# --- the same on an event loop


class AsyncLedger(NamedTuple):
    guard: Guard
    write: Callable[[str], Awaitable[None]]
    rows: Callable[[], Awaitable[list[str]]]


@asynccontextmanager
async def by_async_session(engine: AsyncEngine) -> AsyncGenerator[AsyncLedger]:
    guard = Guard(stores.from_engine(engine), scope=SERVICE)
    sessions = async_sessionmaker(guard)

    async def write(item: str) -> None:
        async with sessions.begin() as session:
            await session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})

    async def rows() -> list[str]:
        async with engine.connect() as db:
            return sorted(item for (item,) in await db.execute(text("SELECT item FROM items")))

    async with engine.begin() as db:
        await db.execute(text("CREATE TABLE items (item TEXT)"))
    yield AsyncLedger(guard, write, rows)
    guard.close()
    await engine.dispose()


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncGenerator[AsyncLedger]:
    guard = Guard(url, scope=SERVICE)
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=4, open=False) as pool:

        async def write(item: str) -> None:
            async with retrysafe.psycopg.connection_async(guard, pool) as db:
                await db.execute("INSERT INTO items VALUES (%s)", [item])

        async def rows() -> list[str]:
            async with await psycopg.AsyncConnection.connect(url) as db:
                found = await (await db.execute("SELECT item FROM items")).fetchall()
                return sorted(item for (item,) in found)

        async with await psycopg.AsyncConnection.connect(url) as db:
            await db.execute("CREATE TABLE items (item TEXT)")
        yield AsyncLedger(guard, write, rows)
    guard.close()


def on_each_driver(
    driver: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    check: Callable[[AsyncLedger], Awaitable[None]],
) -> None:
    """Check what happens on an event loop with one of the asynchronous drivers."""

    async def main() -> None:
        if driver == "aiosqlite":
            made = by_async_session(create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db"))
        else:
            url: str = request.getfixturevalue("database")
            if driver == "asyncpg":
                made = by_async_session(
                    create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
                )
            else:
                made = by_async_psycopg(url)
        async with made as ledger:
            await check(ledger)

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["aiosqlite", "asyncpg", "psycopg"])
def test_nested_coroutines(driver: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Own record, same transaction; what fails or is cancelled inside undoes both."""
    on_each_driver(driver, tmp_path, request, check_nested)


async def check_nested(ledger: AsyncLedger) -> None:
    mood = ["raise", "hang", "work"]
    hanging = asyncio.Event()

    @operation(ledger.guard, effects="database")
    async def ship(item: str) -> str:
        await ledger.write(f"ship {item}")
        match mood.pop(0):
            case "raise":
                raise RuntimeError("no van")
            case "hang":
                hanging.set()
                await asyncio.sleep(60)
            case _:
                pass
        return f"parcel of {item}"

    @operation(ledger.guard, effects="database")
    async def order(item: str) -> str:
        await ledger.write(f"order {item}")
        try:
            async with asyncio.timeout(0.5 if mood[0] == "hang" else None):
                return (await ship.once(item, key="ship")).value
        except (RuntimeError, TimeoutError):
            return "not shipped"

    for _ in range(2):
        with pytest.raises(Undone):
            await order.once("tea", key="k")
        assert await ledger.rows() == []
    assert hanging.is_set()
    assert await order.once("tea", key="k") == Done("parcel of tea", replayed=False)
    assert await ledger.rows() == ["order tea", "ship tea"]
    assert await ship.once("tea", key="ship") == Done("parcel of tea", replayed=True)
    assert await order.once("tea", key="k") == Done("parcel of tea", replayed=True)
