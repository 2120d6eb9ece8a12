"""Counting how requests ended: every request once, a little later, and never at anybody's expense."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from retrysafe import Guard, scopes
from retrysafe._runtime import leases as keeper_module
from retrysafe._runtime.leases import LeaseKeeper
from retrysafe.asgi import Middleware
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Place
from retrysafe.stores.contract import Counted
from retrysafe.stores.memory import MemoryRenewer, MemoryStore
from tests.core.asgi_calls import Client, counting
from tests.core.values import eventually, in_a_child, no_leaked_threads

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


class Moody(MemoryStore):
    """Takes no counts while it is in a bad mood."""

    def __init__(self) -> None:
        super().__init__()
        self.bad_mood = False
        self.refused = 0

    def open_keeper(self) -> MemoryRenewer:
        return MoodyRenewer(self)

    def told(self) -> Mapping[str, int]:
        return self.open_admin().statistics().verdicts


class MoodyRenewer(MemoryRenewer):
    def __init__(self, store: Moody) -> None:
        super().__init__(store)
        count = self.count

        def moody_count(ended: Mapping[Counted, int]) -> None:
            if store.bad_mood:
                store.refused += 1
                raise StoreUnavailable("not now")
            count(ended)

        self.count = moody_count


@pytest.fixture
def store() -> Moody:
    return Moody()


@pytest.fixture
def keeper(store: Moody, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseKeeper]:
    monkeypatch.setattr(keeper_module, "_ROUND", 0.05)
    with no_leaked_threads():
        keeper = LeaseKeeper(store)
        yield keeper
        keeper.close()


def test_counts_are_told_on_the_round(keeper: LeaseKeeper, store: Moody) -> None:
    """Without any lease to keep, and the thread ends when all is told."""
    with no_leaked_threads():
        for verdict in ("replayed", "completed", "replayed"):
            keeper.count((verdict, "request", "/orders", ""))
        eventually(lambda: store.told() == {"replayed": 2, "completed": 1})
    keeper.count(("replayed", "request", "/orders", ""))
    eventually(lambda: store.told() == {"replayed": 3, "completed": 1})


def test_counts_are_told_at_the_end(store: Moody) -> None:
    """Whoever closes the keeper does not wait for a round."""
    keeper = LeaseKeeper(store)
    keeper.count(("completed", "request", "/orders", ""))
    keeper.close()
    assert store.told() == {"completed": 1}


def test_nothing_is_lost_between_threads(keeper: LeaseKeeper, store: Moody) -> None:
    """Many requests that end at once are all counted, while the keeper takes the numbers away."""
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        for _ in range(2000):
            keeper.count(("completed", "request", "/orders", ""))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeper.close()
    assert store.told() == {"completed": 16000}


def test_what_was_refused_is_told_later(
    keeper: LeaseKeeper, store: Moody, caplog: pytest.LogCaptureFixture
) -> None:
    """A store in trouble keeps no thread alive for it, and costs no count."""
    store.bad_mood = True
    with no_leaked_threads():
        keeper.count(("completed", "request", "/orders", ""))
        eventually(lambda: store.refused >= 1)
    assert "could not be stored" in caplog.text
    store.bad_mood = False
    keeper.count(("replayed", "request", "/orders", ""))
    eventually(lambda: store.told() == {"completed": 1, "replayed": 1})


def test_calls_are_told_by_route(store: Moody) -> None:
    """With their door and source, each once, however often the keeper tells."""
    keeper = LeaseKeeper(store)
    for _ in range(2):
        keeper.count(("keyless", "request", "/orders", ""))
        keeper.count(("completed", "callback", "/done", "jobs"))
        keeper.close()
    found = store.open_admin().statistics().calls
    assert {place: calls.verdicts for place, calls in found.items()} == {
        Place("request", "/orders", ""): {"keyless": 2},
        Place("callback", "/done", "jobs"): {"completed": 2},
    }


def test_routes_are_few(store: Moody, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a framework gives paths for routes, they fill neither the memory nor the store: those beyond the
    limit are counted as one, and those before it as ever, by any verdict."""
    monkeypatch.setattr(keeper_module, "_PLACES", 3)
    keeper = LeaseKeeper(store)
    for n in range(10):
        keeper.count(("completed", "request", f"/orders/{n}", ""))
    keeper.count(("keyless", "request", "/orders/0", ""))
    keeper.count(("keyless", "operation", "charge", ""))
    assert len(keeper.counts()) == 6
    keeper.close()
    found = store.open_admin().statistics().calls
    assert {place: calls.verdicts for place, calls in found.items()} == {
        Place("request", "/orders/0", ""): {"completed": 1, "keyless": 1},
        Place("request", "/orders/1", ""): {"completed": 1},
        Place("request", "/orders/2", ""): {"completed": 1},
        Place("request", "", ""): {"completed": 7},
        Place("operation", "", ""): {"keyless": 1},
    }


@forks
def test_a_child_tells_its_own(store: Moody) -> None:
    """What the parent has counted the parent tells, once."""
    keeper = LeaseKeeper(store)
    keeper.count(("completed", "request", "/orders", ""))

    def child() -> object:
        keeper.count(("replayed", "request", "/orders", ""))
        keeper.close()
        return dict(store.told())

    assert in_a_child(child) == b"{'replayed': 1}"
    keeper.close()
    assert store.told() == {"completed": 1}


def test_every_request_is_counted_once(tmp_path: Path) -> None:
    """By its verdict, with or without a claim; those without a key are nobody's business."""
    app, _ = counting()
    address = f"sqlite:///{tmp_path}/keys.db"
    verdicts: Counter[str] = Counter()
    guard = Guard(
        address, scope=scopes.header("X-Tenant"), on_event=lambda event: verdicts.update([event.verdict])
    )

    async def requests() -> None:
        guarded = Middleware(app, guard)
        for key in (b"one", b"one", b"two", b"one", b"two, two"):
            await Client(guarded, key=key)()

    asyncio.run(requests())
    guard.close()
    admin = guard.store.open_admin()
    assert admin.statistics().verdicts == verdicts == {"completed": 2, "replayed": 2, "key-invalid": 1}
    admin.close()
