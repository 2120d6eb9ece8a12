"""Several sessions in one transaction: whose savepoint is whose, and what must not be undone with it.

Sessions that have a connection each know nothing of one another: what one has committed, another's rollback
does not undo.  Here they share a connection and stand in it by savepoints, one inside the other.  A session
that has only read, and is closed after another one has committed, must not take that back; so its savepoint
is moved to where nothing is lost.  Where a session has written before another one commits, it cannot be
moved, and its rollback is refused, and with it the call: nothing is kept that is not whole.
"""

import re

from sqlalchemy import Connection

from retrysafe.errors import NotJoined

_READS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:select|show|explain|pragma|values|savepoint|release|rollback)\b",
    re.IGNORECASE | re.DOTALL,
)

_ENTANGLED = (
    "a session of a guarded call was rolled back, or closed without a commit, after another had committed: "
    "both share the call's transaction, and the changes of the one cannot be undone without the other's. "
    "Commit the first one before the second one is used, or use one session for both"
)

_NOT_ITS_TURN = (
    "a session of a guarded call was about to write while another one had changes that were not committed: "
    "both share the call's transaction, and have to take turns. Commit or close the other one first, or use "
    "one session for both"
)

_OVERLAPPING = (
    "a session of a guarded call was committed, rolled back or closed while another one, which had begun "
    "after it, was still in use: both share the call's transaction, and stand in it one inside the other. "
    "End the one that began last first, or use one session for both"
)


class Savepoint:
    wrote = False
    """Its session has changed something since."""
    holds = False
    """Another session has committed something inside of it."""

    def __init__(self, name: str, owner: object, *, real: bool) -> None:
        self.name = name
        self.owner = owner
        self.real = real
        """Whether the server knows of it: see `dialect.py`."""


class Turns:
    def __init__(self) -> None:
        self.asking: object = None
        """The session or block that asked for the connection last."""
        self.spoiled = ""
        """Why what is there must not be committed."""
        self.said = False
        """Whether a session has said anything since the transaction began, or began again."""
        self._stack: list[Savepoint] = []
        self._moving = False

    def executes(self, connection: Connection, statement: str) -> None:
        """A statement is about to be executed."""
        if self._moving or not self._stack or _READS.match(statement):
            return
        top = self._stack[-1]
        if top.owner is not self.asking and any(one.owner is self.asking for one in self._stack):
            raise self.spoil(_NOT_ITS_TURN)
        if top.holds and not top.wrote:
            self._move(top, self._stack[:-1], connection)
        top.wrote = True

    def begins(self, name: str, *, nothing_said: bool) -> bool:
        """A savepoint is wanted.  Whether the server has to be told."""
        real = bool(self._stack) or not nothing_said
        self._stack.append(Savepoint(name, self.asking, real=real))
        self.said &= real
        return real

    def releases(self, name: str) -> bool:
        """A savepoint is committed.  Whether the server has to be told."""
        inner = self._cut(name)
        if not _are_of_one(inner):
            raise self.spoil(_OVERLAPPING)
        if inner and self._stack:
            outer = self._stack[-1]
            if any(one.holds for one in inner):
                outer.holds = True
            if any(one.wrote for one in inner):
                if inner[0].owner is outer.owner:
                    outer.wrote = True
                else:
                    outer.holds = True
        return not inner or inner[0].real

    def rolls_back(self, name: str, connection: Connection) -> bool:
        """A savepoint is undone.  Whether the server knows of it."""
        undone = self._cut(name)
        if not _are_of_one(undone):
            raise self.spoil(_OVERLAPPING)
        if any(one.holds for one in undone):
            if len(undone) > 1 or undone[0].wrote:
                raise self.spoil(_ENTANGLED)
            self._move(undone[0], self._stack, connection)
        return not undone or undone[0].real

    def _move(self, savepoint: Savepoint, around: list[Savepoint], connection: Connection) -> None:
        """Its session has changed nothing, so it may as well begin here."""
        self._moving = True
        try:
            if savepoint.real:
                connection.exec_driver_sql(f"RELEASE SAVEPOINT {savepoint.name}")
            connection.exec_driver_sql(f"SAVEPOINT {savepoint.name}")
        except Exception as error:
            # An error in PostgreSQL spoils everything since the last savepoint, whoever it belongs to.
            raise self.spoil(_ENTANGLED) from error
        finally:
            self._moving = False
        savepoint.real = True
        savepoint.holds = False
        if around:
            around[-1].holds = True  # what was in it is now in the one around it

    def _cut(self, name: str) -> list[Savepoint]:
        """Take a savepoint off, with all that stand in it."""
        places = [place for place, one in enumerate(self._stack) if one.name == name]
        if not places:
            return []
        cut = self._stack[places[-1] :]
        del self._stack[places[-1] :]
        return cut

    def spoil(self, reason: str) -> NotJoined:
        self.spoiled = reason
        return NotJoined(reason)


def _are_of_one(savepoints: list[Savepoint]) -> bool:
    """Whether all belong to one session: what another one has begun inside cannot be ended with it."""
    return len({id(one.owner) for one in savepoints}) < 2
