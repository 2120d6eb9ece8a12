"""The migrations of a dialect: numbered files of SQL, in the folder `migrations` beside its statements.

`0002_details.sql` is number 2.  On an empty database all of them are run, one after the other; on tables of
an earlier release those that these lack.  A file is never changed once it was released: what is to be
different is another file.

They only add.  A column that is added has a default, so that a service of the release before goes on working
while the tables are migrated, and can be started again afterwards.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMMENT = re.compile(r"--[^\n]*")
_STATEMENT = re.compile(r"((?:[^;$]|\$\w*\$.*?\$\w*\$)+);", re.DOTALL)
"""Up to its semicolon; those in the body of a function, which stands between dollar signs, do not end it."""

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*)\)[^()]*(?:\([^()]*\))?", re.DOTALL)
_INDEX = re.compile(r"CREATE INDEX (?:IF NOT EXISTS )?(\w+)")
_CONSTRAINT = re.compile(r",\s*(?:PRIMARY )?KEY (?:\w+ )?\([^()]*\)")
"""Of a table, and so of several of its columns."""
_KEY = re.compile(r",\s*KEY (\w+) (\([^()]*\))")
_COLUMN = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (?:IF NOT EXISTS )?(\w+)")

Column = tuple[str, str]
"""A table and one of its columns."""


class Migration(NamedTuple):
    number: int
    title: str
    source: str
    """As it is written, with its comments: for people."""

    @property
    def statements(self) -> list[str]:
        """One by one, without comments: not every driver takes several."""
        return [found.strip() for found in _STATEMENT.findall(_COMMENT.sub("", self.source))]


@cache
def migrations(dialect: str) -> Sequence[Migration]:
    folder = files("retrysafe.stores.sql") / dialect / "migrations"
    found: list[Migration] = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql"):
            continue
        name = _NAME.fullmatch(file.name)
        if name is None or int(name[1]) != len(found) + 1:
            raise ValueError(
                f"{dialect}/migrations/{file.name} is not number {len(found) + 1:04}, which is next"
            )
        title = name[2].replace("_", " ")
        found.append(Migration(int(name[1]), title, file.read_text(encoding="utf-8")))
    return tuple(found)


def source(dialect: str, after: int = 0) -> str:
    """The SQL of all migrations after this number, with comments."""
    return "\n".join(each.source for each in migrations(dialect) if each.number > after)


def index_of(statement: str) -> str | None:
    """The index that a statement creates."""
    found = _INDEX.match(statement)
    return found and found[1]


def keys_of_table(statement: str) -> dict[str, str]:
    """The indexes that a statement creates with a table, and how each of them is created alone."""
    found = _TABLE.match(statement)
    if found is None:
        return {}
    return {name: f"CREATE INDEX {name} ON {found[1]} {columns}" for name, columns in _KEY.findall(found[2])}


def column_of(statement: str) -> Column | None:
    """The column that a statement adds to a table."""
    found = _COLUMN.match(statement)
    return found and (found[1], found[2])


def table_of(statement: str) -> str | None:
    """The table that a statement creates."""
    found = _TABLE.match(statement)
    return found and found[1]


def columns_of_table(statement: str) -> list[Column]:
    """The columns of the table that a statement creates."""
    found = _TABLE.match(statement)
    if found is None:
        return []
    columns = _CONSTRAINT.sub("", found[2]).split(",")
    return [(found[1], line.split()[0].strip("`")) for line in columns if line.strip()]
