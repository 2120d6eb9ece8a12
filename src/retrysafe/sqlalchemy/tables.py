"""Our tables described for SQLAlchemy, so that Alembic's autogenerate creates them and does not drop them.

    target_metadata = Base.metadata
    retrysafe.sqlalchemy.tables(target_metadata)        # in Alembic's env.py

The `.sql` files are the source, and tests compare this description with them, on every database.
Without a call of `tables`, autogenerate would drop our tables.

They are in the connection's default schema, where the store looks for them, whatever schema the metadata has
for others.  Their version is a row of `retrysafe_meta`: `create_all` writes it too, and where a migration of
Alembic's made the tables, which inserts no rows, the store writes it when it first finds them empty.
"""

from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import BLANK_SCHEMA

from retrysafe.stores.sql import schema

_ON_MYSQL: Final = ("mysql", "mariadb")
"""The names of SQLAlchemy's dialects."""

_OPTIONS: Final[dict[str, Any]] = {
    f"{dialect}_{name}": value
    for dialect in _ON_MYSQL
    for name, value in {
        "engine": "InnoDB",
        "row_format": "DYNAMIC",
        "default_charset": "utf8mb4",
        "collate": "utf8mb4_bin",
    }.items()
}


class Tables(NamedTuple):
    """What `tables` adds to the metadata."""

    records: sa.Table
    meta: sa.Table
    audit: sa.Table
    verdicts: sa.Table
    routes: sa.Table


def tables(metadata: sa.MetaData) -> Tables:
    """Add the tables of the store to this metadata; a second call gives the same ones."""
    names = [f"retrysafe_{part}" for part in Tables._fields]
    if all(name in metadata.tables for name in names):
        return Tables(*(metadata.tables[name] for name in names))
    made = Tables(
        _records(metadata), _meta(metadata), _audit(metadata), _verdicts(metadata), _routes(metadata)
    )
    # The version of the tables, which has nothing to do with that of a row.
    for dialect, folder, written in (
        ("postgresql", "postgresql", "'{}'"),
        ("sqlite", "sqlite", "{}"),
        *((dialect, "mysql", "'{}'") for dialect in _ON_MYSQL),
    ):
        marks = {"schema": schema.SCHEMA, "migration": schema.latest(folder)}
        for name, number in marks.items():
            mark = _mark(name, written.format(number), _NOTHING[folder])
            event.listen(made.meta, "after_create", mark.execute_if(dialect=dialect))
    return made


def _records(metadata: sa.MetaData) -> sa.Table:
    table = sa.Table(
        "retrysafe_records",
        metadata,
        sa.Column("id", _bytes(32), primary_key=True),
        _required("version", _small()),
        _required("token", _bytes(64)),
        _required("fingerprint", _bytes(64)),
        _required("state", _word(32)),
        _required("mode", _word(32)),
        _required("attempt", sa.Integer()),
        sa.Column("lease_until", _time()),
        _required("checkpointed", _small()),
        _required("door", _word(32)),
        _required("scope", _text()),
        sa.Column("key", _text()),
        _required("action", _text()),
        _required("target", _text()),
        _required("request_id", _text()),
        sa.Column("correlation_id", _text()),
        _required("created_at", _time()),
        _required("updated_at", _time()),
        sa.Column("completed_at", _time()),
        _required("expires_at", _time()),
        _required("held_until", _time()),
        sa.Column("status", sa.Integer),
        sa.Column("headers", _text()),
        sa.Column("body", _bytes()),
        _required("omitted", _small()),
        _required("details", _text(), _NO_DETAILS),
        _required("retention_from", _word(32), "creation"),
        _required("deliveries", sa.Integer(), sa.text("1")),
        sa.Column("seen_at", _time()),
        sa.Column("delivery_times", sa.Text),
        sa.Column("payload", _bytes()),
        sa.Column("due_at", _time()),
        schema=BLANK_SCHEMA,
        postgresql_with={"fillfactor": "67"},  # see schema.sql
        **_OPTIONS,
    )
    sa.Index("retrysafe_records_expires_at", table.c.expires_at)
    others = table.c.door != "request"
    subject = sa.Index(
        "retrysafe_records_subject",
        table.c.target,
        postgresql_where=others,
        sqlite_where=others,
        # Alembic does not know of `ddl_if`, and proposes it there too: it can at least be made.
        mysql_length=191,
        mariadb_length=191,
    )
    # MySQL has no partial indexes, and one of all targets would cost every request.
    subject.ddl_if(callable_=_has_partial_indexes)
    due = table.c.due_at.is_not(None)
    sa.Index("retrysafe_records_due_at", table.c.due_at, postgresql_where=due, sqlite_where=due)
    return table


