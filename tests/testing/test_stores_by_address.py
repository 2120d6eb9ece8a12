"""`python -m retrysafe.testing.stores URL`: the store suite on a store in use, which stays as it was."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from retrysafe import stores
from retrysafe.stores.admin import Query
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.valkey import ValkeyServer
from tests.any_store import arm
from tests.stores.test_entry_points import install

ROOT = Path(__file__).parents[2]

Rows = Callable[[str], list[tuple[object, ...]]]

LOSES_LEASES = """
import time
from tests.stores.own_store import OwnStore

class Hasty(OwnStore):
    def take_over(self, claim, previous, state):
        with self._lock:
            self._records[claim.id] = self._records[claim.id]._replace(lease_until=0.0)
            return super().take_over(claim, previous, state)

def open_url(url, *, deadline):
    return Hasty(time.time)
"""


def run(*arguments: str, cwd: Path, path: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    paths = filter(None, (path, *sys.path))
    return subprocess.run(
        [sys.executable, "-m", "retrysafe.testing.stores", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
    )


def check(url: str, rows: Rows, cwd: Path) -> None:
    """Records in every state are what they were, and no attempt of the suite's is left running."""
    with closing(stores.open(url)) as store:
        running, abandoned, done = a_claim("running"), a_claim("abandoned"), a_claim("done")
        store.reserve(running._replace(lease=3600.0))
        store.reserve(abandoned._replace(lease=0.001, hold=1e6))
        store.reserve(done)
        store.finish(done, an_outcome())
    theirs = "SELECT * FROM retrysafe_records WHERE request_id = 'first-request' AND key IN ({}) ORDER BY id"
    theirs = theirs.format("'running', 'abandoned', 'done'")
    before = rows(theirs)
    assert len(before) == 3

    suite = run(cwd=cwd, RETRYSAFE_STORE=url)

    assert suite.returncode == 0, suite.stdout
    passed = re.search(r"(\d+) passed, (\d+) deselected in", suite.stdout)
    assert passed, suite.stdout
    assert passed[1] in (ROOT / "docs/api.md").read_text(encoding="utf-8"), "the number that is documented"
    assert "no other record is read, changed or purged" in suite.stdout
    assert rows(theirs) == before
    assert rows("SELECT count(*) FROM retrysafe_records WHERE state = 'in_progress'") == [(2,)]
    assert int(str(rows("SELECT count(*) FROM retrysafe_records")[0][0])) > 50, "the suite was there"


def test_sqlite(tmp_path: Path) -> None:
    def rows(sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(tmp_path / "keys.db")) as db:
            return list(db.execute(sql))

    check(f"sqlite:///{tmp_path}/keys.db", rows, tmp_path)


def test_postgresql(database: str, tmp_path: Path) -> None:
    def rows(sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(database) as db:
            return db.execute(sql.encode()).fetchall()

    check(database, rows, tmp_path)


def test_a_store_that_breaks_a_promise(tmp_path: Path) -> None:
    """One of another distribution, found by its entry point, that takes live leases away.  What follows the
    address is for pytest."""
    root = install(tmp_path, "hasty", "hasty = mystore:open_url", LOSES_LEASES)
    done = run("hasty://user:hunter2@db", "-k", "lease_protects_until", cwd=tmp_path, path=str(root))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "taken over before its end" in done.stdout
    assert re.search(r"2 failed, \d+ deselected in", done.stdout)
    assert "hunter2" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no store was given: write an address such as sqlite:///keys.db, or set RETRYSAFE_STORE"),
        (["sqllite:///keys.db"], "did you mean sqlite:?"),
        (["sqlite:///missing/folder/keys.db"], "missing/folder"),
    ],
)
def test_a_store_that_cannot_be_used(arguments: list[str], says: str, tmp_path: Path) -> None:
    """Is said once, and not by every test."""
    done = run(*arguments, cwd=tmp_path, RETRYSAFE_STORE="")
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert done.stdout == ""


def test_make() -> None:
    """It has the command, and asks for the address before it sets anything up."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert re.search(r"make test-store .*any store.* URL=", listed)
    command = ["make", "--no-print-directory", "test-store", "URL="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "make test-store needs the address of a store, as in make test-store URL=sqlite:" in done.stderr
    assert done.stdout == ""


def test_in_a_checkout(tmp_path: Path) -> None:
    """As `make test-store` does: the fixtures and rules of the tests around it are none of its business."""
    done = run(f"sqlite:///{tmp_path / 'keys.db'}", "-k", "test_ids_are_bytes", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_valkey(valkey: ValkeyServer, tmp_path: Path) -> None:
    """Beside other records; one that is not armed is refused with what to do, and no test is run."""
    url = valkey.new_database()
    refused = run(url, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "retrysafe arm" in refused.stderr
    arm(url)
    with closing(stores.open(url)) as store:
        store.reserve(running := a_claim("running")._replace(lease=3600.0))
        done = run(url, "-k", "Contract", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        found = store.look(running.id)
        assert found is not None
        assert found.record.token == running.token
        with closing(store.open_admin()) as admin:
            left = admin.list(Query(standings=frozenset({"in_progress", "abandoned"})))
            assert [sighting.record.id for sighting in left] == [running.id]
