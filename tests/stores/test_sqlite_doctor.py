"""What `doctor` finds in an SQLite store: each problem is a finding, never an exception."""

import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe.stores.admin import Finding
from retrysafe.stores.sql import doctor as generic
from retrysafe.stores.sql.schema import TABLES
from retrysafe.stores.sql.sqlite import SQLiteStore, clock, doctor
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.test_sqlite_admin import execute


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    """In use, with one record."""
    store = SQLiteStore(path)
    claim = a_claim()
    store.reserve(claim)
    store.finish(claim, an_outcome())
    yield store
    store.close()


def diagnose(path: Path, deadline: float = 2.0) -> dict[str, Finding]:
    """The worst of each check, as a process that comes new to the file finds it."""
    admin = SQLiteStore(path, deadline=deadline).open_admin()
    order = ("ok", "warning", "problem")
    worst: dict[str, Finding] = {}
    for finding in admin.diagnose():
        assert finding.level == "ok" or finding.found
        before = worst.get(finding.check, finding)
        worst[finding.check] = max(before, finding, key=lambda each: order.index(each.level))
    admin.close()
    return worst


def test_a_sound_store(store: SQLiteStore, path: Path) -> None:
    """Everything is looked at, and all is well; SQLite aside, whose version is what it is."""
    found = diagnose(path)
    assert list(found) == [
        "SQLite", "directory", "filesystem", "space", "file", "permissions", "schema", "writing",
        "durability", "clock", "integrity", "records", "expired", "abandoned",
    ]  # fmt: skip
    assert {check for check, finding in found.items() if finding.level != "ok"} <= {
        "SQLite",
        "filesystem",
        "space",
    }


def test_the_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.51.3 there is a bug to know about, and what protects from it; from then on there is not."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    [finding] = doctor.library()
    assert finding.level == ("problem" if sys.platform == "win32" else "warning")
    assert "WAL-reset" in finding.found
    assert "3.51.3" in finding.advice
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    [finding] = doctor.library()
    assert finding.level == "ok"


def test_a_missing_file_is_not_made(path: Path) -> None:
    """It says that it would be, and by what."""
    found = diagnose(path)
    assert found["file"].level == "warning"
    assert "migrate" in found["file"].advice
    assert "schema" not in found
    assert list(path.parent.iterdir()) == []


def test_a_missing_directory(tmp_path: Path) -> None:
    """Neither is that."""
    found = diagnose(tmp_path / "nowhere" / "keys.db")
    assert found["directory"].level == "problem"
    assert found["file"].level == "warning"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no directory that nobody can write to")
def test_a_directory_that_nobody_can_write_to() -> None:
    """Found by trying, because rights are not all that can be in the way."""
    found = diagnose(Path("/proc/self/keys.db"))
    assert found["directory"].level == "problem"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_file_that_may_only_be_read(store: SQLiteStore, path: Path) -> None:
    """Another user's file, seen by an operator."""
    store.close()
    path.chmod(0o400)
    assert diagnose(path)["file"].level == "problem"


def test_a_directory_instead_of_a_file(path: Path) -> None:
    """Is no database."""
    path.mkdir()
    assert "not a regular file" in diagnose(path)["file"].found


def test_not_a_database(path: Path) -> None:
    """A file of another kind is said to be one, and left as it is."""
    path.write_text("Dear diary, " * 1000)
    found = diagnose(path)
    assert found["schema"].level == "problem"
    assert "not a database" in found["schema"].found
    assert path.read_text() == "Dear diary, " * 1000


def test_somebody_elses_database(path: Path) -> None:
    """Has no tables of ours, and gets none."""
    execute(path, "CREATE TABLE theirs (a)")
    found = diagnose(path)
    assert found["schema"].level == "problem"
    assert "no tables of retrysafe" in found["schema"].found
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]


def test_another_schema(store: SQLiteStore, path: Path) -> None:
    """Is named, with the one that was expected."""
    execute(path, "UPDATE retrysafe_meta SET value = 7 WHERE name = 'schema'")
    found = diagnose(path)
    assert found["schema"].level == "problem"
    assert "7" in found["schema"].found


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table(store: SQLiteStore, path: Path, table: str) -> None:
    """Is named."""
    execute(path, f"DROP TABLE {table}")
    found = diagnose(path)
    assert found["schema"].level == "problem"
    assert table in found["schema"].found


def test_a_missing_index(store: SQLiteStore, path: Path) -> None:
    """Does no harm, but slows the purge down; the rest is looked at."""
    execute(path, "DROP INDEX retrysafe_records_expires_at")
    found = diagnose(path)
    assert found["schema"].level == "warning"
    assert found["integrity"].level == "ok"


def test_a_damaged_file(store: SQLiteStore, path: Path) -> None:
    """Pages that were overwritten are found, and everything else is looked at all the same."""
    for n in range(300):
        claim = a_claim(f"key {n}")
        store.reserve(claim)
        store.finish(claim, an_outcome(b"x" * 2000))
    store.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 40_000)
    found = diagnose(path)
    assert found["integrity"].level == "problem"
    assert found["clock"].level == "ok"


