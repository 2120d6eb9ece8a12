"""Purging: only what has expired is removed, and never a record in use."""

import threading

from retrysafe._core.model import Claim, Purged, Reservation, Reserved
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import Elapse, Harness, a_claim, an_outcome, the_record


def finished(store: Store, key: str) -> Claim:
    claim = a_claim(key)
    store.reserve(claim)
    store.finish(claim, an_outcome())
    return claim


class Purging(Harness):
    """`purge`."""

    def test_nothing_is_removed_before_its_time(self, store: Store, elapse: Elapse) -> None:
        """Outcomes within their retention, running and held attempts all stay."""
        done = finished(store, "done")
        running = a_claim("running")._replace(lease=7200.0)
        held = a_claim("held")._replace(hold=7200.0)
        store.reserve(running)
        store.reserve(held)
        elapse(3599.0)
        assert store.purge() == Purged(0)
        assert the_record(store, done).state == "completed"
        elapse(2.0)
        assert store.purge().records == 1, "only the outcome has expired"
        assert the_record(store, running).token == running.token
        assert the_record(store, held).token == held.token

    def test_the_expired_are_removed(self, store: Store, elapse: Elapse) -> None:
        """All of them, and their number is returned."""
        claims = [finished(store, f"key {n}") for n in range(7)]
        elapse(3600.0)
        assert store.purge() == Purged(7)
        assert store.purge() == Purged(0)
        assert [store.look(claim.id) for claim in claims] == [None] * 7

    def test_a_limit_is_kept(self, store: Store, elapse: Elapse) -> None:
        """No more than the limit at a time; fewer means that no more were found."""
        for n in range(7):
            finished(store, f"key {n}")
        elapse(3600.0)
        assert [store.purge(limit=3).records for _ in range(4)] == [3, 3, 1, 0]

    def test_the_unresolved_are_reported(self, store: Store, elapse: Elapse) -> None:
        """A record that was never resolved is not removed silently."""
        finished(store, "done")
        abandoned = a_claim("abandoned")._replace(hold=5000.0)
        store.reserve(abandoned)
        before = the_record(store, abandoned)
        elapse(5000.0)
        assert store.purge() == Purged(2, (before,))

    def test_what_was_claimed_anew_stays(self, store: Store, elapse: Elapse) -> None:
        """A key that expired and was reserved again before a purge is a live record."""
        finished(store, "key")
        elapse(3600.0)
        successor = a_claim("key")
        assert store.reserve(successor) == Reserved(1)
        assert store.purge() == Purged(0)
        assert the_record(store, successor).token == successor.token

    def test_a_purge_and_a_claim_at_once(self, store: Store, elapse: Elapse) -> None:
        """In either order the claim is fresh and its record survives the purge."""
        for round in range(20):
            finished(store, f"key {round}")
            elapse(3600.0)
            successor = a_claim(f"key {round}")
            barrier = threading.Barrier(2)
            replies: list[Reservation] = []

            def claim_it(
                barrier: threading.Barrier = barrier,
                successor: Claim = successor,
                replies: list[Reservation] = replies,
            ) -> None:
                barrier.wait()
                replies.append(store.reserve(successor))

            thread = threading.Thread(target=claim_it)
            thread.start()
            barrier.wait()
            store.purge()
            thread.join()
            assert replies == [Reserved(1)]
            assert the_record(store, successor).token == successor.token
