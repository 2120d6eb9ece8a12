"""Our statements on a psycopg connection of the application's."""

import re
from collections.abc import Generator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, errors, generators, pq
from psycopg.rows import tuple_row

from retrysafe.errors import CommitRefused
from retrysafe.stores.queue import Arguments, Row
from retrysafe.stores.sql.postgresql.wire import BINARY, Statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

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


# --- the completion and the COMMIT in one round trip


def can_commit_with(db: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether `commit_with` can be used now.  Otherwise the completion and the COMMIT follow each other."""
    pgconn = db.pgconn
    return (
        psycopg.Pipeline.is_supported()  # not before libpq 14
        # One that the handler has ended, or that has failed, is not for us to judge here.
        and pgconn.transaction_status == pq.TransactionStatus.INTRANS
        and pgconn.pipeline_status == pq.PipelineStatus.OFF
        and db.info.encoding == "utf-8"  # in which our texts are sent
    )


def commit_with(db: Connection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    """Run a statement that fails when fenced, and COMMIT: no rows when fenced, and then nothing is committed.

    Whatever happens, `transaction_status` says afterwards whether the transaction is over.
    """
    with db.lock:
        return db.wait(run_and_commit(db.pgconn, _statement(sql), arguments))


async def commit_with_async(db: AsyncConnection[Any], sql: str, arguments: Arguments) -> Sequence[Row]:
    async with db.lock:
        return await db.wait(run_and_commit(db.pgconn, _statement(sql), arguments))


_FENCED = (b"22P02", b"retrysafe completion fenced")
"""The error of `conclude_or_fail`: an integer that is not valid, and its text, which no language changes."""


def run_and_commit(
    pgconn: "PGconn", statement: Statement, arguments: Arguments
) -> Generator[Any, Any, Sequence[Row]]:
    """One pipeline: if the statement fails, the server skips everything up to the end, the COMMIT included.

    By libpq, and not by psycopg's own pipeline: that one sends a Flush after the end, for which a pooler
    would reserve a session until the next transaction, and does not show the server's reply to the COMMIT.
    """
    values, formats = statement.bind(arguments)
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(statement.text, values, None, formats, BINARY)
    pgconn.send_query_params(b"COMMIT", None)
    pgconn.pipeline_sync()
    results: list[PGresult] = []
    try:
        yield from generators.send(pgconn)
        while (result := (yield from generators.fetch(pgconn))) is None or (
            result.status != pq.ExecStatus.PIPELINE_SYNC
        ):
            if result is not None:
                results.append(result)
            elif pgconn.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
        pgconn.exit_pipeline_mode()
    except psycopg.Error:
        # A server that ends the connection gives its reason first.
        if not any(result.status == pq.ExecStatus.FATAL_ERROR for result in results):
            raise
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            if result is results[0] and _is_fenced(result):
                return ()
            raise errors.error_from_result(result)
    concluded, commit = results
    if commit.command_status != b"COMMIT":
        raise CommitRefused("the server undid the transaction of a guarded call where it was to commit it")
    return statement.read(concluded)


def _is_fenced(result: "PGresult") -> bool:
    state, text = _FENCED
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    return result.error_field(pq.DiagnosticField.SQLSTATE) == state and text in message


@cache
def _statement(sql: str) -> Statement:
    return Statement("", sql)


@cache
def _pyformat(sql: str) -> bytes:
    """`:named` arguments as psycopg has them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql.replace("%", "%%")).encode()
