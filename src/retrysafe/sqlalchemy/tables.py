"""Our tables described for SQLAlchemy, so that Alembic's autogenerate creates them and does not drop them.

    target_metadata = Base.metadata
    retrysafe.sqlalchemy.tables(target_metadata)        # in Alembic's env.py

The `.sql` files are the source, and tests compare this description with them, on PostgreSQL and on SQLite.
Without a call of `tables`, autogenerate would drop our tables.

They are in the connection's default schema, where the store looks for them, whatever schema the metadata has
for others.  Their version is a row of `retrysafe_meta`: `create_all` writes it too, and where a migration of
Alembic's made the tables, which inserts no rows, the store writes it when it first finds them empty.
"""

from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.schema import BLANK_SCHEMA

from retrysafe.errors import ConfigurationError
from retrysafe.stores.sql import schema


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
    for table in made:
        event.listen(table, "before_create", _refuse_mysql)
    # The version of the tables, which has nothing to do with that of a row.
    for dialect, written in (("postgresql", "'{}'"), ("sqlite", "{}")):
        marks = {"schema": schema.SCHEMA, "migration": schema.latest(dialect)}
        for name, number in marks.items():
            mark = _mark(name, written.format(number))
            event.listen(made.meta, "after_create", mark.execute_if(dialect=dialect))
    return made


def _refuse_mysql(_table: sa.Table, connection: sa.Connection, **_: object) -> None:
    """Tables that were made by this description could not hold records there."""
    if connection.dialect.name in ("mysql", "mariadb"):
        raise ConfigurationError(
            "tables(metadata) describes the tables of PostgreSQL and SQLite. On MySQL and MariaDB run "
            "`retrysafe migrate`, and leave out the tables whose names begin with retrysafe_ in Alembic's "
            "include_name"
        )


def _records(metadata: sa.MetaData) -> sa.Table:
    table = sa.Table(
        "retrysafe_records",
        metadata,
        sa.Column("id", sa.LargeBinary, primary_key=True),
        _required("version", _small()),
        _required("token", sa.LargeBinary()),
        _required("fingerprint", sa.LargeBinary()),
        _required("state", sa.Text()),
        _required("mode", sa.Text()),
        _required("attempt", sa.Integer()),
        sa.Column("lease_until", _time()),
        _required("checkpointed", _small()),
        _required("door", sa.Text()),
        _required("scope", sa.Text()),
        sa.Column("key", sa.Text),
        _required("action", sa.Text()),
        _required("target", sa.Text()),
        _required("request_id", sa.Text()),
        sa.Column("correlation_id", sa.Text),
        _required("created_at", _time()),
        _required("updated_at", _time()),
        sa.Column("completed_at", _time()),
        _required("expires_at", _time()),
        _required("held_until", _time()),
        sa.Column("status", sa.Integer),
        sa.Column("headers", sa.Text),
        sa.Column("body", sa.LargeBinary),
        _required("omitted", _small()),
        _required("details", sa.Text(), "[]"),
        _required("retention_from", sa.Text(), "creation"),
        _required("deliveries", sa.Integer(), sa.text("1")),
        sa.Column("seen_at", _time()),
        sa.Column("delivery_times", sa.Text),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("due_at", _time()),
        schema=BLANK_SCHEMA,
        postgresql_with={"fillfactor": "67"},  # see schema.sql
    )
    sa.Index("retrysafe_records_expires_at", table.c.expires_at)
    others = table.c.door != "request"
    sa.Index("retrysafe_records_subject", table.c.target, postgresql_where=others, sqlite_where=others)
    due = table.c.due_at.is_not(None)
    sa.Index("retrysafe_records_due_at", table.c.due_at, postgresql_where=due, sqlite_where=due)
    return table


def _meta(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_meta",
        metadata,
        sa.Column("name", sa.Text, primary_key=True),
        # In SQLite a column of bytes stores any type unchanged, as one without a type does.
        _required("value", sa.Text().with_variant(sa.LargeBinary, "sqlite")),
        schema=BLANK_SCHEMA,
    )


def _audit(metadata: sa.MetaData) -> sa.Table:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Table(
        "retrysafe_audit",
        metadata,
        sa.Column("entry", number, primary_key=True),
        _required("at", _time()),
        _required("by", sa.Text()),
        _required("reason", sa.Text()),
        _required("act", sa.Text()),
        _required("outcome", sa.Text()),
        sa.Column("id", sa.LargeBinary),
        sa.Column("key", sa.Text),
        _required("scope", sa.Text()),
        _required("action", sa.Text()),
        _required("target", sa.Text()),
        _required("request_id", sa.Text()),
        schema=BLANK_SCHEMA,
        sqlite_autoincrement=True,
    )


def _verdicts(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_verdicts",
        metadata,
        sa.Column("verdict", sa.Text, primary_key=True),
        _required("count", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        _required("since", _time()),
        schema=BLANK_SCHEMA,
    )


def _routes(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "retrysafe_routes",
        metadata,
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("door", "route", "source", "verdict")),
        _required("count", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        _required("since", _time()),
        _required("seen_at", _time()),
        schema=BLANK_SCHEMA,
    )


def _required(
    name: str, kind: sa.types.TypeEngine[Any], default: str | sa.TextClause | None = None
) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=default)


def _small() -> sa.types.TypeEngine[int]:
    return sa.SmallInteger().with_variant(sa.Integer, "sqlite")


def _time() -> sa.types.TypeEngine[Any]:
    """A point in time; seconds since the epoch where the database has no type for it."""
    return sa.DateTime(timezone=True).with_variant(sa.REAL, "sqlite")


def _mark(name: str, value: str) -> sa.ExecutableDDLElement:
    mark: sa.ExecutableDDLElement = sa.DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy's
        f"INSERT INTO retrysafe_meta (name, value) VALUES ('{name}', {value}) "  # noqa: S608 - constants
        "ON CONFLICT (name) DO NOTHING"
    )
    return mark
