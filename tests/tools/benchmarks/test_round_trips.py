"""What a request says to PostgreSQL, counted by the server: every statement is a round trip, and shows.

But for the COMMIT that psycopg sends with the completion: `tests/transactions/test_one_round_trip.py`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from benchmarks import apps, writing
from benchmarks.load import BODY
from retrysafe.testing.postgres import PostgresServer

KINDS = {
    "WITH found AS MATERIALIZED": "reserve",
    "UPDATE retrysafe_records": "complete",
    "WITH concluded AS": "complete",
    "BEGIN": "begin",
    "SAVEPOINT": "savepoint",
    "INSERT INTO charges": "insert",
    "RELEASE SAVEPOINT": "release",
    "COMMIT": "commit",
    "ROLLBACK": "rollback",
}
"""What else is said, the lease keeper and the pools say on their own account."""

JOINED = ["reserve", "begin", "insert", "complete", "commit"]


@pytest.mark.parametrize(
    ("app", "fresh"),
    [
        (apps.at_address, ["reserve", "complete"]),
        (writing.psycopg_tx, JOINED),
        (writing.session_tx, JOINED),
        (writing.async_session_tx, JOINED),
        (writing.asyncpg_session_tx, JOINED),
    ],
)
def test_round_trips(
    app: Any, fresh: list[str], postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """A fresh key costs two statements beside the handler's own, and a replay one in all."""
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {db.info.dbname} SET log_statement = 'all'".encode())
    (tmp_path / apps.ADDRESS).write_text(database)
    served = app(tmp_path)

    async def run() -> None:
        async with _client(served) as client:
            await _charge(client, "opens-connections")
            assert await _said(postgres, client, "a-fresh-key") == fresh
            assert await _said(postgres, client, "a-fresh-key") == ["reserve"]

    asyncio.run(run())


async def _said(server: PostgresServer, client: httpx.AsyncClient, key: str) -> list[str]:
    """Kinds of statements, in their order.  The server writes each into its log before it carries it out."""
    before = len(server.log)
    await _charge(client, key)
    said = re.findall(r"LOG:  (?:statement|execute [^:]*): (.*)", server.log[before:])
    return [kind for text in said for start, kind in KINDS.items() if text.startswith(start)]


async def _charge(client: httpx.AsyncClient, key: str) -> None:
    answer = await client.post("/charges", content=BODY, headers={"idempotency-key": key})
    assert answer.status_code == 201, answer.text


@asynccontextmanager
async def _client(app: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the application, which is started before and shut down afterwards."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, told.get, heard.put))
    await told.put({"type": "lifespan.startup"})
    assert (await heard.get())["type"] == "lifespan.startup.complete"
    headers = {"content-type": "application/json", "x-tenant": "acme"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        yield client
    await told.put({"type": "lifespan.shutdown"})
    await life
