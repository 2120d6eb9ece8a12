"""What sessions do before the key of their request is claimed, as in authentication.

A session that has read has a connection of the pool, and goes on with that of the guarded call once it joins.
Were the first one kept, each request would hold one connection and wait for a second: as many requests as the
pool is large would wait for each other.  So a claim gives it back; what the session has loaded stays.

One that has written or locked something keeps its connection, and cannot join: the endpoint would have
another one, which knows nothing of that and could wait for those locks without end.
"""

import asyncio
import re
from collections.abc import Awaitable
from typing import Any
from weakref import ref

from sqlalchemy import Connection, event, orm
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import greenlet_spawn

from retrysafe._core.attempt import unclaimed
from retrysafe.errors import NotJoined
from retrysafe.events import log
from retrysafe.sqlalchemy.dialect import INFO_KEY

_HOLDS_KEY = "retrysafe_holds"
"""In `session.info`, where its transaction holds more than a connection."""
_WATCHED_KEY = "retrysafe_watched"
"""There, its connections whose statements are looked at."""

_HELD_BEFORE = (
    "a session of the guard's wrote or took a lock before the key of this request was claimed, in "
    "authentication or another dependency, and its transaction is still open. The endpoint has a connection "
    "of its own, which could wait for that lock without end. Commit there, or do it in the endpoint"
)

_READS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*"
    r"(?:select|with|values|table|show|explain|pragma|savepoint|release|rollback|set|reset)\b",
    re.IGNORECASE | re.DOTALL,
)
"""`SET`, too: applications that set who asks in each transaction set it in that of the call as well."""
_READS_AND_HOLDS = re.compile(
    r"\bfor\s+(?:no\s+key\s+)?update\b|\bfor\s+(?:key\s+)?share\b|\bpg_(?:try_)?advisory_"
    r"|\b(?:insert\s+into|delete\s+from|merge\s+into)\b|\bupdate\s+\S+\s+(?:(?:as\s+)?\S+\s+)?set\b",
    re.IGNORECASE,
)
"""What a statement that begins like a read may have in it: locks, or another statement behind `WITH`."""


def watch(sessions: type[orm.Session]) -> None:
    """Take notes of what sessions of this class do before the key of their request is claimed."""
    event.listen(sessions, "after_begin", _began)
    event.listen(sessions, "after_transaction_end", _ended)


def refuse_held(session: orm.Session) -> None:
    """Refuse to join a session that holds more than a connection already."""
    if _HOLDS_KEY in session.info:
        raise NotJoined(_HELD_BEFORE)


def _began(session: orm.Session, _: orm.SessionTransaction, connection: Connection) -> None:
    watched = unclaimed()
    if watched is None or INFO_KEY in connection.info:
        return

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not _READS.match(statement) or _READS_AND_HOLDS.search(statement):
            session.info[_HOLDS_KEY] = True

    event.listen(connection, "before_cursor_execute", before)
    session.info.setdefault(_WATCHED_KEY, []).append((connection, before))
    watched.sessions.append(_Session(session, awaited=connection.dialect.is_async))


def _ended(session: orm.Session, transaction: orm.SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_HOLDS_KEY, None)
        _forget(session)


def _forget(session: orm.Session) -> None:
    for connection, before in session.info.pop(_WATCHED_KEY, ()):
        event.remove(connection, "before_cursor_execute", before)


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
        _forget(session)
        if _HOLDS_KEY in session.info:
            return
        try:
            _release(session, transaction)
        except SQLAlchemyError as error:
            # The session meets the same trouble when it is used, and says so to the endpoint.
            log.warning("a session that was used before its request was claimed is left alone: %s", error)


def _release(session: orm.Session, transaction: orm.SessionTransaction) -> None:
    # There is no accessor, and ending the session's transaction instead would expire what it has loaded.
    found: dict[Any, tuple[Connection, Any, bool, bool]] = transaction._connections  # pyright: ignore[reportPrivateUsage]
    for connection, begun, _, own in {id(one[0]): one for one in found.values()}.values():
        if not own or INFO_KEY in connection.info:
            continue
        if _has_written(connection):
            session.info[_HOLDS_KEY] = True
            continue
        for key in [key for key, one in found.items() if one[0] is connection]:
            del found[key]
        begun.rollback()
        connection.close()


def _has_written(connection: Connection) -> bool:
    """Even if its statements look like reads, such as a function that writes."""
    if connection.dialect.name != "postgresql":
        return False  # on SQLite the claim of a request that holds the write lock is refused
    return connection.exec_driver_sql("SELECT txid_current_if_assigned()").scalar() is not None
