"""`retrysafe purge`."""

import json

from tests.cli.records import DAY, Shop, identity
from tests.cli.terminal import Screen, run, shown


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
    """A dry run removes nothing; a limit is kept to, across batches."""
    shop.expired(12)
    dry = json.loads(run("purge", "--dry-run", "--limit", "7", "--json", store=shop.url).out)
    assert dry == {"dry_run": True, "expired": 12, "would_remove": 7}
    assert run("purge", "--dry-run", store=shop.url).out == "12 expired records; 12 would be removed.\n"
    done = run("purge", "--limit", "7", "--batch", "3", store=shop.url)
    assert done.out == "Removed 7 expired records; 5 left.\n"


def test_unknown_outcomes_are_never_dropped_silently(shop: Shop) -> None:
    """An abandoned record that nobody settled is named, in JSON as well, with its key masked."""
    claim = shop.abandoned("forgotten-key-00001", ago=40 * DAY)
    document = run("purge", "--json", store=shop.url)
    [gone] = json.loads(document.out)["unresolved"]
    assert (gone["id"], gone["key"], gone["request_id"]) == (claim.id.hex(), "forg••••", "req-7f3a")
    assert "1 abandoned record expired unsettled" in document.err
    assert identity(claim) in document.err
    # Said once: what the store would log is not printed beside it.
    assert document.err.count(identity(claim)) == 1


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
    assert entry["outcome"].startswith("1 record")


def test_a_bar_on_a_terminal(shop: Shop) -> None:
    """Progress is drawn where somebody can see it, and nowhere else."""
    shop.expired(5)
    screen = shown("purge", "--batch", "1", store=shop.url)
    assert "purging" in screen.text
    assert "Removed 5 expired records; 0 left." in screen.text
    assert "purging" not in run("purge", store=shop.url).err


def test_ctrl_c_stops_between_batches(shop: Shop) -> None:
    """It says how far it came, ends with 130, and what is left is purged the next time."""
    number = 400
    shop.expired(number)
    screen = Screen("purge", "--batch", "1", store=shop.url)
    screen.expect("purging")
    screen.interrupt()
    code = screen.end()
    left = json.loads(run("purge", "--dry-run", "--json", store=shop.url).out)["expired"]
    assert f"Removed {number - left:,} expired" in screen.text
    assert "Traceback" not in screen.text
    assert code == 130
    assert "Interrupted after a batch" in screen.text
    assert left > 0, "it was over before the interrupt came"
