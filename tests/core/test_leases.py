"""The lease keeper, with its real thread: it renews, notices, forgets, and does not outlive its process."""

import os
import threading
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Final, Response
from retrysafe._runtime import leases as keeper_module
from retrysafe._runtime.leases import LeaseKeeper
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.memory import MemoryRenewer, MemoryStore
from tests.core import values
from tests.core.values import a_claim, eventually, in_a_child, no_leaked_threads

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

SHORT = 0.15
"""A lease that is renewed every 50 ms."""

_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Keepers of guards that other tests left open: each ends some seconds after its last request."""
    _others.clear()
    _others.update(values.keepers())


def keepers() -> list[threading.Thread]:
    return [thread for thread in values.keepers() if thread not in _others]


class Watched(MemoryStore):
    """Counts what its renewers do, and fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals: list[list[Claim]] = []
        self.releases: list[Claim] = []
        self.opened = 0
        self.closed = 0
        self.failures = 0
        self.late: Claim | None = None
        """A reservation that arrives only after the first release."""

    def open_keeper(self) -> MemoryRenewer:
        self.opened += 1
        return WatchedRenewer(self)


class WatchedRenewer(MemoryRenewer):
    def __init__(self, store: Watched) -> None:
        super().__init__(store)
        renew, release = self.renew, self.release

        def watched_renew(claims: Sequence[Claim]) -> list[bool]:
            self._fail(store)
            store.renewals.append(list(claims))
            return renew(claims)

        def watched_release(claims: Sequence[Claim]) -> None:
            self._fail(store)
            release(claims)
            late, store.late = store.late, None
            if late is not None:
                store.reserve(late)
            store.releases.extend(claims)

        self.renew, self.release = watched_renew, watched_release  # type: ignore[method-assign]
        self._watched = store

    def _fail(self, store: Watched) -> None:
        if store.failures:
            store.failures -= 1
            raise StoreUnavailable("not now")

    def close(self) -> None:
        self._watched.closed += 1


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def keeper(store: Watched) -> Iterator[LeaseKeeper]:
    with no_leaked_threads():
        keeper = LeaseKeeper(store)
        yield keeper
        keeper.close()


def holding(keeper: LeaseKeeper, store: MemoryStore, key: str = "key", *, lease: float = SHORT) -> Attempt:
    """An attempt that has reserved its key and is being kept."""
    claim = a_claim(key, lease=lease)
    store.reserve(claim)
    attempt = Attempt(claim, 1)
    keeper.hold(attempt)
    return attempt


def lease_of(store: MemoryStore, attempt: Attempt) -> float:
    found = store.look(attempt.claim.id)
    assert found is not None
    assert found.record.lease_until is not None
    return found.record.lease_until


# --- Renewing


def test_it_starts_with_the_first_handler(keeper: LeaseKeeper, store: Watched) -> None:
    """An application that guards nothing yet has no thread and no connection; afterwards it has one."""
    assert keepers() == []
    assert store.opened == 0
    for number in range(3):
        holding(keeper, store, str(number))
    assert len(keepers()) == 1
    assert keepers()[0].daemon


def test_it_renews(keeper: LeaseKeeper, store: Watched) -> None:
    """The store's lease moves on, and the attempt knows until when it has been confirmed."""
    attempt = holding(keeper, store)
    first, known = lease_of(store, attempt), attempt.lease_ends
    eventually(lambda: lease_of(store, attempt) > first and attempt.lease_ends > known)
    assert not attempt.lost


def test_it_renews_all_in_one_batch(keeper: LeaseKeeper, store: Watched) -> None:
    """One round trip for all that are due."""
    attempts = [holding(keeper, store, str(number)) for number in range(5)]
    everybody = {attempt.claim.token for attempt in attempts}
    eventually(lambda: any({claim.token for claim in batch} == everybody for batch in store.renewals))
    assert store.opened == 1


def test_a_fresh_lease_is_not_due(keeper: LeaseKeeper, store: Watched) -> None:
    """One of the last half period can wait for the next round, and most handlers are over by then."""
    attempt = holding(keeper, store, lease=30.0)  # renewed every ten seconds
    now = 1000.0
    for age, due in ((0.0, False), (4.9, False), (5.1, True), (9.0, True), (29.0, True), (40.0, True)):
        attempt.lease_ends = now - age + 30.0
        assert keeper._is_due(attempt, now) is due
    keeper.drop(attempt.claim)


