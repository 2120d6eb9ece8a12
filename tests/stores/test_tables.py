"""Our tables as SQLAlchemy knows them: what Alembic sees, what `create_all` makes, and that both are the
store's."""

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations

from retrysafe import stores
from retrysafe._core.model import Reserved
from retrysafe.sqlalchemy import tables
from retrysafe.stores.admin import Query
from retrysafe.stores.sql import schema
from retrysafe.stores.sql.migrations import migrations, source
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended


class Place:
    """An empty database, for the store and for SQLAlchemy."""

    def __init__(self, url: str, engine: sa.Engine, apply: Callable[[], None]) -> None:
        self.url = url
        self.engine = engine
        self.make_tables = apply
        """As `retrysafe sql` prints them."""


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "keys.db"
        engine = sa.create_engine(f"sqlite:///{path}")

        def apply() -> None:
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(source("sqlite"))

        yield Place(f"sqlite:///{path}", engine, apply)
    elif request.param == "mariadb":
        url: str = request.getfixturevalue("mariadb").new_database()
        engine = sa.create_engine(url.replace("mysql:", "mysql+pymysql:"))

        def apply() -> None:
            with engine.begin() as connection:
                for migration in migrations("mysql"):
                    for statement in migration.statements:
                        connection.exec_driver_sql(statement.replace("%", "%%"))

        yield Place(url, engine, apply)
    else:
        url = request.getfixturevalue("database")
        engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

        def apply() -> None:
            with psycopg.connect(url) as connection:
                connection.execute(source("postgresql").encode())

        yield Place(url, engine, apply)
    engine.dispose()


def described() -> sa.MetaData:
    metadata = sa.MetaData()
    tables(metadata)
    return metadata


@contextmanager
def context(engine: sa.Engine, metadata: sa.MetaData, **options: object) -> Generator[MigrationContext]:
    with engine.begin() as connection:
        yield MigrationContext.configure(connection, opts={"target_metadata": metadata, **options})


def differences(asked: MigrationContext, metadata: sa.MetaData) -> list[Any]:
    """What Alembic would change; on MariaDB but for what it cannot be told of one database: an index, and
    defaults, which the tables of other databases have."""
    found: list[Any] = compare_metadata(asked, metadata)
    if asked.dialect.name not in ("mysql", "mariadb"):
        return found
    return [
        change
        for change in found
        if not (change[0] == "add_index" and change[1].name == "retrysafe_records_subject")
        and not (isinstance(change, list) and {one[0] for one in change} == {"modify_default"})
    ]


@pytest.mark.parametrize("defaults", [False, True])
def test_alembic_finds_no_difference(place: Place, defaults: bool) -> None:
    """Between the tables as the `.sql` file makes them and as they are described; and it would find one."""
    place.make_tables()
    metadata = described()
    with context(place.engine, metadata, compare_type=True, compare_server_default=defaults) as asked:
        assert differences(asked, metadata) == []
        tables(metadata).records.append_column(sa.Column("more", sa.Text))
        assert differences(asked, metadata) != []


def test_without_the_description_it_would_drop_them(place: Place) -> None:
    """Which is why it is there: autogenerate removes tables that nobody describes."""
    place.make_tables()
    empty = sa.MetaData()
    with context(place.engine, empty) as asked:
        dropped = {change[1].name for change in compare_metadata(asked, empty) if change[0] == "remove_table"}
    assert dropped == set(described().tables)


def works(place: Place) -> None:
    """A service claims, finishes, replays and expires; an operator looks, and there is nothing to migrate."""
    store = stores.open(place.url, deadline=20.0)
    claim = a_claim()
    assert store.reserve(claim) == Reserved(1)
    assert store.finish(claim, an_outcome()) is True
    found = store.look(claim.id)
    assert found is not None
    assert found.record.response == an_outcome().response
    keeper = store.open_keeper()
    keeper.count(ended({"completed": 1}))
    keeper.close()
    admin = store.open_admin()
    assert admin.migrate().startswith("nothing to do")
    assert [sighting.record.key for sighting in admin.list(Query())] == ["key"]
    assert admin.statistics().verdicts == {"completed": 1}
    admin.close()
    store.close()


def test_create_all_makes_tables_that_work(place: Place) -> None:
    """With their version in them; making them again changes nothing, and SQLAlchemy sees what it made."""
    metadata = described()
    metadata.create_all(place.engine)
    store = stores.open(place.url, deadline=20.0)
    admin = store.open_admin()
    assert admin.migrate().startswith("nothing to do")
    admin.close()
    store.close()
    metadata.create_all(place.engine)
    works(place)
    with context(place.engine, metadata, compare_type=True) as asked:
        assert differences(asked, metadata) == []


def test_create_all_writes_the_version_that_the_store_expects(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the tables, as schema.sql writes it, and not that of a row, which changes for other reasons."""
    place.make_tables()
    version = "SELECT value FROM retrysafe_meta WHERE name = 'schema'"
    with place.engine.begin() as connection:
        by_sql = connection.execute(sa.text(version)).scalar()
        described().drop_all(connection)
        described().create_all(connection)
        assert connection.execute(sa.text(version)).scalar() == by_sql
        described().drop_all(connection)
        assert str(by_sql) == str(schema.SCHEMA)
        monkeypatch.setattr(schema, "SCHEMA", 7)
        described().create_all(connection)
        assert connection.execute(sa.text(version)).scalar() == (7 if by_sql == 1 else "7")


def test_a_migration_of_alembics_makes_tables_that_work(place: Place) -> None:
    """Made by operations, as a migration does, which writes no rows: the store writes the version."""
    metadata = described()
    with context(place.engine, metadata) as asked:
        script = produce_migrations(asked, metadata)
        operations = Operations(asked)
        assert script.upgrade_ops is not None
        for step in script.upgrade_ops.ops:
            _carry_out(operations, step)
    with place.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM retrysafe_meta")).scalar() == 0
    works(place)


def _carry_out(operations: Operations, step: Any) -> None:
    if hasattr(step, "ops"):
        for part in step.ops:
            _carry_out(operations, part)
    else:
        operations.invoke(step)


def test_a_generated_migration_needs_no_import(place: Place) -> None:
    """Its text names types of SQLAlchemy alone, which every migration imports."""
    metadata = described()
    with context(place.engine, metadata) as asked:
        upgrade = produce_migrations(asked, metadata).upgrade_ops
    assert upgrade is not None
    text = render_python_code(upgrade)
    assert "create_table('retrysafe_records'" in text
    assert "retrysafe." not in text


def test_migrate_writes_the_version(place: Place) -> None:
    """Where tables were made without it, and somebody asks before any service has come."""
    place.make_tables()
    with place.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM retrysafe_meta"))
    store = stores.open(place.url, deadline=20.0)
    admin = store.open_admin()
    assert admin.migrate() == "created version 1 in retrysafe_meta"
    assert admin.migrate().startswith("nothing to do")
    admin.close()
    store.close()


def test_described_twice() -> None:
    """In two places of an application, perhaps: the tables are the same ones."""
    metadata = sa.MetaData()
    assert tables(metadata) == tables(metadata)
    assert len(metadata.tables) == 5


def test_a_schema_of_the_metadata_is_not_ours(place: Place) -> None:
    """Where an application keeps its own tables elsewhere, ours stand where the store looks for them."""
    metadata = sa.MetaData(
        schema="elsewhere",
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "pk": "pk_%(table_name)s",
            "ck": "ck_%(table_name)s",
        },
    )
    tables(metadata)
    metadata.create_all(place.engine)
    works(place)
    with context(place.engine, metadata) as asked:
        assert differences(asked, metadata) == []
