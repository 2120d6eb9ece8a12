"""The memory store passes the suite, and forgets what has expired without being asked."""

import logging
import os

import pytest

from retrysafe._core.model import Final, Response
from retrysafe.stores.memory import MemoryStore
from retrysafe.testing import ManualClock, StoreSuite
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import LoseLease


class TestMemory(StoreSuite):
    """The suite."""

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock)

    @pytest.fixture
    def lose_lease(self, store: MemoryStore) -> LoseLease:
        def lose(id: bytes) -> None:
            store._rows[id].lease_until = None

        return lose


def test_expired_records_go_without_a_purge() -> None:
    """However long it runs, it holds no more dead records than living ones."""
    clock = ManualClock()
    store = MemoryStore(clock)
    for _ in range(5000):
        claim = a_claim()._replace(id=os.urandom(32), retention=100.0)
        store.reserve(claim)
        store.finish(claim, Final("completed", Response(200)))
        clock.elapse(1.0)
    assert len(store._rows) <= 2 * 100


def test_a_burst_goes_bit_by_bit() -> None:
    """A thousand records that expire at once are not removed by one claim alone."""
    clock = ManualClock()
    store = MemoryStore(clock)
    for n in range(1000):
        claim = a_claim(f"key {n}")
        store.reserve(claim)
        store.finish(claim, an_outcome())
    clock.elapse(3600.0)
    store.reserve(a_claim("one more"))
    assert 900 < len(store._rows) < 1000
    for n in range(100):
        store.reserve(a_claim(f"more {n}"))
    assert len(store._rows) < 200


def test_an_unresolved_record_does_not_go_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names eight digits of its id, and nothing that a client has sent."""
    clock = ManualClock()
    store = MemoryStore(clock)
    abandoned = a_claim("a secret key")
    store.reserve(abandoned)
    clock.elapse(3600.0)
    with caplog.at_level(logging.WARNING, "retrysafe.store"):
        store.reserve(a_claim("another"))
    assert abandoned.id.hex()[:8] in caplog.text
    assert abandoned.id.hex()[:9] not in caplog.text
    assert "secret" not in caplog.text


def test_a_stepped_wall_clock_ends_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default time is counted, not read off the wall."""
    store = MemoryStore()
    claim = a_claim()
    store.reserve(claim)
    monkeypatch.setattr("time.time", lambda: 4e9)
    found = store.look(claim.id)
    assert found is not None
    assert found.record.lease_until is not None
    assert found.now < found.record.lease_until
