"""How an operator's tables come to be.

They are made in one transaction under a lock that belongs to it, so that any number of processes may try at
once, behind a pooler too: the first makes them, the others find them.  Whoever finds all of it needs no right
to make any.
"""

from retrysafe.stores.sql.postgresql import layout
from retrysafe.stores.sql.postgresql.desk import SNAPSHOT, WALK, WRITE, Desk
from retrysafe.stores.sql.statements import load


def migrate(desk: Desk) -> list[str]:
    """Make what is missing.  Gives its names."""
    with desk.transaction(SNAPSHOT, desk.deadline) as transaction:
        if not layout.missing(transaction.query):
            return []
    with desk.transaction(WRITE, WALK) as transaction:
        transaction.query("migration_lock")
        made = layout.missing(transaction.query)  # for others may have been quicker
        if made:
            transaction.command(load("postgresql")["schema"])
        return made


def check(desk: Desk) -> None:
    """Refuse to work with tables that are not all there, or not ours to read."""
    with desk.transaction(SNAPSHOT, desk.deadline) as transaction:
        layout.refuse(layout.missing(transaction.query))
