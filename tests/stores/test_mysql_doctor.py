"""What `retrysafe doctor` says of MariaDB: nothing of a sound one, and what is wrong with each other."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import pymysql
import pytest

from retrysafe import stores
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Finding
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.mysql import doctor
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.stores import a_claim
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import connect

Connection: TypeAlias = "pymysql.Connection[Any]"


@pytest.fixture(scope="module")
def server(mariadb: MariaDBServer) -> Iterator[MariaDBServer]:
    """A server of these tests' own, because they change its settings; with a binary log, as one has that is
    copied to others."""
    del mariadb  # only where there is one
    with MariaDBServer(innodb_flush_method="nosync", log_bin="log", sync_binlog="1") as server:
        yield server


@pytest.fixture
def url(server: MariaDBServer) -> Iterator[str]:
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = stores.open(url, deadline=PATIENT)
    store.reserve(a_claim())
    yield store
    store.close()


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    with closing(connect(url)) as connection:
        yield connection


def execute(connection: Connection, *statements: str) -> None:
    with connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)


def diagnosed(url: str) -> list[Finding]:
    with closing(stores.open(url, deadline=PATIENT).open_admin()) as admin:
        return list(admin.diagnose())


def wrong(url: str) -> list[tuple[str, str]]:
    return [(finding.check, finding.level) for finding in diagnosed(url) if finding.level != "ok"]


@pytest.mark.usefixtures("store")
def test_a_sound_store(url: str) -> None:
    """Every check has been made, and none finds anything."""
    found = diagnosed(url)
    assert [finding for finding in found if finding.level != "ok"] == []
    assert [finding.check for finding in found] == (
        "server durability mode isolation clock connections packets schema rights records expired "
        "abandoned locks"
    ).split()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("setting", "bad", "expected"),
    [
        ("read_only", "1", ("server", "problem")),
        ("innodb_flush_log_at_trx_commit", "2", ("durability", "problem")),
        ("innodb_flush_log_at_trx_commit", "0", ("durability", "problem")),
        ("sync_binlog", "0", ("durability", "warning")),
        ("sql_mode", "''", ("mode", "warning")),
        ("tx_isolation", "'SERIALIZABLE'", ("isolation", "warning")),
        ("innodb_snapshot_isolation", "1", ("isolation", "warning")),
        ("max_connections", "10", ("connections", "warning")),
        ("max_allowed_packet", "1048576", ("packets", "warning")),
        ("binlog_format", "'STATEMENT'", ("binary log", "problem")),
    ],
)
def test_a_setting_that_harms(
    url: str, other: Connection, setting: str, bad: str, expected: tuple[str, str]
) -> None:
    """Each is found, and nothing else but what follows from it."""
    with other.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{setting}")
        [[before]] = cursor.fetchall()
    execute(other, f"SET GLOBAL {setting} = {bad}")
    try:
        found = wrong(url)
    finally:
        again = f"'{before}'" if isinstance(before, str) else before
        execute(other, f"SET GLOBAL {setting} = {again}")
    assert found[0] == expected
    assert found[1:] == ([("rights", "problem")] if setting == "binlog_format" else [])
    assert wrong(url) == []


def _engine(connection: Connection) -> None:
    execute(connection, "ALTER TABLE retrysafe_records ENGINE = Aria")


def _collation(connection: Connection) -> None:
    execute(connection, "ALTER TABLE retrysafe_verdicts CONVERT TO CHARACTER SET latin1")


def _identity(connection: Connection) -> None:
    execute(connection, "ALTER TABLE retrysafe_records MODIFY id VARCHAR(255) CHARACTER SET latin1 NOT NULL")


def _index(connection: Connection) -> None:
    execute(connection, "ALTER TABLE retrysafe_records DROP INDEX retrysafe_records_expires_at")


def _table(connection: Connection) -> None:
    execute(connection, "DROP TABLE retrysafe_audit")


def _column(connection: Connection) -> None:
    execute(connection, "ALTER TABLE retrysafe_records DROP COLUMN payload")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_engine, "retrysafe_records is stored by Aria"),
        (_collation, "retrysafe_verdicts has the collation latin1"),
        (_identity, "retrysafe_records.id is varchar"),
        (_index, "retrysafe_records_expires_at"),
        (_table, "retrysafe_audit"),
        (_column, "retrysafe_records.payload"),
    ],
)
def test_tables_that_are_not_ours_any_more(
    url: str, other: Connection, damage: Callable[[Connection], None], says: str
) -> None:
    """By whom they were changed, and how, is for an operator to find out."""
    damage(other)
    said = [finding.found for finding in diagnosed(url) if finding.level != "ok"]
    assert len(said) == 1
    assert says in said[0]


@pytest.mark.usefixtures("store")
def test_records_that_need_an_operator(url: str, other: Connection) -> None:
    """A damaged one, and one that was abandoned."""
    execute(other, "UPDATE retrysafe_records SET lease_until = created_at, held_until = created_at")
    assert wrong(url) == [("abandoned", "warning")]
    execute(other, "UPDATE retrysafe_records SET version = 7")
    assert ("records", "problem") in wrong(url)


@pytest.mark.usefixtures("store")
def test_rights(url: str, other: Connection) -> None:
    """A user who lacks some is told which, and what does not work without them."""
    user, database = f"clerk_{os.urandom(4).hex()}", url.rpartition("/")[2]
    host = f"{user}@'127.0.0.1'"
    theirs = f"mysql://{user}:clerk@{url.partition('@')[2]}"
    execute(
        other,
        f"CREATE USER {host} IDENTIFIED BY 'clerk'",
        f"GRANT SELECT, INSERT, UPDATE ON {database}.* TO {host}",
    )
    try:
        [rights] = [finding for finding in diagnosed(theirs) if finding.check == "rights"]
        assert (rights.level, rights.found) == ("problem", "this user lacks DELETE on retrysafe_records")
        execute(other, f"REVOKE ALL ON {database}.* FROM {host}")
        for table in ("audit", "verdicts", "meta"):
            execute(other, f"GRANT SELECT, INSERT, UPDATE ON {database}.retrysafe_{table} TO {host}")
        execute(other, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.retrysafe_records TO {host}")
        execute(other, f"GRANT SELECT ON {database}.retrysafe_routes TO {host}")
        [rights] = [finding for finding in diagnosed(theirs) if finding.check == "rights"]
        assert rights.level == "warning"
        assert "INSERT, UPDATE on retrysafe_routes" in rights.found
        assert "do not count calls by route" in rights.found
        [locks] = [finding for finding in diagnosed(theirs) if finding.check == "locks"]
        assert "may not see" in locks.found
    finally:
        execute(other, f"DROP USER {host}")


@pytest.mark.usefixtures("store")
def test_a_transaction_that_does_not_end(
    url: str, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, with what ends it."""
    monkeypatch.setattr(doctor, "_LONG", -1)
    other.begin()
    with other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
    [locks] = [finding for finding in diagnosed(url) if finding.level != "ok"]
    other.rollback()
    thread = other.thread_id()  # type: ignore[no-untyped-call]
    assert locks.advice.endswith(f"end one with KILL {thread}")


