"""Our statements on a psycopg connection of the application's."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from retrysafe.stores.queue import Arguments, Row

_PREPARED = False
"""psycopg would prepare them by name at the sixth time, and the application's connection may go through a
pooler that gives the next transaction to another session, where that name is unknown or means something else.
Whether its own statements can be prepared is for the application to say (`prepare_threshold`)."""


def fetch(db: Connection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    # A plain cursor, whichever the application prefers: each kind has arguments of another form.
    with Cursor(db, row_factory=tuple_row) as cursor:
        return cursor.execute(_pyformat(sql), arguments, prepare=_PREPARED).fetchall()


async def fetch_async(db: AsyncConnection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    async with AsyncCursor(db, row_factory=tuple_row) as cursor:
        await cursor.execute(_pyformat(sql), arguments, prepare=_PREPARED)
        return await cursor.fetchall()


@cache
def _pyformat(sql: str) -> bytes:
    """`:named` arguments as psycopg has them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql.replace("%", "%%")).encode()
