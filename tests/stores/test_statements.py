"""The SQL files: each statement says what it takes, and none that a request waits for scans the table.  The
plans of PostgreSQL are looked at in test_postgresql_plans.py, because it takes a server."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe._core.model import Record
from retrysafe.stores import sql
from retrysafe.stores.sql import migrations
from retrysafe.stores.sql.statements import fill, load, parse, source

DIALECTS = ("sqlite", "postgresql", "mysql")
FILES = {"schema.sql", "records.sql", "leases.sql", "admin.sql", "doctor.sql", "fragments.sql"}
ONCE = {"existing_tables", "table_columns", "meta", "index_request_id", "index_scope"}
# An operator may wait, and an index would cost every request.
BY_HAND = {
    "list_records",
    "totals",
    "by_door",
    "by_route",
    "by_scope",
    "by_source",
    "verdicts",
    "verdicts_without_routes",
    "calls_by_route",
    "list_audit_entries",
    "count_unreadable",
    "count_abandoned",
}


def written(dialect: str, file: str) -> dict[str, str]:
    """The statements of one file."""
    text = (Path(sql.__file__).parent / dialect / file).read_text(encoding="utf-8")
    return parse({file: text})


def arguments(text: str) -> set[str]:
    return set(re.findall(r":(\w+)", text))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_has_six_files(dialect: str) -> None:
    """Every statement is in one of them, and there is no other beside the migrations."""
    assert {file.name for file in (Path(sql.__file__).parent / dialect).glob("*.sql")} == FILES
    names = [name for file in FILES for name in written(dialect, file)]
    assert sorted(names) == sorted(load(dialect))


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in DIALECTS for name in sorted(load(dialect))]
)
def test_a_statement_begins_with_what_it_takes(dialect: str, name: str) -> None:
    """The arguments named in its comment are those that it uses, its fragments' included."""
    comment = re.match(r"(--[^\n]*\n)+", source(dialect, name))
    assert comment is not None
    listed = re.search(r"-- Arguments: ([\w,\s]+(?:--  +[\w,\s]+)*)", comment[0])
    told = set(re.findall(r"\w+", listed[1])) if listed else set()
    assert arguments(load(dialect)[name]) == told


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_fragment_is_used(dialect: str) -> None:
    """By a statement or by another fragment."""
    texts = re.sub(r"--[^\n]*", "", "".join(source(dialect, name) for name in load(dialect)))
    assert set(written(dialect, "fragments.sql")) <= set(re.findall(r"\{(\w+)\}", texts))


@pytest.mark.parametrize(
    "name", sorted(set(load("sqlite")) - set(written("sqlite", "fragments.sql")) - ONCE - BY_HAND)
)
def test_a_statement_uses_an_index(name: str) -> None:
    """On an empty table that was never analysed, too: records are found by id or by expiry."""
    statements = load("sqlite")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(migrations.source("sqlite"))
        for index in ("index_request_id", "index_scope"):
            connection.execute(statements[index])
        connection.create_function("unhex", 1, bytes.fromhex)  # as the store does, where SQLite lacks it
        text = statements[name]
        values = dict.fromkeys(arguments(text), 1)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    walked = [step for step in plan if step.startswith("SCAN retrysafe_")]
    # Scopes are looked for in the index, a fraction of the table: SQLite has none on parts of a text.
    of_scopes = "SCAN retrysafe_records USING COVERING INDEX retrysafe_records_scope"
    assert walked == ([of_scopes] if name == "list_records_by_scope" else [])


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_finishing_in_time_leaves_the_expiry_alone(dialect: str) -> None:
    """Naming the indexed column would move its entry at every finish, changed or not; and what is due is not
    that of a request.  InnoDB looks whether it is changed."""
    assignments = load(dialect)["finish"].partition("WHERE")[0]
    assert "expires_at" not in assignments
    assert "due_at" not in assignments


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_a_record_has_its_column(dialect: str) -> None:
    """What the model says a record is, the table has; the response as three columns."""
    columns = {name.strip().strip("`") for name in load(dialect)["columns"].split(",")}
    assert columns == set(Record._fields) - {"response", "omitted"} | {"version"}


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_reserving_an_expired_key_sets_every_column(dialect: str) -> None:
    """A column that is left out would have the value of the old record."""
    assignments = re.search(r"DO UPDATE SET(.*?)WHERE", load(dialect)["reserve"], re.DOTALL)
    assert assignments is not None
    columns = [name.strip() for name in load(dialect)["columns"].split(",")]
    columns += ["status", "headers", "body", "omitted", "payload", "due_at"]
    expected = [f"{name} = excluded.{name}" for name in columns if name != "id"]
    assert [assignment.strip() for assignment in assignments[1].split(",")] == expected


