"""`retrysafe purge`."""

import json
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from retrysafe.cli import purge
from retrysafe.cli.exits import Failure
from retrysafe.stores.cleanup import Cleanup, stop_on_interrupt
from tests.cli.records import DAY, Shop, identity
from tests.cli.terminal import COMMAND, Screen, environment, run, shown


def test_batches(shop: Shop) -> None:
    """All of them, however small the batches; what has not expired stays."""
    shop.expired(25)
    shop.finished("completed-key-001")
    done = run("purge", "--batch", "10", "--json", store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {
        "dry_run": False, "removed": 25, "left": 0, "stopped": False, "unresolved": []
    }  # fmt: skip
    assert run("purge", store=shop.url).out == "Removed 0 expired records; 0 left.\n"
    assert len(json.loads(run("ls", "--json", store=shop.url).out)["records"]) == 1


def test_dry_run_and_limit(shop: Shop) -> None:
    """A dry run removes nothing; a limit holds across batches."""
    shop.expired(12)
    dry = json.loads(run("purge", "--dry-run", "--limit", "7", "--json", store=shop.url).out)
    assert dry == {"dry_run": True, "expired": 12, "would_remove": 7}
    assert run("purge", "--dry-run", store=shop.url).out == "12 expired records; 12 would be removed.\n"
    done = run("purge", "--limit", "7", "--batch", "3", store=shop.url)
    assert done.out == "Removed 7 expired records; 5 left.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dry-run", "--reason", "x"], "so --reason would have no effect"),
        (["--dry-run", "--by", "ada", "--batch", "5000"], "so --batch and --by would have no effect"),
        (["--dry-run", "--json", "--show-keys"], "--show-keys has no effect with --dry-run"),
        (["--show-keys"], "--show-keys has no effect without --json"),
    ],
)
def test_options_without_effect_are_refused(shop: Shop, arguments: list[str], complaint: str) -> None:
    """An operator who gives one expects an effect; so it is refused, and nothing is done."""
    shop.expired(1)
    done = run("purge", *arguments, store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert run("purge", "--dry-run", store=shop.url).out == "1 expired record; 1 would be removed.\n"


def test_unknown_outcomes_are_never_dropped_silently(shop: Shop) -> None:
    """An abandoned record that was not settled is named, in JSON as well, with its key masked."""
    claim = shop.abandoned("forgotten-key-00001", ago=40 * DAY)
    document = run("purge", "--json", store=shop.url)
    [gone] = json.loads(document.out)["unresolved"]
    assert (gone["id"], gone["key"], gone["request_id"]) == (claim.id.hex(), "forg••••", "req-7f3a")
    assert "1 abandoned record expired unresolved" in document.err
    assert identity(claim) in document.err
    # Said once: what the store would log is not printed beside it.
    assert document.err.count(identity(claim)) == 1


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_they_are_named_also_if_nothing_can_be_written(shop: Shop, arguments: list[str]) -> None:
    """The record is gone, so its name must not depend on where the rest of the output goes."""
    claim = shop.abandoned("forgotten-key-00001", ago=40 * DAY)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "purge", *arguments], stdout=full, stderr=subprocess.PIPE, env=environment(shop.url)
        )
    assert done.returncode == 1
    said = done.stderr.decode()
    assert said.count(identity(claim)) == 1
    assert "the output cannot be written" in said


