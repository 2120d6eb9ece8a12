"""Our statements on a psycopg connection of the application's."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from retrysafe.stores.sql.operations import Arguments, Row


def fetch(db: Connection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    # A plain cursor, whichever the application prefers: each kind has arguments of another form.
    with Cursor(db, row_factory=tuple_row) as cursor:
        return cursor.execute(_pyformat(sql), arguments).fetchall()


async def fetch_async(db: AsyncConnection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    async with AsyncCursor(db, row_factory=tuple_row) as cursor:
        await cursor.execute(_pyformat(sql), arguments)
        return await cursor.fetchall()


@cache
def _pyformat(sql: str) -> bytes:
    """`:named` arguments as psycopg has them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql.replace("%", "%%")).encode()