def test_replacing_an_expired_record_sets_every_column() -> None:
    """The same on MySQL, where it is a statement of its own."""
    update, _ = load("mysql")["replace_expired"].split(";")
    assignments = re.findall(r"^    `?(\w+)`? = ", update.partition("WHERE")[0], re.MULTILINE)
    columns = [name.strip().strip("`") for name in load("mysql")["columns"].split(",")]
    columns += ["status", "headers", "body", "omitted", "payload", "due_at"]
    assert assignments == [name for name in columns if name != "id"]


def test_the_function_for_batches_does_as_the_statements() -> None:
    """It repeats them, because a migration is never changed: another column takes another function."""
    function = migrations.source("postgresql", 3)
    statements = load("postgresql")
    for name, pattern in (("reserve", r"DO UPDATE SET(.*?)WHERE"), ("columns", r"(.*)")):
        found = re.search(pattern, statements[name], re.DOTALL)
        assert found is not None
        wanted = [text.strip() for text in found[1].split(",")]
        assert re.sub(r"\s+", " ", ", ".join(wanted)) in re.sub(r"\s+", " ", function), name
    expired = re.sub(r"\s+", " ", statements["expired"].replace(statements["now"], "present"))
    for alias in ("record", "there"):
        assert expired.replace("record.", f"{alias}.") in re.sub(r"\s+", " ", function)
    returned = re.search(r"RETURNS TABLE \((.*?)\)\nLANGUAGE", function, re.DOTALL)
    assert returned is not None
    names = [line.split()[0] for line in returned[1].strip().splitlines()]
    columns = [name.strip() for name in statements["columns"].split(",")]
    assert names == ["place", "done", *columns, "status", "headers", "body", "omitted", "at"]


def test_what_is_read_is_what_is_written() -> None:
    """PostgreSQL's times are read as numbers, so its columns stand in two fragments: in the same order."""
    statements = load("postgresql")
    read = re.findall(r"record\.(\w+)", statements["record_columns"])
    assert read == [name.strip() for name in statements["columns"].split(",")]


def test_nothing_but_an_argument_has_a_colon() -> None:
    """So that every driver can be given its own kind of placeholder."""
    for name, text in load("postgresql").items():
        assert "::" not in text, name
        assert "%" not in text, name


def test_the_servers_time_is_one_time() -> None:
    """Every statement that needs it uses `{now}`, which does not stand still in a caller's transaction."""
    for name, text in load("postgresql").items():
        asked = re.findall(r"\b(now|current_timestamp|clock_timestamp|transaction_timestamp)\b\s*\(", text)
        assert not asked, name


