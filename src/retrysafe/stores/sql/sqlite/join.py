"""Errors of SQLite at the end of the caller's transaction."""

import sqlite3

from retrysafe.errors import CommitRefused, StoreUnavailable
from retrysafe.stores.sql.join import NotCommitted


def not_committed(error: Exception) -> NotCommitted:
    if isinstance(error, sqlite3.IntegrityError) or "no such table" in str(error):
        return CommitRefused(f"SQLite refused to commit a guarded call: {error}")
    return StoreUnavailable(f"SQLite could not commit a guarded call: {error}")
