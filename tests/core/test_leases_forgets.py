"""What a keeper has to release: not before the store can be reached, and not only while the server runs."""

from collections import deque
from collections.abc import Iterator, Sequence
from threading import Event

import pytest

from retrysafe._core.model import Claim
from retrysafe._runtime import leases as keeper_module
from retrysafe._runtime.leases import LeaseKeeper
from retrysafe.stores.memory import MemoryRenewer
from tests.core.test_leases import Watched
from tests.core.values import a_claim, eventually, no_leaked_threads


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def keeper(store: Watched) -> Iterator[LeaseKeeper]:
    with no_leaked_threads():
        keeper = LeaseKeeper(store)
        yield keeper
        keeper.close()


def test_the_second_time_is_a_little_later_than_the_first(
    keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not than the forgetting: the store may have stood still in between, with the reservation before it."""
    monkeypatch.setattr(keeper_module, "_STRAGGLER", 0.2)
    monkeypatch.setattr(store, "failures", 10**9)
    claim = a_claim()
    keeper.forget(claim)
    Event().wait(0.3)  # for longer than the time after which a store would do it for the second time
    store.late = claim
    store.failures = 0
    eventually(lambda: len(store.releases) == 2)
    assert store.look(claim.id) is None


def test_who_closes_does_not_leave_what_is_forgotten(keeper: LeaseKeeper, store: Watched) -> None:
    """A server that shuts down cancels requests and then closes: nobody would release their keys later."""
    claims = [a_claim(str(number)) for number in range(keeper_module._BATCH + 1)]
    for claim in claims:
        store.reserve(claim)
        keeper.forget(claim)
    keeper.close()
    assert [claim for claim in claims if store.look(claim.id) is not None] == []


def test_what_is_dropped_meanwhile_is_no_trouble(
    keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More is forgotten than there is room for while some of it is being released."""
    monkeypatch.setattr(keeper, "_forgotten", deque(maxlen=2))
    crowd = [a_claim(str(number)) for number in range(4)]
    released: list[Claim] = []

    class Crowding(MemoryRenewer):
        def release(self, claims: Sequence[Claim]) -> None:
            super().release(claims)
            released.extend(claims)
            while crowd:
                keeper.forget(crowd.pop())

    monkeypatch.setattr(store, "open_keeper", lambda: Crowding(store))
    keeper.forget(a_claim())
    eventually(lambda: len(released) >= 3)
    assert "could not be reached" not in caplog.text


def test_who_cannot_release_at_the_end_says_so(
    keeper: LeaseKeeper, store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Its keys stay blocked, and somebody should know."""
    store.failures = 10**9
    keeper.forget(a_claim())
    keeper.close()
    assert "1 unused claims could not be released: not now" in caplog.text
