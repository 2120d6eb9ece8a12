"""The SQLite file itself: its mode, and what happens when it is deleted or replaced while it is open."""

import asyncio
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import retrysafe.sqlite3
from retrysafe._core.model import Found, Reserved
from retrysafe.errors import CommitRefused, StoreUnavailable
from retrysafe.stores.sql.sqlite import SQLiteStore, file
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.test_sqlite_doctor import diagnose
from tests.transactions.calls import guarded
from tests.transactions.ledgers import TABLE, a_guard

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not delete an open file")

KEPT = a_claim("kept")

WORKER = """
import sys
from retrysafe.errors import CommitRefused, StoreUnavailable
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim
store = SQLiteStore(sys.argv[1], deadline=20.0)
store.look(b"nothing")
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(type(store.reserve(a_claim(line.strip()))).__name__, flush=True)
    except StoreUnavailable:
        print("refused", flush=True)
"""


class Worker:
    """A process with a store of its own."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        first = self._read()
        if first != "ready":
            self.end()
        assert first == "ready"

    def reserve(self, key: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{key}\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        with self._process:
            self._process.kill()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    """In use, with one record; its readers look at the file each time."""
    monkeypatch.setattr("retrysafe.stores.sql.sqlite.connection.LOOK_EVERY", 0.0)
    store = SQLiteStore(path, deadline=20.0)
    store.reserve(KEPT)
    store.finish(KEPT, an_outcome())
    yield store
    store.close()


def delete(path: Path) -> None:
    """The database with its log, as in `rm keys.db*`; the lock file is left."""
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        name.unlink()


def replace(path: Path) -> None:
    """By a backup, atomically, as in `mv backup.db keys.db`."""
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", [str(backup)])
    backup.replace(path)


def delete_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()
    path.with_name(f"{path.name}-shm").unlink()


LOSSES = [delete, replace, delete_log]


@pytest.mark.parametrize("lose", LOSSES)
def test_no_key_is_accepted_by_two_halves(path: Path, lose: Callable[[Path], None]) -> None:
    """One worker has the lost file open, another was restarted: each key runs at most once."""
    old = Worker(path)
    try:
        assert old.reserve("before") == "Reserved"
        lose(path)
        new = Worker(path)
        try:
            if lose is delete_log:  # at which it looks once a second
                warm = iter(range(10_000))
                while old.reserve(f"another {next(warm)}") != "refused":
                    time.sleep(0.01)
            found = [(old.reserve(f"key {n}"), new.reserve(f"key {n}")) for n in range(60)]
        finally:
            new.end()
    finally:
        old.end()
    assert set(found) == {("refused", "Reserved")}


@pytest.mark.parametrize("half", ["blocking", "aio"])
@pytest.mark.parametrize("lose", LOSSES)
def test_everything_is_refused(
    store: SQLiteStore,
    path: Path,
    lose: Callable[[Path], None],
    half: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Claims, replays, completions and renewals; the log says what was found, and says it once."""
    keeper, running = store.open_keeper(), a_claim("running")
    assert store.reserve(running) == Reserved(1)
    assert keeper.renew([running]) == [True]
    lose(path)
    aio = store.aio
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"deleted|replaced"):
            keeper.renew([running])
        for make in (
            lambda: aio.reserve(a_claim("fresh")),
            lambda: aio.reserve(a_claim("kept")),
            lambda: aio.look(a_claim("kept").id),
            lambda: aio.finish(running, an_outcome()),
        ):
            with pytest.raises(StoreUnavailable, match="put the original file back, or restart every worker"):
                asyncio.run(make())
        if half == "blocking":
            with pytest.raises(StoreUnavailable):
                store.look(a_claim("kept").id)
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].name == "retrysafe.store"
    assert str(path) in errors[0].getMessage()
    keeper.close()


def test_a_replay_is_refused_within_a_second(path: Path) -> None:
    """Readers look once a second, in a thread of their own or not: no write is needed to notice."""
    store = SQLiteStore(path)
    store.reserve(KEPT)
    store.finish(KEPT, an_outcome())
    assert isinstance(store.look(KEPT.id), Found)
    delete(path)
    start = time.monotonic()

    def replay() -> None:
        while time.monotonic() < start + file.LOOK_EVERY + 20:
            store.look(KEPT.id)
            time.sleep(0.01)

    with pytest.raises(StoreUnavailable, match="deleted"):
        replay()
    store.close()


def test_a_deleted_file_is_not_created_anew(store: SQLiteStore, path: Path) -> None:
    """Neither by the keeper, which opens its connection only now, nor by a writer that lost its own."""
    delete(path)
    with pytest.raises(StoreUnavailable):
        store.open_keeper().renew([a_claim()])
    pid = os.fork()
    if pid == 0:
        try:
            store.reserve(a_claim("in the child"))
        except StoreUnavailable as error:
            os._exit(0 if "deleted" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim("in the parent"))
    assert not path.exists()


