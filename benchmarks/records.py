"""Fills a store with as many records as one wants, in seconds.

The store itself makes the tables and one record; SQLite then copies that row with identities of their own.
So the rows are what this release writes, whatever its columns are.
"""

import os
import sqlite3
from pathlib import Path

from retrysafe import stores
from retrysafe._core.model import Claim, Final, Response

DAY = 86_400.0

ANSWER = Final(
    "completed",
    Response(
        201,
        ((b"content-type", b"application/json"), (b"location", b"/charges/1")),
        b'{"id":1,"amount":100}',
    ),
)


def claim(id: bytes | None = None) -> Claim:
    """As a request makes it."""
    return Claim(
        id=id or os.urandom(32),
        token=os.urandom(16),
        fingerprint=bytes(32),
        lease=30.0,
        retention=DAY,
        hold=30 * DAY,
        door="request",
        scope=(("header:x-tenant", "acme"),),
        key=os.urandom(16).hex(),
        action="POST",
        target="/charges",
        request_id=os.urandom(16).hex(),
    )


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def fill(path: Path, count: int, *, expired: bool = False) -> None:
    """Make a database with `count` completed records that live for hours yet, or have expired."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store = stores.open(url(path), deadline=60)
    first = claim()
    store.reserve(first)
    store.finish(first, ANSWER)
    store.close()
    # Created one after the other in the last 23 hours; or, to have expired, two days before.  Rows that were
    # made together expire together, so a purge finds them side by side, as it does in a store that has grown.
    shift = "(:age + 82800.0 * (:count - n) / :count)"
    changed = {
        "id": "randomblob(32)",
        "token": "randomblob(16)",
        "key": "lower(hex(randomblob(16)))",
        "request_id": "lower(hex(randomblob(16)))",
        **{name: f"{name} - {shift}" for name in ("created_at", "updated_at", "completed_at")},
        "lease_until": f"lease_until - {shift}",
        "expires_at": f"expires_at - {shift}",
        "held_until": f"held_until - {shift}",
    }
    database = sqlite3.connect(path, isolation_level=None)
    # Nobody else has it open, and if this is interrupted the file is thrown away.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        database.execute(f"PRAGMA {pragma}")
    columns = [row[1] for row in database.execute("PRAGMA table_info(retrysafe_records)")]
    values = ", ".join(changed.get(column, column) for column in columns)
    database.execute(
        f"""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
        INSERT INTO retrysafe_records ({", ".join(columns)})
        SELECT {values} FROM number, (SELECT * FROM retrysafe_records LIMIT 1)
        """,
        {"count": count, "age": 2 * DAY if expired else 0},
    )
    database.execute("PRAGMA journal_mode = WAL")
    database.close()


def some_ids(path: Path, count: int) -> list[bytes]:
    """Identities of records all over the table."""
    database = sqlite3.connect(path)
    [(last,)] = database.execute("SELECT max(rowid) FROM retrysafe_records")
    rows = database.execute(
        "SELECT id FROM retrysafe_records WHERE rowid % :step = 0 LIMIT :count",
        {"step": max(1, last // count), "count": count},
    ).fetchall()
    database.close()
    return [id for (id,) in rows]