def _meta(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_meta",
        metadata,
        sa.Column("name", _word(64), primary_key=True),
        # In SQLite a column of bytes stores any type unchanged, as one without a type does.
        _required("value", _word(255).with_variant(sa.LargeBinary, "sqlite")),
        schema=BLANK_SCHEMA,
        **_OPTIONS,
    )


def _audit(metadata: sa.MetaData) -> sa.Table:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Table(
        "retrysafe_audit",
        metadata,
        sa.Column("entry", number, primary_key=True),
        _required("at", _time()),
        _required("by", _text()),
        _required("reason", _text()),
        _required("act", _word(32)),
        _required("outcome", _text()),
        sa.Column("id", _bytes(32)),
        sa.Column("key", _text()),
        _required("scope", _text()),
        _required("action", _text()),
        _required("target", _text()),
        _required("request_id", _text()),
        schema=BLANK_SCHEMA,
        **_OPTIONS,
        sqlite_autoincrement=True,
    )


def _verdicts(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_verdicts",
        metadata,
        sa.Column("verdict", _word(64), primary_key=True),
        _required("count", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        _required("since", _time()),
        schema=BLANK_SCHEMA,
        **_OPTIONS,
    )


def _routes(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_routes",
        metadata,
        *(
            sa.Column(name, _word(length), primary_key=True)
            for name, length in (("door", 32), ("route", 300), ("source", 300), ("verdict", 64))
        ),
        _required("count", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        _required("since", _time()),
        _required("seen_at", _time()),
        schema=BLANK_SCHEMA,
        **_OPTIONS,
    )


def _required(
    name: str, kind: sa.types.TypeEngine[Any], default: str | sa.TextClause | None = None
) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=default)


_NO_DETAILS: Final = sa.text("('[]')")
"""In parentheses, because MySQL has no other default of a long text."""


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), *_ON_MYSQL)


def _word(length: int) -> sa.types.TypeEngine[Any]:
    """A text of which no longer one is written, where the database asks for that."""
    return sa.Text().with_variant(mysql.VARCHAR(length), *_ON_MYSQL)


def _bytes(length: int | None = None) -> sa.types.TypeEngine[bytes]:
    kind = mysql.LONGBLOB() if length is None else sa.VARBINARY(length)
    return sa.LargeBinary().with_variant(kind, *_ON_MYSQL)


def _has_partial_indexes(*_: object, dialect: sa.Dialect, **_more: object) -> bool:
    return dialect.name not in _ON_MYSQL


def _small() -> sa.types.TypeEngine[int]:
    return sa.SmallInteger().with_variant(sa.Integer, "sqlite")


def _time() -> sa.types.TypeEngine[Any]:
    """A point in time; seconds since the epoch where the database has no type for it."""
    exact = mysql.DATETIME(fsp=6)
    return sa.DateTime(timezone=True).with_variant(sa.REAL, "sqlite").with_variant(exact, *_ON_MYSQL)


_NOTHING: Final = {
    "postgresql": "ON CONFLICT (name) DO NOTHING",
    "sqlite": "ON CONFLICT (name) DO NOTHING",
    "mysql": "ON DUPLICATE KEY UPDATE name = name",
}
"""What leaves a mark that is there as it is."""


def _mark(name: str, value: str, otherwise: str) -> sa.ExecutableDDLElement:
    mark: sa.ExecutableDDLElement = sa.DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy's
        f"INSERT INTO retrysafe_meta (name, value) VALUES ('{name}', {value}) {otherwise}"  # noqa: S608
    )
    return mark
