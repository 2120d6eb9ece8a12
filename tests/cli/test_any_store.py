"""The command line on every store that has a server: every command does there what it does on SQLite."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe.stores.admin import Query
from retrysafe.testing.adapters.client import until
from tests.any_store import ON_SERVERS
from tests.cli.records import LiveShop, identity
from tests.cli.same_output import WHY, assert_told_alike, stock
from tests.cli.terminal import Screen, run

pytestmark = pytest.mark.parametrize("address", ON_SERVERS, indirect=True)


@pytest.fixture
def shop(address: str) -> Iterator[LiveShop]:
    shop = LiveShop(address)
    yield shop
    shop.close()


@pytest.mark.timeout(600)  # some forty processes, one after the other, on a machine that may be busy
def test_the_same_output_as_on_sqlite(shop: LiveShop, tmp_path: Path) -> None:
    """Every command, told the same story, says the same about it."""
    beside = LiveShop(f"sqlite:///{tmp_path / 'keys.db'}")
    ids = stock(beside)
    assert stock(shop) == ids
    beside.close()
    assert_told_alike(beside.url, shop.url, ids)


def test_every_command(shop: LiveShop) -> None:
    """Each reads or writes what it is for."""
    abandoned = shop.abandoned("abandoned-key-0001")
    done = shop.finished("completed-key-001", ago=0.0)
    failed = shop.failed_delivery("evt-failed-000001", ago=0.0)
    shop.expired(2)
    until(lambda: "2 would be removed" in run("purge", "--dry-run", store=shop.url).out)

    def keys(*arguments: str) -> list[str]:
        found = json.loads(run("ls", "--show-keys", "--json", *arguments, store=shop.url).out)
        return [record["key"] for record in found["records"]]

    assert keys("--state", "abandoned") == ["abandoned-key-0001"]
    assert keys("--scope", "tenant=acme", "--state", "completed") == ["completed-key-001"]
    assert keys("--path", "/pay*", "--state", "completed") == ["completed-key-001"]
    assert "payment" in run("show", identity(done), "--body", store=shop.url).out
    assert run("stats", "--json", store=shop.url).code == 0
    exported = [json.loads(line) for line in run("export", store=shop.url).out.splitlines()]
    assert {"abandoned-key-0001", "completed-key-001", "expired-000000"} <= {line["key"] for line in exported}
    assert run("resolve", identity(abandoned), "--done", "--status", "201", *WHY, store=shop.url).code == 0
    assert run("redrive", identity(failed), *WHY, store=shop.url).code == 0
    assert run("release", identity(done), "--state", "completed", *WHY, store=shop.url).code == 0
    assert run("purge", *WHY[:4], store=shop.url).out.startswith("Removed 2 expired records")
    assert keys() == ["evt-failed-000001", "abandoned-key-0001"]
    entries = json.loads(run("audit", "--json", store=shop.url).out)["entries"]
    acts = [entry["act"] for entry in entries if entry["act"] != "arm"]  # how a store on Valkey began
    assert acts == ["purge", "release", "redrive", "resolve"]
    assert problems(shop.url) <= {"durability"}


def test_migrate_and_doctor(address: str) -> None:
    """An empty store is made ready, twice without harm, and is sound; the doctor fits the terminal."""
    first, second = run("migrate", store=address), run("migrate", "--json", store=address)
    assert (first.code, second.code) == (0, 0), (first, second)
    assert "nothing to do" in json.loads(second.out)["done"].lower()
    assert run("ls", store=address).code == 0
    screen = Screen("doctor", store=address, columns=80, lines=24)
    screen.end()
    assert max(map(len, screen.lines)) <= 80
    assert problems(address) <= {"durability"}


def problems(address: str) -> set[str]:
    """What the doctor finds wrong.  The servers of the tests spare the disk, and it says so."""
    findings = json.loads(run("doctor", "--json", store=address).out)["findings"]
    return {finding["check"] for finding in findings if finding["level"] == "problem"}


def test_what_cannot_be_done(shop: LiveShop) -> None:
    """A record that is running, and one that is not there: said, and nothing is changed."""
    running = shop.running("running-key-0001")
    assert run("release", identity(running), *WHY, store=shop.url).code == 1
    assert run("show", "no-such-key-at-all", store=shop.url).code == 1
    with closing(shop.store.open_admin()) as admin:
        [left] = admin.list(Query())
        assert left.record.token == running.token
        assert {entry.act for entry in admin.audit()} <= {"arm"}  # how a store on Valkey began
