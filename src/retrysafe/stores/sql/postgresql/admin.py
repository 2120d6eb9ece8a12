"""The operator's end of PostgreSQL: see `sql/admin_session.py`.

What bounds a transaction ends with it, so it works behind a pooler too.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import Final

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.admin import Finding, Index
from retrysafe.stores.retry import TookTooLong
from retrysafe.stores.sql.admin_session import WALK, Locked, ServerAdmin
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.schema import Plan, chosen_indexes, plan

_AGAIN = 0.5
"""Seconds between two tries to change a table."""

_TRIES = 10
"""Deadlines for which they go on."""

WRITE: Final = ("BEGIN ISOLATION LEVEL READ COMMITTED",)
"""Said in full: a server may have other defaults, and a change that waited for a row must then see it as it
is."""

SNAPSHOT: Final = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
"""All statements see the same moment, no writer waits for it, and a replica can do it too."""


class PostgresAdmin(ServerAdmin):
    dialect = schema.DIALECT
    begin_write = WRITE
    begin_snapshot = SNAPSHOT

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.postgresql.doctor import examine

        return examine(self._connect, self._deadline)

    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:
        made = [*self._make_missing(), *self._make_indexes(indexes)]
        self._known = True
        return made

    def _make_missing(self) -> Sequence[str]:
        """Any number of processes may try at once, behind a pooler too: the lock belongs to the transaction.
        A role that finds everything there needs no right to create any of it."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            if not plan(transaction.query, schema.DIALECT).names:
                return ()
        found = self._apply_migrations(time.monotonic() + _TRIES * self._deadline)
        for name, statement in found.indexes.items():
            self._build_index(name, statement)
        return found.names

    def _make_indexes(self, wanted: Sequence[Index]) -> Sequence[str]:
        """Those that were asked for."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            missing = chosen_indexes(transaction.query, schema.DIALECT, wanted)
        for name, statement in missing.items():
            self._build_index(name, statement)
        return list(missing)

    def _build_index(self, name: str, statement: str) -> None:
        """While the table is used: outside of a transaction, and from the beginning, should an earlier try
        have broken off in the middle."""
        concurrently = statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
        self._session.run([f"DROP INDEX CONCURRENTLY IF EXISTS {name}", concurrently], WALK)

    def _apply_migrations(self, until: float) -> Plan:
        """A change of a table waits for every transaction that uses it, and others wait behind it: so each
        try is short, and there are many."""
        while True:
            try:
                with self._session.transaction(WRITE, WALK) as transaction:
                    transaction.query("migration_lock")
                    found = plan(transaction.query, schema.DIALECT)  # another process may have been faster
                    transaction.command(schema.BRIEFLY)
                    for statement in found.statements:
                        transaction.command(statement)
                    return found
            except Locked:
                if time.monotonic() >= until:
                    raise
                time.sleep(_AGAIN)


@contextlib.contextmanager
def explained() -> Generator[None]:
    try:
        yield
    except PostgresTrouble as trouble:
        raise _explanation(trouble) from None


def _explanation(trouble: PostgresTrouble) -> StoreError:
    said = trouble.reason
    match trouble.state:
        case "57014":
            return TookTooLong(
                f"PostgreSQL cancelled the statement, which took too long ({said}); nothing was done"
            )
        case "55P03":
            return Locked(
                f"a row or table is locked by another transaction: timed out ({said}); nothing was done"
            )
        case "42501":
            return StoreUnavailable(
                f"this role lacks a permission ({said}): `retrysafe doctor` lists the permissions that it "
                "needs, and `retrysafe sql --dialect postgresql` prints what a role that may create tables "
                "can run"
            )
        case "25006":
            return StoreUnavailable(f"this server accepts no writes ({said}): use the address of the primary")
        case _:
            return trouble.as_error()
