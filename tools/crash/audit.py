"""What is in the database, read through a connection of the auditor's own, and what must hold of it.

A sight is one snapshot: it holds while everything runs, and not only when all is quiet.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

TABLES = ("crash_orders", "crash_lines")
"""Of transactional mode: an order is a row in each.  No table has a constraint that would hide a second."""

CREATE = tuple(f"CREATE TABLE {table} (key text NOT NULL, id text NOT NULL)" for table in TABLES)

QUESTIONS = (
    *(f"SELECT key, id FROM {table}" for table in TABLES),
    "SELECT key, state, status, body FROM retrysafe_records",
)
"""For a database that speaks SQL, all to be answered by one snapshot."""


class Kept(NamedTuple):
    """An outcome, as it is stored."""

    state: str
    status: int
    body: bytes


def id_in(body: bytes) -> str | None:
    """Of the order that an answer speaks of; none, if it is no answer of the shop's."""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return None
    match said:
        case {"id": str(id)}:
            return id
        case _:
            return None


class Sight(NamedTuple):
    """At one moment."""

    kept: Mapping[str, Kept]
    """The outcome of each key that has one."""
    unfinished: frozenset[str]
    """Keys whose record is in progress."""
    written: Sequence[Mapping[str, list[str]]] = ()
    """For each of `TABLES`, the ids that it has for a key; nothing where effects are elsewhere."""

    def wrongs(self) -> list[str]:
        """Transactional mode: committed effects are stored answers, none or one for each key."""
        found: list[str] = []
        keys = {*self.kept, *(key for table in self.written for key in table)}
        for key in sorted(keys):
            kept = self.kept.get(key)
            expected = [id_in(kept.body)] if kept is not None else []
            found.extend(
                f"{key}: {name} has {table.get(key, [])}, and the stored answer {expected}"
                for name, table in zip(TABLES, self.written, strict=True)
                if table.get(key, []) != expected
            )
        return found

    def orders(self, key: str) -> list[str]:
        return self.written[0].get(key, [])


def look(ask: Callable[[Sequence[str]], Sequence[Sequence[Any]]]) -> Sight:
    """A sight of a database that speaks SQL."""
    *tables, records = ask(QUESTIONS)
    written: list[dict[str, list[str]]] = []
    for rows in tables:
        ids = defaultdict[str, list[str]](list)
        for key, id in rows:
            ids[key].append(id)
        written.append(ids)
    kept = {
        key: Kept(state, status, bytes(body or b""))
        for key, state, status, body in records
        if state != "in_progress"
    }
    running = frozenset(key for key, state, *_ in records if state == "in_progress")
    return Sight(kept, running, written)