def test_a_shorter_lease_wakes_it(keeper: LeaseKeeper, store: Watched) -> None:
    """It does not sleep through a lease that is shorter than those before it."""
    holding(keeper, store, "long", lease=300.0)
    keeper._wake.set()  # for its first round, which it would begin in a while
    eventually(lambda: store.opened == 1)
    began = monotonic()
    short = holding(keeper, store, "short")
    eventually(lambda: any(short.claim in batch for batch in store.renewals))
    assert monotonic() - began < keeper_module._ROUND / 2
    assert not short.lost


def test_a_dropped_attempt_is_not_renewed(keeper: LeaseKeeper, store: Watched) -> None:
    """It is over, one way or another; dropping it twice is harmless."""
    attempt = holding(keeper, store)
    other = holding(keeper, store, "other")
    keeper.drop(attempt.claim)
    keeper.drop(attempt.claim)
    before = len(store.renewals)
    eventually(lambda: len(store.renewals) >= before + 3)
    assert all(attempt.claim not in batch for batch in store.renewals[before + 1 :])
    assert any(other.claim in batch for batch in store.renewals)


def test_a_fenced_attempt_is_lost(
    keeper: LeaseKeeper, store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else holds the key: the attempt is marked, logged and let go, and nobody is interrupted."""
    attempt = holding(keeper, store)
    other = holding(keeper, store, "other")
    store.release(attempt.claim)
    store.reserve(a_claim())
    eventually(lambda: "the record is another attempt" in caplog.text)
    assert attempt.lost
    assert not keeper.lasts(attempt.claim, 0.0)
    assert attempt.claim.token not in keeper._held
    assert attempt.claim.id.hex()[:8] in caplog.text
    assert not other.lost


def test_an_attempt_that_ended_meanwhile_is_not_lost(keeper: LeaseKeeper, store: Watched) -> None:
    """Its outcome is stored under its own token; that the lease is not renewed any more is no loss."""
    attempt = holding(keeper, store)
    store.finish(attempt.claim, Final("completed", Response(200)))
    before = len(store.renewals)
    eventually(lambda: len(store.renewals) >= before + 2)
    assert not attempt.lost


def test_errors_are_retried(keeper: LeaseKeeper, store: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """A renewal that fails is tried again soon, through a new connection, and the old one is closed (F23)."""
    store.failures = 3
    attempt = holding(keeper, store, lease=0.6)
    first = lease_of(store, attempt)
    eventually(lambda: lease_of(store, attempt) > first)
    assert not attempt.lost
    assert store.opened == 4
    assert store.closed == 3
    assert caplog.text.count("could not be reached") == 3


def test_how_long_a_lease_lasts(keeper: LeaseKeeper, store: Watched) -> None:
    """As last confirmed, by a clock that does not jump; unknown and lost claims do not last."""
    attempt = holding(keeper, store, lease=30.0)
    assert attempt.lease_ends == pytest.approx(monotonic() + 30.0, abs=5.0)
    assert keeper.lasts(attempt.claim, 1.0)
    assert not keeper.lasts(attempt.claim, 31.0)
    assert not keeper.lasts(a_claim(), 0.0)
    attempt.lost = True
    assert not keeper.lasts(attempt.claim, 1.0)


# --- Forgetting


def test_a_forgotten_claim_is_released_at_once(keeper: LeaseKeeper, store: Watched) -> None:
    """It blocks nobody any longer than the store does not answer."""
    claim = a_claim()
    store.reserve(claim)
    keeper.forget(claim)
    eventually(lambda: store.look(claim.id) is None)


def test_and_once_more_later(keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation that was on its way may arrive after the first release."""
    monkeypatch.setattr(keeper_module, "_STRAGGLER", 0.2)
    store.late = claim = a_claim()
    keeper.forget(claim)
    eventually(lambda: store.releases == [claim, claim])
    assert store.look(claim.id) is None
    eventually(lambda: not keeper._forgotten)


def test_forgetting_does_no_harm_to_a_successor(
    keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token makes both releases harmless (I3)."""
    monkeypatch.setattr(keeper_module, "_STRAGGLER", 0.05)
    keeper.forget(a_claim())
    successor = a_claim()
    store.reserve(successor)
    eventually(lambda: len(store.releases) == 2)
    assert store.look(successor.id) is not None


def test_forgetting_is_retried(keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most claims are forgotten because the store is down."""
    monkeypatch.setattr(keeper_module, "_STRAGGLER", 0.2)
    store.failures = 2
    claim = a_claim()
    store.reserve(claim)
    keeper.forget(claim)
    eventually(lambda: store.look(claim.id) is None)


def test_what_is_forgotten_is_bounded(
    keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is down for long must not fill the memory: leases lapse by themselves."""
    monkeypatch.setattr(store, "failures", 10**9)
    for _ in range(6000):
        keeper.forget(a_claim())
    assert len(keeper._forgotten) <= keeper_module._FORGOTTEN_LIMIT


# --- Its thread


def test_many_handlers_at_once_start_one_thread(
    keeper: LeaseKeeper, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first requests of a threaded server arrive together: one keeper, and no error for any of them."""
    together = threading.Barrier(8)

    class Slow(threading.Thread):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            threading.Event().wait(0.05)  # long enough for the others to come to the same point

    errors: list[BaseException] = []

    def first_request(number: int) -> None:
        together.wait()
        try:
            holding(keeper, store, str(number))
        except BaseException as error:  # noqa: BLE001 - it is what the test is about
            errors.append(error)

    threads = [threading.Thread(target=first_request, args=(number,)) for number in range(8)]
    monkeypatch.setattr(keeper_module, "Thread", Slow)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert errors == []
        assert len(keepers()) == 1
    finally:
        while keepers():  # whichever were started, end them before the next test
            keeper.close()
            keeper._thread = None
            keeper._wake.set()


def test_closing_ends_the_thread(keeper: LeaseKeeper, store: Watched) -> None:
    """And gives the connection back; closing twice, or before the start, is harmless."""
    keeper.close()
    holding(keeper, store)
    eventually(lambda: store.opened == 1)
    keeper.close()
    keeper.close()
    assert keepers() == []
    assert store.closed == 1


def test_the_next_handler_starts_another(keeper: LeaseKeeper, store: Watched) -> None:
    """An application that is started a second time is kept as well."""
    holding(keeper, store, "one")
    keeper.close()
    attempt = holding(keeper, store, "two")
    eventually(lambda: any(attempt.claim in batch for batch in store.renewals))
    assert len(keepers()) == 1


@forks
def test_a_child_starts_its_own(keeper: LeaseKeeper, store: Watched) -> None:
    """A forked worker has neither the thread nor the leases of its parent (F9)."""
    parents = holding(keeper, store, "parent")
    keeper.forget(a_claim("forgotten"))

    def child() -> object:
        before = len(keepers())
        attempt = holding(keeper, store, "child")
        renewals = len(store.renewals)
        eventually(lambda: any(attempt.claim in batch for batch in store.renewals[renewals:]))
        inherited = any(parents.claim in batch for batch in store.renewals[renewals:])
        return before, len(keepers()), inherited, list(keeper._held) == [attempt.claim.token]

    assert in_a_child(child) == b"(0, 1, False, True)"
    assert len(keepers()) == 1
    assert not parents.lost


@forks
def test_a_child_may_close(keeper: LeaseKeeper, store: Watched) -> None:
    """It has nothing to wait for."""
    holding(keeper, store)

    def child() -> object:
        began = monotonic()
        keeper.close()
        return monotonic() - began < 2.0

    assert in_a_child(child) == b"True"


@forks
def test_a_child_forgets_by_itself(keeper: LeaseKeeper, store: Watched) -> None:
    """A claim that was made after the fork is released by a thread of the child."""
    holding(keeper, store)

    def child() -> object:
        claim = a_claim("child")
        store.reserve(claim)
        keeper.forget(claim)
        eventually(lambda: store.look(claim.id) is None)
        return "released"

    assert in_a_child(child) == b"'released'"
