"""What each session has of the transaction that they share, where one is inside of another.

Two sessions of an application know nothing of each other: one may be opened before the other and closed after
it, as that of an authentication is, and what the inner one commits is committed.  Here they share a
connection, and the savepoint of the outer one encloses that of the inner one: to roll the outer one back
would undo both.

So a session that has only read is not rolled back when another has committed inside of it: it has nothing to
undo.  One that has written cannot be undone alone; then the whole call is refused, and nothing is lost in
silence.
"""

import re
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, NestedTransaction, orm

from retrysafe.errors import CommitRefused

_READS = re.compile(r"\s*(?:select|show|explain|savepoint|release|rollback\s+to)\b", re.IGNORECASE)


class Part:
    """One session's, from its beginning to its commit or rollback."""

    def __init__(self, savepoint: NestedTransaction | None, commits: int) -> None:
        self.savepoint = savepoint
        self.commits = commits
        """How many others' had been committed when it began."""
        self.wrote = False


class Parts:
    """Of one transaction."""

    def __init__(self) -> None:
        self.author: orm.Session | None = None
        """Whose statement comes next."""
        self._parts: WeakKeyDictionary[orm.Session, Part] = WeakKeyDictionary()
        self._commits = 0
        self._torn = False

    def begun(self, session: orm.Session, connection: Connection) -> None:
        self._parts[session] = Part(connection.get_nested_transaction(), self._commits)

    def executed(self, statement: str) -> None:
        part = self._parts.get(self.author) if self.author is not None else None
        if part is not None and not part.wrote:
            part.wrote = not _READS.match(statement)

    def committed(self, session: orm.Session) -> None:
        if self._parts.pop(session, None) is not None:
            self._commits += 1

    def spare(self, session: orm.Session) -> bool:
        """It ends without a commit.  True: there is nothing of its own to undo, and others' must stay."""
        part = self._parts.pop(session, None)
        if part is None or part.savepoint is None or self._commits == part.commits:
            return False
        self._torn |= part.wrote
        if part.wrote or not part.savepoint.is_active:
            return False
        part.savepoint.commit()
        return True

    def rolled_back(self, savepoint: object) -> None:
        """In whichever way: a block that ends a session's transaction by itself asks nobody."""
        for part in self._parts.values():
            if part.savepoint is savepoint and self._commits > part.commits:
                self._torn = True

    def check(self) -> None:
        if self._torn:
            raise CommitRefused(
                "a session was rolled back after another one, inside of it, had committed: sessions of one "
                "guarded call share one transaction, and what was committed inside was undone too. Use one "
                "session for the call, or end the outer one first"
            )
