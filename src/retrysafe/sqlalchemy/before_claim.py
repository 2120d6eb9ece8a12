"""Sessions that have read before the key of their request is claimed, as in authentication.

Such a session has a connection of the pool, and goes on with that of the guarded call once it joins.  Were
the first one kept, each request would hold one connection and wait for a second: as many requests as the pool
is large would wait for each other.  So a claim gives it back, if nothing was written with it.  What the
session has loaded stays.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any
from weakref import ref

from sqlalchemy import Connection, event, orm
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import greenlet_spawn

from retrysafe._core.attempt import unclaimed
from retrysafe.events import log
from retrysafe.sqlalchemy.dialect import INFO_KEY


def release_when_claimed(sessions: type[orm.Session]) -> None:
    """Have sessions of this class give back what they hold when the key of their request is claimed."""

    def began(session: orm.Session, _: orm.SessionTransaction, connection: Connection) -> None:
        watched = unclaimed()
        if watched is not None and INFO_KEY not in connection.info:
            watched.sessions.append(_Session(session, awaited=connection.dialect.is_async))

    event.listen(sessions, "after_begin", began)


class _Session:
    def __init__(self, session: orm.Session, *, awaited: bool) -> None:
        self._session = ref(session)
        self._awaited = awaited

    def release_async(self) -> Awaitable[None]:
        return greenlet_spawn(self.release) if self._awaited else asyncio.to_thread(self.release)

    def release(self) -> None:
        session = self._session()
        transaction = None if session is None else session.get_transaction()
        if session is None or transaction is None or session.in_nested_transaction():
            return
        try:
            _release(transaction)
        except SQLAlchemyError as error:
            # The session meets the same trouble when it is used, and says so to the endpoint.
            log.warning("a session that was used before its request was claimed is left alone: %s", error)


def _release(transaction: orm.SessionTransaction) -> None:
    # There is no accessor, and ending the session's transaction instead would expire what it has loaded.
    found: dict[Any, tuple[Connection, Any, bool, bool]] = transaction._connections  # pyright: ignore[reportPrivateUsage]
    for connection, begun, _, own in {id(one[0]): one for one in found.values()}.values():
        if own and INFO_KEY not in connection.info and not _has_written(connection):
            for key in [key for key, one in found.items() if one[0] is connection]:
                del found[key]
            begun.rollback()
            connection.close()


def _has_written(connection: Connection) -> bool:
    if connection.dialect.name != "postgresql":
        return False  # on SQLite the claim of a request that holds the write lock is refused
    return connection.exec_driver_sql("SELECT txid_current_if_assigned()").scalar() is not None
