"""Several sessions in one transaction: which savepoint belongs to which, and what must not be rolled back.

Sessions with a connection each are independent: a rollback of one does not undo what another has committed.
Here they share a connection, and each has a savepoint on it, one inside the other.  A session that has only
read, and is closed after another has committed, must not undo that commit; so its savepoint is moved behind
it.  The savepoint of a session that has written before another commits cannot be moved: its rollback is
refused, and with it the call, because nothing may be stored that is not whole.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection

from retrysafe.errors import NotJoined

_READS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:select|show|explain|pragma|values|savepoint|release|rollback)\b",
    re.IGNORECASE | re.DOTALL,
)

_CANNOT_UNDO = (
    "a session of a guarded call was rolled back, or closed without a commit, after another had committed: "
    "both share the call's transaction, and the changes of the one cannot be undone without the other's. "
    "Commit the first one before the second one is used, or use one session for both"
)

_UNCOMMITTED = (
    "a session of a guarded call was about to write while another one had uncommitted changes: both share "
    "the call's transaction, and only one at a time can have such changes. Commit or close the other one "
    "first, or use one session for both"
)

_OVERLAPPING = (
    "a session of a guarded call was committed, rolled back or closed while another one, which had begun "
    "after it, was still in use: both share the call's transaction, and their savepoints are nested. "
    "End the one that began last first, or use one session for both"
)


class Savepoint:
    wrote = False
    """Its session has written since."""
    contains_commit = False
    """Another session has committed inside it."""

    def __init__(self, name: str, owner: object, *, real: bool) -> None:
        self.name = name
        self.owner = owner
        self.real = real
        """Whether the server has it: see `dialect.py`."""


class SavepointStack:
    def __init__(self) -> None:
        self.user: object = None
        """The session or block that last asked for the connection."""
        self.refusal = ""
        """Why the transaction must not be committed."""
        self.used = False
        """Whether a session has executed anything since the transaction began, or began again."""
        self.lost = False
        """Whether the server has rolled back all of it, as MySQL does after a deadlock."""
        self._stack: list[Savepoint] = []
        self._moving = False
        self._recording = False

    @property
    def uncommitted(self) -> bool:
        """Whether a session has written what it has not committed."""
        return any(one.wrote for one in self._stack)

    def before_statement(self, connection: Connection, statement: str) -> None:
        if self._moving or not self._stack or _READS.match(statement):
            return
        top = self._stack[-1]
        if self._recording and not top.wrote:
            top.contains_commit = True
            return
        if top.owner is not self.user and any(one.owner is self.user for one in self._stack):
            raise self.refuse(_UNCOMMITTED)
        if top.contains_commit and not top.wrote:
            self._move(top, self._stack[:-1], connection)
        top.wrote = True

    @contextmanager
    def recording(self) -> Generator[None]:
        """While the record of an operation is stored, which shares the fate of what the operation wrote.

        Its own sessions have committed that: then the record is as their commit, and a session around them
        that has only read does not undo it.  A session that has written may have written for the operation:
        then the record is a part of its changes, and is undone with them.
        """
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def begin(self, name: str, *, nothing_executed: bool) -> bool:
        """Add a savepoint.  Whether the server has to be sent one."""
        real = bool(self._stack) or not nothing_executed
        self._stack.append(Savepoint(name, self.user, real=real))
        self.used &= real
        return real

    def release(self, name: str) -> bool:
        """Commit a savepoint.  Whether the server has to release one."""
        inner = self._remove(name)
        if not _have_one_owner(inner):
            raise self.refuse(_OVERLAPPING)
        if inner and self._stack:
            outer = self._stack[-1]
            if any(one.contains_commit for one in inner):
                outer.contains_commit = True
            if any(one.wrote for one in inner):
                if inner[0].owner is outer.owner:
                    outer.wrote = True
                else:
                    outer.contains_commit = True
        return not inner or inner[0].real

    def roll_back(self, name: str, connection: Connection) -> bool:
        """Undo a savepoint.  Whether the server has one to roll back to."""
        undone = self._remove(name)
        if not _have_one_owner(undone):
            raise self.refuse(_OVERLAPPING)
        if any(one.contains_commit for one in undone):
            if len(undone) > 1 or undone[0].wrote:
                raise self.refuse(_CANNOT_UNDO)
            self._move(undone[0], self._stack, connection)
        return not undone or undone[0].real

    def _move(self, savepoint: Savepoint, around: list[Savepoint], connection: Connection) -> None:
        """Begin a savepoint anew here: its session has written nothing, so nothing changes for it."""
        self._moving = True
        try:
            if savepoint.real:
                connection.exec_driver_sql(f"RELEASE SAVEPOINT {savepoint.name}")
            connection.exec_driver_sql(f"SAVEPOINT {savepoint.name}")
        except Exception as error:
            # In PostgreSQL an error fails everything since the last savepoint, whichever session wrote it.
            raise self.refuse(_CANNOT_UNDO) from error
        finally:
            self._moving = False
        savepoint.real = True
        savepoint.contains_commit = False
        if around:
            around[-1].contains_commit = True  # what was in it is now in the one around it

    def _remove(self, name: str) -> list[Savepoint]:
        """Remove a savepoint and all that are inside it; gives them, the outermost first."""
        places = [place for place, one in enumerate(self._stack) if one.name == name]
        if not places:
            return []
        removed = self._stack[places[-1] :]
        del self._stack[places[-1] :]
        return removed

    def refuse(self, reason: str) -> NotJoined:
        """Nothing of the call may be committed any more, for this reason, even if the error is caught."""
        self.refusal = reason
        return NotJoined(reason)


def _have_one_owner(savepoints: list[Savepoint]) -> bool:
    """Whether all belong to one session: what another one has begun inside cannot be ended with it."""
    return len({id(one.owner) for one in savepoints}) < 2