def test_a_large_file_is_not_walked_through_for_ever(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that was skipped says so, with what to do."""
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(retrysafe_records)")][1:]
        others = ", ".join(columns)
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            f"INSERT INTO retrysafe_records (id, {others}) "
            f"SELECT randomblob(32), {others} FROM n JOIN (SELECT * FROM retrysafe_records LIMIT 1)"
        )
    monkeypatch.setattr(generic, "PATIENCE", 0.0)
    found = diagnose(path)
    assert "stopped there" in found["integrity"].found
    assert "quick_check" in found["integrity"].advice
    assert "skipped" in found["records"].found
    assert "skipped" in found["abandoned"].found


def test_a_frozen_writer(store: SQLiteStore, path: Path) -> None:
    """That nobody can write is a problem; what can be read is looked at all the same."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = diagnose(path, deadline=0.2)
    assert found["writing"].level == "problem"
    assert "locked" in found["writing"].found
    assert found["integrity"].level == "ok"


def test_another_journal(store: SQLiteStore, path: Path) -> None:
    """Somebody turned the log off."""
    store.close()
    execute(path, "PRAGMA journal_mode = DELETE")
    assert diagnose(path)["durability"].level == "warning"


@pytest.mark.skipif(clock.boot_id() is None, reason="this system does not tell its boots apart")
class TestClock:
    """The store's time, against that of the wall."""

    @pytest.mark.parametrize(("shift", "said"), [(3600.0, "3600 s ahead of"), (-60.0, "60 s behind")])
    def test_it_is_off(self, store: SQLiteStore, path: Path, shift: float, said: str) -> None:
        """The first process after the boot had a wrong wall clock."""
        execute(
            path,
            f"UPDATE retrysafe_meta SET value = value + {shift} WHERE name = 'offset'",
            "DELETE FROM retrysafe_meta WHERE name = 'high_water'",
        )
        found = diagnose(path)["clock"]
        assert found.level == "warning"
        assert said in found.found

    def test_somebody_is_ahead(self, store: SQLiteStore, path: Path) -> None:
        """A mark that the store's own clock has not reached was written by another clock."""
        execute(path, f"UPDATE retrysafe_meta SET value = {time.time() + 900.0} WHERE name = 'high_water'")
        found = diagnose(path)["clock"]
        assert found.level == "problem"
        assert "namespace" in found.advice

    def test_nobody_was_here_since_the_boot(self, store: SQLiteStore, path: Path) -> None:
        """It is the wall clock's until somebody is, and looking changes nothing."""
        execute(path, "UPDATE retrysafe_meta SET value = 'another boot' WHERE name = 'boot'")
        found = diagnose(path)["clock"]
        assert found.level == "ok"
        assert "until a service" in found.found
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT value FROM retrysafe_meta WHERE name = 'boot'"
            assert connection.execute(query).fetchall() == [("another boot",)]


@pytest.mark.parametrize(("free", "level"), [(1 << 20, "problem"), (1 << 29, "warning"), (1 << 40, "ok")])
def test_little_space(path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    """Said before it is too late, and more loudly when it is."""
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=free))
    assert diagnose(path)["space"].level == level


def test_a_long_log(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody reads for very long."""
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 40))
    monkeypatch.setattr(doctor, "_LONG_LOG", 1)
    found = diagnose(path)["space"]
    assert found.level == "warning"
    assert "transaction open" in found.advice


MOUNTS = [
    "/dev/sda1 / ext4 rw 0 0",
    "tmpfs /srv tmpfs rw 0 0",
    "server:/export /srv/shared nfs4 rw 0 0",
    "//host/share /srv/with\\040blank cifs rw 0 0",
    "/dev/sdb1 /over ext4 rw 0 0",
    "server:/other /over nfs rw 0 0",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/keys.db", "ext4"),
        ("/srv/keys.db", "tmpfs"),
        ("/srv/shared/keys.db", "nfs4"),
        ("/srv/shared2/keys.db", "tmpfs"),
        ("/srv/with blank/keys.db", "cifs"),
        ("/over/keys.db", "nfs"),
    ],
)
def test_the_mount_of_a_path(path: str, kind: str) -> None:
    """The deepest one that it is in; of two at one point the later."""
    assert doctor.kind_of(path, MOUNTS) == kind


def test_a_network_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is a problem; where nobody can say, it is left to the operator."""
    mounts = tmp_path / "mounts"
    mounts.write_text("server:/export / nfs4 rw 0 0\n")
    monkeypatch.setattr(doctor, "_MOUNTS", str(mounts))
    assert diagnose(tmp_path / "keys.db")["filesystem"].level == "problem"
    mounts.unlink()
    assert "not known" in diagnose(tmp_path / "keys.db")["filesystem"].found


def test_what_waits_for_an_operator(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandoned, expired and unreadable records, with what to do about them."""
    store.reserve(a_claim("abandoned")._replace(lease=-1.0))
    store.reserve(a_claim("expired")._replace(lease=-1.0, retention=-1.0))
    store.reserve(a_claim("unreadable"))
    execute(path, "UPDATE retrysafe_records SET state = 'finished' WHERE key = 'unreadable'")
    monkeypatch.setattr(generic, "_BACKLOG", 0)
    found = diagnose(path)
    assert (found["abandoned"].level, found["expired"].level) == ("warning", "warning")
    assert "outcome of 1 records" in found["abandoned"].found
    assert "1 expired" in found["expired"].found
    assert found["records"].level == "problem"
    assert a_claim("unreadable").id.hex()[:8] in found["records"].found


def test_whatever_fails_is_a_finding(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a check costs neither the others nor the operator's patience."""

    def broken(_path: str) -> Iterator[Finding]:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(doctor, "space", broken)
    found = diagnose(path)
    assert (found["space"].level, found["integrity"].level) == ("problem", "ok")
    assert "ZeroDivisionError: oh" in found["space"].found