def test_renamed_and_back(store: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The original file is recognised, with its records; what was refused meanwhile was not done."""
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim("first"))
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim("second"))
    away.rename(path)
    assert store.reserve(a_claim("second")) == Reserved(1)
    assert isinstance(store.reserve(a_claim("kept")), Found)
    assert "original file again" in caplog.text


def test_the_original_without_its_log_stays_refused(store: SQLiteStore, path: Path) -> None:
    """Meanwhile a new worker has begun another database, whose log would be taken for this one's."""
    away = path.with_name("away.db")
    path.rename(away)
    delete_log(path)
    Worker(path).end()
    away.replace(path)
    with pytest.raises(StoreUnavailable, match=r"keys\.db-wal was"):
        store.reserve(a_claim("fresh"))


def test_a_closed_store_may_begin_with_another_file(store: SQLiteStore, path: Path) -> None:
    """`close` says that nothing is running any more."""
    delete(path)
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim("kept"))
    store.close()
    assert store.reserve(a_claim("kept")) == Reserved(1)


def test_a_file_that_was_never_used_may_be_replaced(path: Path) -> None:
    """What this release cannot read was no store of ours, so its successor is opened."""
    path.write_bytes(b"this is not a database " * 100)
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim())
    path.unlink()
    assert store.reserve(a_claim()) == Reserved(1)
    store.close()


def test_backups_are_no_replacement(store: SQLiteStore, path: Path) -> None:
    """Neither one that SQLite makes, nor a restore through SQLite, nor another hard link."""
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", [str(backup)])
    os.link(path, path.with_name("link.db"))
    assert store.reserve(a_claim("one")) == Reserved(1)
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(backup)) as there:
        there.backup(here)
    assert store.reserve(a_claim("one")) == Reserved(1), "not in the backup"
    assert isinstance(store.reserve(a_claim("kept")), Found)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_guarded_call_commits_to_no_lost_file(path: Path, when: str) -> None:
    """Deleted before the handler opens it or while it runs: 503, and no response that is stored nowhere."""
    guard = a_guard(f"sqlite:///{path}")
    with retrysafe.sqlite3.connection(guard) as db:
        db.execute(TABLE)

    def handler() -> None:
        if when == "before":
            path.unlink()
        with retrysafe.sqlite3.connection(guard) as db:
            db.execute("INSERT INTO items VALUES ('a')")
            if when == "meanwhile":
                path.unlink()

    assert guarded(guard, handler, CommitRefused if when == "meanwhile" else None) == 503
    assert not path.exists()


# --- the mode


def modes(path: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_new_files_are_their_owners_alone(path: Path) -> None:
    """All four, whatever the umask says: they hold the keys and responses of all users."""
    store = SQLiteStore(path)
    store.reserve(a_claim())
    names = ("keys.db", "keys.db-wal", "keys.db-shm", "keys.db-lock")
    assert modes(path) == dict.fromkeys(names, 0o600)
    store.close()


@pytest.mark.usefixtures("umask")
def test_new_files_of_migrate_and_of_connections(path: Path) -> None:
    """Whichever comes first."""
    guard = a_guard(f"sqlite:///{path}")
    with retrysafe.sqlite3.connection(guard) as db:
        db.execute(TABLE)
    assert set(modes(path).values()) == {0o600}
    other = path.with_name("other.db")
    admin = SQLiteStore(other).open_admin()
    admin.migrate()
    assert modes(other)["other.db"] == 0o600
    admin.close()
    guard.close()


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_shared_on_purpose_stays_so(path: Path) -> None:
    """An existing file keeps its mode, and what is created beside it gets the same."""
    with closing(sqlite3.connect(path)):
        path.touch()
    path.chmod(0o660)
    store = SQLiteStore(path)
    store.reserve(a_claim())
    assert set(modes(path).values()) == {0o660}
    store.close()


def test_a_link_to_a_file_that_is_not_there_yet(path: Path, tmp_path: Path) -> None:
    """The file is created where the link points."""
    folder = tmp_path / "volume"
    folder.mkdir()
    path.symlink_to(folder / "real.db")
    store = SQLiteStore(path)
    assert store.reserve(a_claim()) == Reserved(1)
    assert stat.S_IMODE((folder / "real.db").stat().st_mode) == 0o600
    store.close()


def test_a_path_with_signs_of_a_uri(tmp_path: Path) -> None:
    """SQLite is given the path as a URI, and finds the same file."""
    path = tmp_path / "50% of #1? ünïcode.db"
    store = SQLiteStore(path)
    assert store.reserve(a_claim()) == Reserved(1)
    assert path.exists()
    store.close()
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    ("mode", "level", "said", "advised"),
    [
        (0o600, "ok", "only the owner", ""),
        (0o644, "warning", "its group and every user of this machine can read", "chmod 600"),
        (0o640, "warning", "its group can read", "on purpose"),
        (0o660, "warning", "its group can read", "on purpose"),
    ],
)
def test_doctor_says_who_can_read(path: Path, mode: int, level: str, said: str, advised: str) -> None:
    """A warning with the command that fixes it."""
    store = SQLiteStore(path)
    store.reserve(a_claim())
    store.close()
    path.chmod(mode)
    finding = diagnose(path)["permissions"]
    assert finding.level == level
    assert said in finding.found
    assert advised in finding.advice
