"""A transaction of the caller's on MySQL and MariaDB: how its completion joins it, and what its errors mean.

A deadlock rolls back all of a transaction, and a statement that defines something commits it.  The session
goes on, without a word, in another one: what it writes then would be half of the call.  So the transaction of
a guarded call begins with a savepoint, which is gone as soon as that transaction is; without it, nothing is
committed.

From the completion to the COMMIT the server waits for the session no longer than the lease: a worker that is
frozen there must not keep the key locked.  Neither server has a timeout for one transaction alone, so that of
the session is set, and set back afterwards.
"""

from math import ceil
from typing import Final, cast

from retrysafe.errors import CommitRefused
from retrysafe.stores.queue import Arguments, Rows
from retrysafe.stores.sql.join import Joint, NotCommitted, Spoken, connection_lost, refused
from retrysafe.stores.sql.mysql.batch import within
from retrysafe.stores.sql.mysql.retry import DEADLOCK, TOO_LONG, trouble
from retrysafe.stores.sql.mysql.texts import Part, literal

MARK: Final = "SAVEPOINT retrysafe_call"
"""Begins the transaction of a guarded call."""

RESTORE: Final = "SET SESSION wait_timeout = @retrysafe_wait_timeout"
"""After its end, whichever it was, if there was a completion: the connection is the application's again."""

_CHECK_MARK: Final = "RELEASE SAVEPOINT retrysafe_call"
_LIMIT: Final = (
    "SET @retrysafe_wait_timeout = @@wait_timeout, SESSION wait_timeout = least(@@wait_timeout, {})"
)

_AS_IT_IS: Final = "/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ "
"""Before each statement of a completion.  Since MariaDB 11.6 it is on by default: in REPEATABLE READ a record
that was changed since the transaction first looked, as by each renewal of its lease, could not be completed.
Other servers take this for a comment."""

_NO_MARK = 1305
"""A savepoint that does not exist."""

_ALL_ROLLED_BACK = frozenset({DEADLOCK, 1614, 1020})
"""The last, with MariaDB's innodb_snapshot_isolation: a row has changed since the transaction looked."""

_UNCERTAIN = frozenset({1021, 1030, 1037, 1038, 1041, 1114, 1180}) | TOO_LONG
"""No space for a file, an engine's error, no memory, no resources, no space for a row, an error during the
commit, a statement that was broken off.  It may have been the COMMIT, and what became of it is not known."""

_OF_CLIENT = range(2000, 3000)
"""What the client's side says, because the server said nothing."""

LOST = (
    "the transaction of a guarded call was over before its end: by a statement that commits, such as CREATE "
    "TABLE in a procedure or past the library, or by the database, which after a deadlock rolls back "
    "everything. Leave it to the guard to end it, and let errors of the database leave the handler"
)

DEADLOCKED = (
    "the database rolled back everything that a guarded call had written, because of a deadlock, and the "
    "handler went on: let the error leave the handler"
)


def rolls_back(error: BaseException) -> bool:
    """Whether the server has rolled back the whole transaction, and not this statement alone."""
    return trouble(error).code in _ALL_ROLLED_BACK


def is_without_mark(error: BaseException) -> bool:
    """Whether the transaction that began with the mark is over."""
    return trouble(error).code == _NO_MARK


def not_committed(error: Exception) -> NotCommitted:
    """What an error at the end of it means.  A server that gives its reasons has not committed."""
    said = trouble(error)
    if said.code == _NO_MARK:
        return CommitRefused(LOST)
    if said.disconnected or said.code in _OF_CLIENT or said.code in _UNCERTAIN:
        return connection_lost(error)
    return refused(error, passing=said.passing)


def speak(name: str, arguments: Arguments) -> Spoken:
    """A call's statements, one by one, with their values in them: drivers differ in how they write bytes."""
    if name == "conclude":
        yield _LIMIT.format(max(ceil(cast(float, arguments["lease"])), 1)), {}
        yield _CHECK_MARK, {}
    prefix = _AS_IT_IS if name == "conclude" else ""
    conversation = within(name, arguments)
    try:
        steps = next(conversation)
        while True:
            rows: list[Rows] = []
            for step in steps:
                rows.append((yield prefix + step.text.written(step.arguments, _literal), {}))
            steps = conversation.send(rows)
    except StopIteration as answer:
        found: Rows = answer.value
        return found


def _literal(value: object) -> str:
    """As it is meant in any session, whatever its mode and its character set."""
    if isinstance(value, Part):
        return value.written(_literal)
    if isinstance(value, str):
        return f"_utf8mb4 x'{value.encode().hex()}' COLLATE utf8mb4_bin"
    return literal(value)


JOINT = Joint("mysql", not_committed, speak=speak, mark=MARK, restore=RESTORE)
