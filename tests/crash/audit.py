"""What is in the database, read through a connection of the auditor's own, and what must hold of it.

A sight is one snapshot: it holds while everything runs, and not only when all is quiet.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import psycopg

from tests.crash.orders import TABLES

RECORDS = "SELECT key, state, status, body FROM retrysafe_records"


class Sight(NamedTuple):
    """At one moment: the ids that each table has for a key, the answers that are stored, and the rest."""

    written: Sequence[Mapping[str, list[str]]]
    answered: Mapping[str, bytes]
    unfinished: Mapping[str, str]

    def wrongs(self) -> list[str]:
        """Committed effects are stored answers, none or one for each key."""
        found: list[str] = []
        keys = {*self.answered, *(key for table in self.written for key in table)}
        for key in sorted(keys):
            ids = [table.get(key, []) for table in self.written]
            answer = self.answered.get(key)
            expected = [json.loads(answer)["id"]] if answer is not None else []
            found.extend(
                f"{key}: {name} has {rows}, and the stored answer {expected}"
                for name, rows in zip(TABLES, ids, strict=True)
                if rows != expected
            )
        return found

    def orders(self, key: str) -> list[str]:
        return self.written[0].get(key, [])


def look(url: str) -> Sight:
    """One snapshot of everything."""
    questions = [*(f"SELECT key, id FROM {table}" for table in TABLES), RECORDS]
    *tables, records = (
        _ask_sqlite(url, questions) if url.startswith("sqlite") else _ask_server(url, questions)
    )
    written: list[dict[str, list[str]]] = []
    for rows in tables:
        ids = defaultdict[str, list[str]](list)
        for key, id in rows:
            ids[key].append(id)
        written.append(ids)
    answered = {key: bytes(body) for key, state, _, body in records if state == "completed"}
    return Sight(written, answered, {key: state for key, state, *_ in records if state != "completed"})


def _ask_sqlite(url: str, questions: Sequence[str]) -> list[list[Any]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)) as file:
        file.execute("BEGIN")
        return [file.execute(question).fetchall() for question in questions]


def _ask_server(url: str, questions: Sequence[str]) -> list[list[Any]]:
    with psycopg.connect(url) as server:
        server.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return [server.execute(question.encode()).fetchall() for question in questions]
