"""Ways to have an operation reported as what it was not."""

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import retrysafe.sqlite3
from retrysafe import ConfigurationError, Guard, NotDone, NotJoined, current
from retrysafe._runtime import admission
from retrysafe.operations import Done, KeyReused, PreviouslyFailed, Undone, once, operation
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from tests.operations.test_transactions import (
    AsyncLedger,
    by_async_session,
    by_session,
    by_sqlite3,
    on_each_driver,
)


def test_one_that_found_no_connection_was_not_done(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its function was not called: there is no value that could be given for it."""
    monkeypatch.setattr(admission, "PATIENCE", 0.05)

    async def main() -> None:
        engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:"))
        async with by_async_session(engine) as ledger:
            ledger.guard.runtime.at_most(1)
            begun, go_on = asyncio.Event(), asyncio.Event()

            @operation(ledger.guard, effects="database")
            async def order(item: str) -> str:
                await ledger.write(item)
                begun.set()
                await go_on.wait()
                return item

            first = asyncio.create_task(order.once("tea", key="first"))
            await begun.wait()
            refused = await order.try_once("rum", key="second")
            assert isinstance(refused, Undone)
            assert (refused.code, refused.retry) == ("not-done", True)
            go_on.set()
            assert await first == Done("tea", replayed=False)
            assert await order.once("rum", key="second") == Done("rum", replayed=False)

    asyncio.run(main())


class Declined(Exception):
    """An outcome of a payment, as an operation declares it."""


@pytest.mark.parametrize("options", [{"no_store": True}, {"max_response": 10}], ids=str)
def test_a_declared_exception_that_was_not_stored_is_no_success(memory: Guard, options: Any) -> None:
    """What it said is not known any more, but that it was not a value is."""
    calls: list[int] = []

    @operation(memory, raises=(Declined,), **options)
    def charge() -> int:
        calls.append(1)
        raise Declined("insufficient funds")

    with pytest.raises(Declined):
        charge.once(key="k")
    with pytest.raises(PreviouslyFailed) as refused:
        charge.once(key="k")
    failure = refused.value.failure
    assert failure is not None
    assert (failure.type, failure.message) == (None, "")
    assert len(calls) == 1


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_without_a_text_is_stored(memory: Guard) -> None:
    """The caller gets it, and the retry is told its class: its own code does not decide what is recorded."""

    @operation(memory)
    def charge() -> None:
        raise Silent

    with pytest.raises(Silent):
        charge.once(key="k")
    with pytest.raises(PreviouslyFailed) as refused:
        charge.once(key="k")
    failure = refused.value.failure
    assert failure is not None
    assert (failure.type, failure.message) == ("Silent", "")


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as many are written: a plain function around whatever it is given."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


async def charge_later() -> int:
    return 1


def charge_bit_by_bit() -> Iterator[int]:
    yield 1


def charge_in_a_task() -> "asyncio.Future[int]":
    loop = asyncio.new_event_loop()
    loop.close()
    return loop.create_future()


async def charge_bit_by_bit_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [charge_later, charge_bit_by_bit, charge_in_a_task, charge_bit_by_bit_later]
)
def test_what_has_not_run_is_not_done(memory: Guard, function: Callable[..., Any]) -> None:
    """A coroutine or a generator is work that is still to be done, and may fail or never be asked for."""
    charge: Any = operation(memory, action="charge", returns=int)(passed_on(function))
    with pytest.raises(TypeError, match="call_async"):
        charge.once(key="k")
    with pytest.raises(PreviouslyFailed):
        charge.once(key="k")
    with pytest.raises(TypeError, match="call_async"):
        once(memory, key="plain", action="charge", returns=int).call(passed_on(function))


def test_a_plain_function_that_is_to_be_awaited(memory: Guard) -> None:
    """It has run, so the failure stands; and says what to write instead."""
    call: Any = once(memory, key="k", action="charge").call_async
    with pytest.raises(TypeError, match=r"charge: .* int, which cannot be awaited.*\.call\("):
        asyncio.run(call(len, "abc"))
    with pytest.raises(PreviouslyFailed):
        asyncio.run(call(len, "abc"))


def test_a_refusal_that_the_function_raises_is_its_own(memory: Guard) -> None:
    """As any exception of it: returned as a refusal of this call it would say that nothing was done."""

    @operation(memory)
    def reserve(item: str) -> str:
        return item

    @operation(memory)
    def order(item: str) -> None:
        reserve.once("rum", key="reserve")
        reserve.once(item, key="reserve")

    @operation(memory)
    async def order_async(item: str) -> None:
        order(item)

    with pytest.raises(KeyReused):
        order.try_once("tea", key="k")
    assert isinstance(order.try_once("tea", key="k"), PreviouslyFailed)
    with pytest.raises(KeyReused):
        asyncio.run(order_async.try_once("tea", key="a"))
    assert isinstance(asyncio.run(order_async.try_once("tea", key="a")), PreviouslyFailed)


@pytest.mark.parametrize(
    "options",
    [{"raises": (NotDone,)}, {"raises": (ConnectionResetError,), "retry_on": (OSError,)}],
    ids=["NotDone", "retry_on"],
)
def test_an_exception_cannot_settle_and_release(memory: Guard, options: Any) -> None:
    """Stored, it would use up the key of a call that is known not to have happened."""
    with pytest.raises(ConfigurationError, match=r"raises= has .*, which says that nothing was done"):
        operation(memory, **options)(passed_on(charge_later))


@pytest.mark.parametrize("fails", [True, False], ids=["rolled back", "returned"])
@pytest.mark.parametrize("driver", ["aiosqlite", "asyncpg", "psycopg"])
def test_a_part_that_outlives_its_transaction(
    driver: str, fails: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What it wrote is undone with the rest, so no record may say that it was done; and while it runs, what
    it wrote must not be committed without its record."""

    async def check(ledger: AsyncLedger) -> None:
        wrote, go_on = asyncio.Event(), asyncio.Event()
        parts: list[asyncio.Task[Done[str]]] = []

        @operation(ledger.guard, effects="database")
        async def ship(item: str) -> str:
            await ledger.write(f"ship {item}")
            wrote.set()
            await go_on.wait()
            return item

        @operation(ledger.guard, effects="database")
        async def order(item: str) -> str:
            await ledger.write(f"order {item}")
            parts.append(asyncio.create_task(ship.once(item, key="ship")))
            await wrote.wait()
            if fails:
                raise RuntimeError("no money")
            return item

        with pytest.raises(RuntimeError if fails else Undone) as undone:
            await order.once("tea", key="order")
        if not fails:
            assert "the operation ship, a part of it, was still running" in str(undone.value.__cause__)
        go_on.set()
        with pytest.raises(NotJoined, match="has ended without it"):
            await parts[0]
        assert await ledger.rows() == []
        assert await ship.once("tea", key="ship") == Done("tea", replayed=False)
        assert await ledger.rows() == ["ship tea"]

    on_each_driver(driver, tmp_path, request, check)


@pytest.mark.parametrize("server", ["pysqlite", "psycopg"])
def test_a_session_that_its_caller_means_to_commit(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The operation is over before that: its record must not say that it was done, for it will be undone."""
    with by_session(create_engine(_url_of(server, tmp_path, request))) as ledger:
        sessions = sessionmaker(ledger.guard)

        @operation(ledger.guard, effects="database", ignore=("session",))
        def order(session: Session, item: str, *, commits: bool = True) -> int:
            if item:
                session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})
            found = session.execute(text("SELECT count(*) FROM items")).scalar_one()
            if commits:
                session.commit()
            return int(found)

        with sessions() as session:
            refused = order.try_once(session, "tea", commits=False, key="k")
        assert isinstance(refused, Undone)
        assert "commit in the function" in str(refused.__cause__)
        assert ledger.rows() == []
        with sessions() as session:
            assert order.once(session, "tea", key="k") == Done(1, replayed=False)
        assert ledger.rows() == ["tea"]
        with sessions() as session:
            # Where nothing was written, nothing has to be committed.
            assert order.once(session, "", commits=False, key="look") == Done(1, replayed=False)


def test_a_connection_whose_block_is_left_open(tmp_path: Path) -> None:
    """The same for connections of sqlite3; those of psycopg are refused for requests as well."""
    with by_sqlite3(tmp_path / "app.db") as ledger:
        blocks = ExitStack()

        @operation(ledger.guard, effects="database")
        def order(item: str) -> str:
            db = blocks.enter_context(retrysafe.sqlite3.connection(ledger.guard))
            db.execute("INSERT INTO items VALUES (?)", [item])
            return item

        with pytest.raises(Undone) as refused:
            order.once("tea", key="k")
        assert "leave its block in the function" in str(refused.value.__cause__)
        assert ledger.rows() == []
        with pytest.raises(sqlite3.ProgrammingError):
            blocks.close()


@pytest.mark.parametrize("driver", ["aiosqlite", "asyncpg", "psycopg"])
def test_a_blocking_part_of_an_asynchronous_transaction(
    driver: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is a mistake, and not trouble with the store that another call would not have."""

    async def check(ledger: AsyncLedger) -> None:
        @operation(ledger.guard, effects="database")
        def ship(item: str) -> str:
            return item

        @operation(ledger.guard, effects="database")
        async def order(item: str) -> str:
            await ledger.write(item)
            return (await asyncio.to_thread(ship.once, item, key="ship")).value

        with pytest.raises(NotJoined, match="make the operation an `async def`"):
            await order.once("tea", key="order")
        assert await ledger.rows() == []

    on_each_driver(driver, tmp_path, request, check)


@pytest.mark.parametrize("reader", ["closed", "rolled back", "failed"])
@pytest.mark.parametrize("server", ["pysqlite", "psycopg"])
def test_the_record_of_a_part_stays_with_what_it_wrote(
    server: str, reader: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever becomes of a session around it that has only read: without it, it would be done again."""
    with by_session(create_engine(_url_of(server, tmp_path, request))) as ledger:
        sessions = sessionmaker(ledger.guard)

        @operation(ledger.guard, effects="database")
        def ship(item: str) -> str:
            ledger.write(f"ship {item}")
            return item

        @operation(ledger.guard, effects="database")
        def order(item: str) -> None:
            with suppress(RuntimeError), sessions() as session:
                session.execute(text("SELECT count(*) FROM items"))
                ship.once(item, key="ship")
                if reader == "rolled back":
                    session.rollback()
                elif reader == "failed":
                    raise RuntimeError("no van")

        order.once("tea", key="order")
        assert ledger.rows() == ["ship tea"]
        assert ship.once("tea", key="ship") == Done("tea", replayed=True)
        assert ledger.rows() == ["ship tea"]


def _url_of(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if server == "pysqlite":
        return f"sqlite:///{tmp_path}/app.db"
    url: str = request.getfixturevalue("database")
    return url.replace("postgresql:", "postgresql+psycopg:")


def test_what_a_part_left_for_the_commit_is_undone_with_it(tmp_path: Path) -> None:
    """A block that is rolled back takes the part and its record with it: nothing is to be told of it."""
    log: list[str] = []
    with by_sqlite3(tmp_path / "app.db") as ledger:

        @operation(ledger.guard, effects="database")
        def pack(item: str) -> None:
            ledger.write(f"pack {item}")
            current().on_commit(lambda: log.append(f"packed {item}"))

        @operation(ledger.guard, effects="database")
        def ship(item: str) -> None:
            pack.once(item, key=f"pack-{item}")
            current().on_commit(lambda: log.append(f"shipped {item}"))

        @operation(ledger.guard, effects="database")
        def order() -> None:
            current().on_commit(lambda: log.append("ordered"))
            with suppress(RuntimeError), retrysafe.sqlite3.connection(ledger.guard):
                ship.once("tea", key="undone")
                raise RuntimeError("no van")
            ship.once("rum", key="done")

        order.once(key="k")
        assert ledger.rows() == ["pack rum"]
        assert log == ["packed rum", "shipped rum", "ordered"]


def test_the_same_on_an_event_loop(tmp_path: Path) -> None:
    """There what was left may be a coroutine function."""

    async def check() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        async with by_async_session(engine) as ledger:
            sessions = async_sessionmaker(ledger.guard)
            log: list[str] = []

            @operation(ledger.guard, effects="database", ignore=("session",))
            async def ship(session: AsyncSession, item: str) -> None:
                await session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})

                async def tell() -> None:
                    log.append(f"shipped {item}")

                current().on_commit(tell)

            @operation(ledger.guard, effects="database")
            async def order() -> None:
                async with sessions.begin() as session:
                    undone = await session.begin_nested()
                    await ship.once(session, "tea", key="undone")
                    await undone.rollback()
                    await ship.once(session, "rum", key="done")

            await order.once(key="k")
            assert await ledger.rows() == ["rum"]
            assert log == ["shipped rum"]

    asyncio.run(check())


def test_a_connection_that_was_opened_before(tmp_path: Path) -> None:
    """It is not a part of the transaction: what it wrote would be committed without the record, and again."""
    with by_sqlite3(tmp_path / "app.db") as ledger, retrysafe.sqlite3.connection(ledger.guard) as db:

        @operation(ledger.guard, effects="database")
        def order(item: str) -> int:
            found: int = db.execute("SELECT count(*) FROM items").fetchone()[0]
            if item:
                db.execute("INSERT INTO items VALUES (?)", [item])
            return found

        with pytest.raises(NotJoined, match="Open it in the function"):
            order.once("tea", key="k")
        assert ledger.rows() == []
        assert order.once("", key="reads") == Done(0, replayed=False)
        db.execute("INSERT INTO items VALUES ('afterwards')")
        db.commit()
        assert ledger.rows() == ["afterwards"]
