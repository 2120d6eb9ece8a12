"""The table "what is answered" of the page about transactions, played out line by line; and its numbers."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, create_engine, orm, text

from retrysafe import Guard, NotDone, asgi, current, scopes, stores
from retrysafe.sqlalchemy import sessionmaker
from retrysafe.stores.queue import ALONE
from tests.core.asgi_calls import Client
from tests.docs.pages import page

TEXT = page("docs/transactions.md").text
INSERT = text("INSERT INTO items VALUES ('a')")
LARGE = 2000


class Shop:
    """A service whose handler is written in a test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("CREATE TABLE items (name TEXT)")
            database.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
            database.execute(
                "CREATE TABLE later (n INTEGER REFERENCES numbers DEFERRABLE INITIALLY DEFERRED)"
            )
        self.engine = create_engine(f"sqlite:///{self.path}")
        self.other = create_engine(f"sqlite:///{folder / 'other.db'}")
        self.guard, self.others = (a_guard(engine) for engine in (self.engine, self.other))
        self.Session = sessionmaker(self.guard)

    def put(self) -> None:
        with self.Session.begin() as session:
            session.execute(INSERT)

    async def ask(self, handler: "Handler") -> Client:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, kind, body = await asyncio.to_thread(handler, self)
            head = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}
            await send(head)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"."})

        client = Client(asgi.Middleware(app, self.guard))
        try:
            return await client()
        except Exception:  # noqa: BLE001 - the handler's own, raised again for the server's log
            return client

    def effects(self) -> int:
        with closing(sqlite3.connect(self.path)) as database:
            [count] = database.execute("SELECT count(*) FROM items").fetchone()
            return int(count)

    def close(self) -> None:
        self.guard.close()
        self.others.close()
        self.engine.dispose()
        self.other.dispose()


def a_guard(engine: Engine) -> Guard:
    return Guard(
        stores.from_engine(engine),
        scope=scopes.header("X-Tenant"),
        effects="database",
        max_response=LARGE // 2,
        retry_on=(KeyError,),
    )


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


Answer = tuple[int, bytes, bytes]
Handler = Callable[[Shop], Answer]


def answers(status: int, kind: bytes = b"text/plain", body: bytes = b"answer") -> Handler:
    def handler(shop: Shop) -> Answer:
        shop.put()
        return status, kind, body

    return handler


def raises(error: Exception) -> Handler:
    def handler(shop: Shop) -> Answer:
        shop.put()
        raise error

    return handler


def says_not_started(shop: Shop) -> Answer:
    current().not_started()
    return answers(409)(shop)


def rolls_back(shop: Shop) -> Answer:
    with shop.Session() as session:
        session.execute(INSERT)
        session.rollback()
    return 409, b"text/plain", b"answer"


def sends(statement: str) -> Handler:
    def handler(shop: Shop) -> Answer:
        with shop.Session() as session:
            session.execute(INSERT)
            session.execute(text(statement))
        raise AssertionError("it should have been refused")

    return handler


def uses_nothing(shop: Shop) -> Answer:
    with orm.Session(shop.engine) as session:
        session.execute(INSERT)
        session.commit()
    return 201, b"text/plain", b"answer"


def uses_another_guard(shop: Shop) -> Answer:
    shop.put()
    with sessionmaker(shop.others)() as session:
        session.execute(INSERT)
    raise AssertionError("it should have been refused")


def uses_two_databases(shop: Shop) -> Answer:
    with shop.Session() as session:
        session.execute(INSERT)
        session.execute(INSERT, bind_arguments={"bind": shop.other})
    raise AssertionError("it should have been refused")


def violates_later(shop: Shop) -> Answer:
    with shop.Session.begin() as session:
        session.execute(text("PRAGMA defer_foreign_keys = ON"))
        session.execute(INSERT)
        session.execute(text("INSERT INTO later VALUES (7)"))
    return 201, b"text/plain", b"answer"


class Line(NamedTuple):
    """A line of the table, as it begins; handlers that do it; the status; whether row and key are stored."""

    title: str
    handlers: list[Handler]
    status: int | None
    effect: bool
    kept: bool


LINES = [
    Line("the handler responds 2xx", [answers(200), answers(302), answers(404)], None, True, True),
    Line("… but 401", [answers(401), answers(429), says_not_started], None, False, False),
    Line("the handler responds 5xx", [answers(500), answers(503)], None, False, False),
    Line("it raises |", [raises(RuntimeError())], 500, False, False),
    Line("it raises `NotDone`", [raises(NotDone()), raises(KeyError())], 503, False, False),
    Line("it calls `rollback()`", [rolls_back], 409, False, True),
    Line("it sends `COMMIT`", [sends("COMMIT"), sends("ROLLBACK"), sends("BEGIN")], 500, False, False),
    Line("it uses no session", [uses_nothing], 201, True, True),
    Line("it uses another guard's", [uses_another_guard], 500, False, False),
    Line("one session, two databases", [uses_two_databases], 500, False, False),
    Line("an event stream", [answers(200, b"text/event-stream")], 500, False, False),
    Line("a body larger", [answers(200, body=b"x" * LARGE)], 200, True, True),
]


def rows() -> list[str]:
    table = TEXT.partition("| what happens | effects | the client gets | the key |")[2].partition("\n\n")[0]
    return [row.removeprefix("| ") for row in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("line", "handler"),
    [pytest.param(line, handler, id=f"{line.title} {number}") for line in LINES
     for number, handler in enumerate(line.handlers)],
)  # fmt: skip
def test_line(line: Line, handler: Handler, shop: Shop) -> None:
    """The row is there or not, the client is told the status, the key is stored or free: as the page says."""
    [row] = [row for row in rows() if row.startswith(line.title)]
    _, effects, told, key = [cell.strip() for cell in row.removesuffix("|").split("|")]

    async def play() -> tuple[Client, Client]:
        return await shop.ask(handler), await shop.ask(handler)

    first, again = asyncio.run(play())
    assert effects.startswith("undone") <= (not line.effect)
    assert effects.startswith("committed") <= line.effect
    assert shop.effects() == line.effect
    assert line.status is None or first.status == line.status
    assert first.status < 500 or line.status is None or told.startswith(str(line.status))
    assert key.startswith("stored") == line.kept
    assert again.replayed == line.kept


def test_a_constraint_that_is_checked_at_the_end(shop: Shop) -> None:
    """The client gets an error, nothing is there, and the key is free."""
    from sqlalchemy import event

    @event.listens_for(shop.engine, "connect")
    def obey(connection: Any, _: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")

    first = asyncio.run(shop.ask(violates_later))
    assert (first.status, shop.effects()) == (500, 0)
    assert (b"x-should-retry", b"true") in first.got[0]["headers"]
    assert not asyncio.run(shop.ask(violates_later)).replayed


def test_numbers_of_connections() -> None:
    """Those of the page are those of the code, whichever way a store reaches PostgreSQL."""
    shown = [int(number) for number in re.findall(r"^\| for (?:threads|each).*\| (\d+) \|$", TEXT, re.M)]
    assert shown == [1 + ALONE, 1 + ALONE]