def test_no_tables(url: str) -> None:
    """It makes none."""
    assert wrong(url) == [("schema", "problem")]
    assert wrong(url) == [("schema", "problem")]


def test_indexes_that_operators_choose(url: str) -> None:
    """One on request ids is made once; one on scopes there is none of, and that is said."""
    with closing(stores.open(url, deadline=PATIENT).open_admin()) as admin:
        assert "retrysafe_records_request_id" in admin.migrate(["request-id"])
        assert "nothing to do" in admin.migrate(["request-id"])
        with pytest.raises(StoreUnavailable, match="no index on scope in mysql"):
            admin.migrate(["scope"])


@pytest.mark.parametrize(
    ("settings", "level", "says"),
    [
        ({"wsrep_cluster_status": "Primary", "wsrep_ready": "ON"}, "warning", "write to one node"),
        ({"wsrep_cluster_status": "non-Primary", "wsrep_ready": "OFF"}, "problem", "lost the majority"),
    ],
)
def test_a_node_of_a_cluster(settings: dict[str, str], level: str, says: str) -> None:
    """As its variables and its status say it; a cluster itself is in tests/testing/test_galera.py."""
    variables = {"wsrep_on": "ON", "wsrep_sync_wait": "0"}
    node = doctor.Server("MariaDB", "10.11", "root", "db", 0.0, variables, settings)
    [finding] = doctor.cluster(node)
    assert finding.level == level
    assert says in finding.advice


def test_mysql_is_said_to_be_unproven() -> None:
    """With the command that proves it."""
    [finding] = doctor.kind(doctor.Server("MySQL", "8.4.2", "root", "db", 0.0, {}, {}))
    assert finding.level == "ok"
    assert "python -m retrysafe.testing.stores" in finding.advice
    [old] = doctor.kind(doctor.Server("MySQL", "5.7.44", "root", "db", 0.0, {}, {}))
    assert old.level == "problem"
