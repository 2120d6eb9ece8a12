"""What is in the database, read through a connection of the auditor's own, and what must hold of it.

A snapshot is consistent: what must hold of it holds while workers run, and not only at the end.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

TABLES = ("crash_orders", "crash_lines")
"""Of transactional mode: an order is a row in each.  No table has a constraint that would hide a second."""

CREATE = tuple(f"CREATE TABLE {table} (key text NOT NULL, id text NOT NULL)" for table in TABLES)

QUERIES = (
    *(f"SELECT key, id FROM {table}" for table in TABLES),
    "SELECT key, state, status, body FROM retrysafe_records",
)
"""For a SQL database, all to be read in one snapshot."""


class Stored(NamedTuple):
    """The outcome of a key, as it is stored."""

    state: str
    status: int
    body: bytes


def id_in(body: bytes) -> str | None:
    """The id of the order in a response; `None` if it is not a response of the application."""
    try:
        document: Any = json.loads(body)
    except ValueError:
        return None
    match document:
        case {"id": str(id)}:
            return id
        case _:
            return None


class Snapshot(NamedTuple):
    """The database at one moment."""

    stored: Mapping[str, Stored]
    """The outcome of each key that has one."""
    unfinished: frozenset[str]
    """Keys whose record is in progress."""
    written: Sequence[Mapping[str, list[str]]] = ()
    """For each of `TABLES`, the ids that it has for a key; empty where effects are outside."""

    def violations(self) -> list[str]:
        """Transactional mode: committed effects are stored responses, none or one for each key."""
        found: list[str] = []
        keys = {*self.stored, *(key for table in self.written for key in table)}
        for key in sorted(keys):
            stored = self.stored.get(key)
            expected = [id_in(stored.body)] if stored is not None else []
            found.extend(
                f"{key}: {name} has {table.get(key, [])}, and the stored response {expected}"
                for name, table in zip(TABLES, self.written, strict=True)
                if table.get(key, []) != expected
            )
        return found

    def orders(self, key: str) -> list[str]:
        return self.written[0].get(key, [])


def read(query: Callable[[Sequence[str]], Sequence[Sequence[Any]]]) -> Snapshot:
    """A snapshot of a SQL database."""
    *tables, records = query(QUERIES)
    written: list[dict[str, list[str]]] = []
    for rows in tables:
        ids = defaultdict[str, list[str]](list)
        for key, id in rows:
            ids[key].append(id)
        written.append(ids)
    stored = {
        key: Stored(state, status, bytes(body or b""))
        for key, state, status, body in records
        if state != "in_progress"
    }
    running = frozenset(key for key, state, *_ in records if state == "in_progress")
    return Snapshot(stored, running, written)
