"""The operator's end of MySQL and MariaDB: see `sql/admin_session.py`."""

import contextlib
from collections.abc import Generator, Sequence
from typing import Final

from retrysafe.errors import StoreError
from retrysafe.stores.admin import Finding, Index
from retrysafe.stores.retry import NotPermitted, TookTooLong
from retrysafe.stores.sql.admin_session import WALK, Locked, ServerAdmin
from retrysafe.stores.sql.mysql import schema
from retrysafe.stores.sql.mysql.retry import LOCK_TIMEOUT, NOT_PERMITTED, TOO_LONG, MySQLTrouble
from retrysafe.stores.sql.schema import chosen_indexes, plan

WRITE: Final = ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION")
"""Said in full: a server may have other defaults, and a change that waited for a row must then see it as it
is."""

SNAPSHOT: Final = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
"""All statements see the same moment, no writer waits for it, and a replica can do it too."""

_TRIES = 10
"""Deadlines for which a change of the tables waits for others that make one."""


class MySQLAdmin(ServerAdmin):
    dialect = schema.DIALECT
    begin_write = WRITE
    begin_snapshot = SNAPSHOT

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.mysql.doctor import examine

        return examine(self._connect, self._deadline)

    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:
        made = [*self._make_missing(), *self._make_indexes(indexes)]
        self._known = True
        return made

    def _make_missing(self) -> Sequence[str]:
        """A user who finds everything there needs no right to create any of it."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            if not plan(transaction.query, schema.DIALECT).names:
                return ()
        # Not in a transaction: the server commits each change of a table by itself.
        with self._session.transaction((), WALK) as alone:
            found = schema.apply(alone.query, alone.command, _TRIES * self._deadline)
            for statement in found.indexes.values():
                alone.command(statement)
        return found.names

    def _make_indexes(self, wanted: Sequence[Index]) -> Sequence[str]:
        """Those that were asked for."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            missing = chosen_indexes(transaction.query, schema.DIALECT, wanted)
        self._session.run(list(missing.values()), WALK)
        return list(missing)


@contextlib.contextmanager
def explained() -> Generator[None]:
    try:
        yield
    except MySQLTrouble as trouble:
        raise _explanation(trouble) from None


def _explanation(trouble: MySQLTrouble) -> StoreError:
    said = trouble.described
    if trouble.code in TOO_LONG:
        return TookTooLong(
            f"the database broke off the statement, which took too long ({said}); nothing was done"
        )
    if trouble.code == LOCK_TIMEOUT:
        return Locked(
            f"a row or table is locked by another transaction: timed out ({said}); nothing was done"
        )
    if trouble.code in NOT_PERMITTED:
        return NotPermitted(
            f"this user lacks a permission ({said}): `retrysafe doctor` lists the permissions that it "
            "needs, and "
            "`retrysafe sql --dialect mysql` prints what a user who may create tables can run"
        )
    return trouble.as_error()