class TestFiles:
    """How a file is read."""

    def test_statements_are_found_by_their_headings(self) -> None:
        """Comments belong to the statement below whose heading they are, blank lines around it to none."""
        text = "-- Two.\n\n-- name: one\n-- Columns: 1\nSELECT 1\n\n-- name: two\n\nSELECT\n\n    2 -- why\n"
        found = parse({"two.sql": text})
        assert found == {"one": "-- Columns: 1\nSELECT 1\n", "two": "SELECT\n\n    2 -- why\n"}
        assert fill(found) == {"one": "SELECT 1", "two": "SELECT\n\n    2"}

    def test_a_fragment_is_filled_in(self) -> None:
        """And the fragments that it is made of; but not in a comment, which may explain one."""
        made = fill({"all": "-- Not {this}.\nSELECT {part} + {part}", "part": "({one})", "one": "1"})
        assert made["all"] == "SELECT (1) + (1)"

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            (
                "-- About.\nSELECT 1;\n-- name: one\nSELECT 1\n",
                r"x.sql: 'SELECT 1;' is above the first heading",
            ),
            ("-- About, and no heading.\nSELECT 1\n", r"x.sql: 'SELECT 1' is above the first heading"),
            ("-- name: one\nSELECT 1\n", r"x.sql: the comment that says what is in the file is missing"),
            ("", r"x.sql: the comment that says what is in the file is missing"),
            ("-- A.\n-- name: a\n1\n-- name: a\n2\n", r"x.sql:4: a was defined before, at x.sql:2$"),
            ("-- A.\n-- name: a\n-- name: b\nSELECT 2\n", r"x.sql:2: a has no SQL"),
            ("-- A.\n-- name: a\n-- Only a comment.\n", r"x.sql:2: a has no SQL"),
            ("-- A.\n--name: a\nSELECT 1\n", r"x.sql:2: '--name: a' is not a heading: write `-- name:"),
            ("-- A.\n-- Name: a\nSELECT 1\n", r"x.sql:2: '-- Name: a' is not a heading"),
            ("-- A.\n-- name: a b\nSELECT 1\n", r"x.sql:2: '-- name: a b' is not a heading"),
            ("-- A.\n-- name a\nSELECT 1\n", r"x.sql:2: '-- name a' is not a heading"),
            ("-- A.\n  -- name: a\nSELECT 1\n", r"x.sql:2: '  -- name: a' is not a heading"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_refused(self, text: str, error: str) -> None:
        """With the place, what was found there, and what to write."""
        with pytest.raises(ValueError, match=error):
            parse({"x.sql": text})

    def test_a_name_is_given_once_in_all_files_of_a_dialect(self) -> None:
        """The second file would win, or the first, and neither is what was meant."""
        text = "-- About.\n-- name: one\nSELECT 1\n"
        with pytest.raises(ValueError, match=r"^b.sql:2: one was defined before, at a.sql:2$"):
            parse({"a.sql": text, "b.sql": text})

    @pytest.mark.parametrize(
        ("sources", "error"),
        [
            ({"a": "SELECT {missing}"}, r"^a uses {missing}: no statement or fragment has this name$"),
            ({"a": "{b}", "b": "{missing}"}, r"^b uses {missing}: no statement"),
            ({"a": "{b}", "b": "{a}"}, r"^a contains itself: a uses b uses a$"),
        ],
    )
    def test_a_fragment_that_does_not_exist_is_refused(self, sources: dict[str, str], error: str) -> None:
        """When the dialect is loaded, and not by the server in the middle of the night."""
        with pytest.raises(ValueError, match=error):
            fill(sources)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bRETURNING\b",  # MariaDB alone
        r"\bINSERT IGNORE\b",  # cuts values off, and merges what was different
        r"\bREPLACE INTO\b",  # deletes whatever is in the way
        r"\bVALUES? ?\([a-z_`]+\)(?=\s*(?:,|$))",  # deprecated by MySQL
        r"\bAS new\b",  # an alias of rows, MySQL alone
        r"CREATE INDEX IF NOT EXISTS",
        r"ADD COLUMN IF NOT EXISTS",
        r"\bNOW\(\)(?!\))|CURRENT_TIMESTAMP",  # in the session's time zone
    ],
)
def test_mysql_and_mariadb_share_every_statement(pattern: str) -> None:
    """What only one of them knows, or what is not safe on either, is not written."""
    for name, text in load("mysql").items():
        if name != "long_transactions":  # whose times are in the session's time zone
            assert re.search(pattern, text) is None, name
    for migration in migrations.migrations("mysql"):
        for statement in migration.statements:
            assert re.search(pattern, statement) is None
            assert "ENGINE=InnoDB" in statement or not statement.startswith("CREATE TABLE")
