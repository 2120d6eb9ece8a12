"""What is in the database, read through a connection of the auditor's own, and what must hold of it.

A snapshot is consistent: what must hold of it holds while workers run, and not only at the end.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TABLES = ("crash_orders", "crash_lines")
"""Of transactional mode: an order is a row in each.  No table has a constraint that would hide a second."""

CREATE = tuple(f"CREATE TABLE {table} (number text NOT NULL, id text NOT NULL)" for table in TABLES)

RECORDS = "SELECT key, state, status, body, door, due_at IS NOT NULL FROM retrysafe_records"
"""As it is in most SQL databases."""

_PART = ".line"


def order_of(key: str) -> str:
    """What an order is called to its part: two that differ only in what follows a hyphen share one."""
    return key.partition("-")[0]


def part_key(key: str) -> str:
    """The key of the operation that is a part of an order."""
    return order_of(key) + _PART


def canonical(value: object) -> bytes:
    """A value of an operation, to be compared: it is stored as JSON, whose bytes are the codec's affair."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _comparable(body: bytes, door: str) -> bytes:
    return canonical(json.loads(body)) if door == "operation" and body else body


class Stored(NamedTuple):
    """The outcome of a key, as it is stored."""

    state: str
    status: int
    body: bytes


def id_in(body: bytes, name: str = "id") -> str | None:
    """The id of the order in a response; `None` if it is not a response of the application."""
    try:
        document: Any = json.loads(body)
    except ValueError:
        return None
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


class Snapshot(NamedTuple):
    """The database at one moment."""

    stored: Mapping[str, Stored]
    """The outcome of each key that has one."""
    unfinished: frozenset[str]
    """Keys whose record is in progress."""
    written: Sequence[Mapping[str, list[str]]] = ()
    """For each of `TABLES`, the ids that it has for a key; empty where effects are outside."""
    parts: Mapping[str, Stored] = {}
    """The outcome of each operation that is a part of an order, by what that is called to it."""
    due: frozenset[str] = frozenset()
    """Events whose payload is stored, and that a worker is to handle, now or later."""

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

    def violations_of_parts(self) -> list[str]:
        """Where a part of an order is an operation of its own: both are committed, with their records, or
        neither.  Two orders may share a part, which then was done by one of them."""
        found: list[str] = []
        orders, lines = self.written
        for key in sorted({*self.stored, *orders}):
            stored = self.stored.get(key)
            expected = [id_in(stored.body)] if stored is not None else []
            if orders.get(key, []) != expected:
                found.append(f"{key}: {TABLES[0]} has {orders.get(key, [])}, and the stored value {expected}")
        used: defaultdict[str, set[str | None]] = defaultdict(set)
        for key, stored in self.stored.items():
            used[order_of(key)].add(id_in(stored.body, "line"))
        for key in sorted({*used, *self.parts, *lines}):
            part = self.parts.get(key)
            has = lines.get(key, [])
            recorded = [id_in(part.body)] if part is not None else []
            if not has == recorded == list(used[key]):
                found.append(
                    f"{key}: {TABLES[1]} has {has}, the record of this part {recorded}, and its orders "
                    f"{sorted(map(str, used[key]))}"
                )
        return found

    def violations_of_receipts(self) -> list[str]:
        """Where an event is handled in a transaction: it has written once if its receipt says that it was
        handled, and otherwise nothing."""
        found: list[str] = []
        for key in sorted({*self.stored, *(key for table in self.written for key in table)}):
            stored = self.stored.get(key)
            times = int(stored is not None and stored.state == "completed")
            ids = [table.get(key, []) for table in self.written]
            if any(len(has) != times or has != ids[0] for has in ids):
                found.append(f"{key}: {' and '.join(TABLES)} have {ids}, and its receipt is {stored}")
        return found

    def state(self, key: str) -> str:
        """Of a record; "absent" without one."""
        if key in self.unfinished:
            return "in_progress"
        stored = self.stored.get(key)
        return "absent" if stored is None else stored.state

    def orders(self, key: str) -> list[str]:
        return self.written[0].get(key, [])


def read(query: Callable[[Sequence[str]], Sequence[Sequence[Any]]], of_records: str = RECORDS) -> Snapshot:
    """A snapshot of a SQL database."""
    *tables, records = query([*(f"SELECT number, id FROM {table}" for table in TABLES), of_records])
    written: list[dict[str, list[str]]] = []
    for rows in tables:
        ids = defaultdict[str, list[str]](list)
        for key, id in rows:
            ids[key].append(id)
        written.append(ids)
    return snapshot(records, written)


def snapshot(records: Iterable[Sequence[Any]], written: Sequence[Mapping[str, list[str]]] = ()) -> Snapshot:
    """Of records that are in a store: key, state, status, body, door, and whether it is due."""
    records = list(records)
    stored: dict[str, Stored] = {}
    parts: dict[str, Stored] = {}
    for key, state, status, body, door, _ in records:
        if state != "in_progress":
            found = bytes(body or b"")
            outcome = Stored(state, status, _comparable(found, door))
            if key.endswith(_PART):
                parts[key.removesuffix(_PART)] = outcome
            else:
                stored[key] = outcome
    running = frozenset(key for key, state, *_ in records if state == "in_progress")
    due = frozenset(key for key, *_, is_due in records if is_due)
    return Snapshot(stored, running, written, parts, due)
