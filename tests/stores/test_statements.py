"""The SQL files: each says what it takes, and none walks through the table.  The plans of PostgreSQL are
looked at in test_postgresql_plans.py, because it takes a server."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe._core.model import Record
from retrysafe.stores import sql
from retrysafe.stores.sql.statements import load

DIALECTS = ("sqlite", "postgresql")
FRAGMENTS = {
    "expired",
    "columns",
    "abandoned",
    "effective_state",
    "matches_query",
    "listing_order",
    "listing_columns",
    "record_summaries",
    "group_counts",
}
ONCE = {"schema", "existing_tables", "meta"}
# An operator may wait, and an index would cost every request.
BY_HAND = {
    "list_records",
    "totals",
    "by_route",
    "by_scope",
    "verdicts",
    "list_audit_entries",
    "count_unreadable",
    "count_abandoned",
}
FILES = sorted(
    file
    for dialect in DIALECTS
    for file in (Path(sql.__file__).parent / dialect / "statements").glob("*.sql")
)


def arguments(text: str) -> set[str]:
    return set(re.findall(r":(\w+)", text))


OTHER_DOORS = {"details", "deliveries", "retention_from"}
"""What callbacks and operations add to a record.  No door writes it yet, and no table has it."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.parent.name}-{file.stem}")
def test_a_statement_opens_with_what_it_takes(file: Path) -> None:
    """The arguments named at its top are those that it uses, its fragments' included."""
    comment = re.match(r"(--[^\n]*\n)+", file.read_text(encoding="utf-8"))
    assert comment is not None
    listed = re.search(r"-- Arguments: ([\w,\s]+(?:--  +[\w,\s]+)*)", comment[0])
    told = set(re.findall(r"\w+", listed[1])) if listed else set()
    assert arguments(load(file.parent.parent.name)[file.stem]) == told


@pytest.mark.parametrize("name", sorted(set(load("sqlite")) - FRAGMENTS - ONCE - BY_HAND))
def test_a_statement_uses_an_index(name: str) -> None:
    """On an empty table that was never analysed, too: records are found by id or by expiry."""
    statements = load("sqlite")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements["schema"].split(";"):
            connection.execute(statement)
        text = statements[name]
        values = dict.fromkeys(arguments(text), 1)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert not [step for step in plan if step.startswith("SCAN retrysafe_")]


def test_finishing_in_time_leaves_the_expiry_alone() -> None:
    """Naming the indexed column would move its entry at every finish, changed or not."""
    assignments = load("sqlite")["finish"].partition("WHERE")[0]
    assert "expires_at" not in assignments


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_a_record_has_its_column(dialect: str) -> None:
    """What the model says a record is, the table keeps; the response as three columns."""
    columns = {name.strip() for name in load(dialect)["columns"].split(",")}
    assert columns == set(Record._fields) - {"response", "omitted"} - OTHER_DOORS | {"version"}


def test_what_is_read_is_what_is_written() -> None:
    """PostgreSQL's times are read as numbers, so its columns stand in two files: in the same order."""
    statements = load("postgresql")
    read = re.findall(r"record\.(\w+)", statements["record_columns"])
    assert read == [name.strip() for name in statements["columns"].split(",")]


def test_nothing_but_an_argument_has_a_colon() -> None:
    """So that every driver can be given its own kind of placeholder."""
    for name, text in load("postgresql").items():
        assert "::" not in text, name
        assert "%" not in text, name


def test_the_servers_time_is_one_time() -> None:
    """Whatever asks for it asks `now.sql`, and nothing stands still in a caller's transaction."""
    for name, text in load("postgresql").items():
        asked = re.findall(r"\b(now|current_timestamp|clock_timestamp|transaction_timestamp)\b\s*\(", text)
        assert not asked, name