def test_they_are_named_also_if_the_rest_cannot_be_counted(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store fails right after the purge: names and number are told all the same."""
    claim = shop.abandoned("forgotten-key-00001", ago=40 * DAY)
    cleanup = Cleanup()
    admin = shop.store.open_admin()
    try:
        shop.at(0)
        with purge._reporting_failure(cleanup):
            cleanup.run(admin, batch=10)
            purge._report_unresolved(cleanup.unresolved)
        with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
            other.execute("ALTER TABLE retrysafe_records RENAME TO elsewhere")
        with pytest.raises(Failure, match="removed 1 expired record; cannot count") as failed:
            purge._left(admin, None, cleanup)
    finally:
        admin.close()
    assert failed.value.exit == 3
    assert identity(claim) in capsys.readouterr().err


def test_what_else_the_store_logs_is_said(shop: Shop) -> None:
    """A record that could not be read any more was removed: it is reported, even if all went well."""
    damaged = shop.abandoned("damaged-key-00001", ago=40 * DAY)
    lost = shop.abandoned("forgotten-key-00001", ago=40 * DAY)
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute("UPDATE retrysafe_records SET scope = 'nonsense' WHERE id = ?", (damaged.id,))
    done = run("purge", store=shop.url)
    assert (done.code, done.out) == (0, "Removed 2 expired records; 0 left.\n")
    assert done.err.count("removed an expired record that could not be read") == 1
    assert done.err.count(identity(lost)) == 1


def test_a_reason_leaves_an_entry(shop: Shop) -> None:
    """Routine leaves no trace in the audit trail; a purge with a reason does."""
    shop.expired(2)
    run("purge", "--limit", "1", store=shop.url)
    assert json.loads(run("audit", "--json", store=shop.url).out)["entries"] == []
    run("purge", "--reason", "before the migration", "--by", "ada", store=shop.url)
    [entry] = json.loads(run("audit", "--json", store=shop.url).out)["entries"]
    assert (entry["act"], entry["by"], entry["reason"], entry["id"]) == (
        "purge", "ada", "before the migration", None
    )  # fmt: skip
    assert entry["outcome"] == "1 record removed"


def test_a_bar_on_a_terminal(shop: Shop) -> None:
    """Progress is drawn on a terminal, and nowhere else."""
    shop.expired(5)
    screen = shown("purge", "--batch", "1", store=shop.url)
    assert "purging" in screen.text
    assert "Removed 5 expired records; 0 left." in screen.text
    assert "purging" not in run("purge", store=shop.url).err


def test_ctrl_c_stops_between_batches(shop: Shop) -> None:
    """The batch is finished, it says how far it came and ends with 130; the rest is purged the next time."""
    shop.expired(5)
    run("ls", store=shop.url)  # the first one on a machine has to write down by which clock all go
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        # Another connection writes, so the first batch waits: this is when the key is pressed.
        other.execute("BEGIN IMMEDIATE")
        screen = Screen("purge", "--batch", "2", store=shop.url)
        screen.expect("purging")
        screen.interrupt()
        other.execute("ROLLBACK")
    assert screen.end() == 130
    assert "interrupted between two batches" in screen.text
    assert screen.text.lower().count("interrupted") == 1
    # It came while the first batch waited, or just before.
    removed = int(screen.text.partition("Removed ")[2][0])
    assert removed in (0, 2)
    assert run("purge", store=shop.url).out == f"Removed {5 - removed} expired records; 0 left.\n"


def test_trouble_in_the_middle(shop: Shop) -> None:
    """What was gone by then is told, unknown outcomes by name, and the rest is purged once it is fixed."""
    lost = shop.abandoned("forgotten-key-00001", ago=50 * DAY)
    shop.expired(4)
    shop.close()
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER trouble BEFORE DELETE ON retrysafe_records WHEN OLD.key = 'expired-000003' "
            "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END"
        )
        done = run("purge", "--batch", "2", store=shop.url)
        other.execute("DROP TRIGGER trouble")
    assert (done.code, done.out) == (3, "")
    assert "Removed 4 expired records in complete batches" in done.err
    assert f"expired unresolved: {identity(lost)}" in done.err
    assert "the disk is on fire" in done.err
    assert run("purge", store=shop.url).out == "Removed 1 expired record; 0 left.\n"


def test_ctrl_c_twice_does_not_wait_for_the_batch() -> None:
    """The first is noted, the second is an interrupt as anywhere else, and afterwards all is as before."""
    before = signal.getsignal(signal.SIGINT)
    with stop_on_interrupt() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
