"""Renewals: what the lease keeper may rely on, from a thread of its own."""

import threading
from collections.abc import Sequence

from retrysafe._core.model import Claim, Reserved
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import Elapse, Harness, a_claim, an_outcome, the_record


def renew(store: Store, claims: Sequence[Claim]) -> list[bool]:
    """Renew as the keeper does: in another thread, which opens and closes its end."""
    replies: list[bool] = []

    def keep() -> None:
        keeper = store.open_keeper()
        try:
            replies.extend(keeper.renew(claims))
        finally:
            keeper.close()

    thread = threading.Thread(target=keep)
    thread.start()
    thread.join()
    return replies


class Renewals(Harness):
    """`open_keeper`."""

    def test_a_lease_is_prolonged_from_now(self, store: Store, elapse: Elapse) -> None:
        """By its length, counted from the renewal; creation and expiry stay."""
        claim = a_claim()
        store.reserve(claim)
        before = the_record(store, claim)
        elapse(20.0)
        assert renew(store, [claim]) == [True]
        after = store.look(claim.id)
        assert after is not None
        assert after.record.lease_until is not None
        assert abs(after.record.lease_until - (after.now + 30.0)) < 1.0
        assert after.record.expires_at == before.expires_at
        assert after.record.created_at == before.created_at

    def test_many_are_renewed_at_once(self, store: Store, elapse: Elapse) -> None:
        """One verdict for each, in the order asked; none for none."""
        mine, gone, lost = a_claim("mine"), a_claim("gone"), a_claim("lost")
        store.reserve(mine)
        store.reserve(lost)
        elapse(31.0)
        store.take_over(a_claim("lost"), lost.token, "in_progress")
        assert renew(store, [gone, mine, lost, mine]) == [False, True, False, True]
        assert renew(store, []) == []

    def test_an_attempt_that_was_not_taken_over_is_renewed(self, store: Store, elapse: Elapse) -> None:
        """A keeper that is late has lost nothing if no other attempt took over."""
        claim = a_claim()
        store.reserve(claim)
        elapse(300.0)
        assert renew(store, [claim]) == [True]
        lease_until = the_record(store, claim).lease_until
        assert lease_until is not None
        assert lease_until > the_record(store, claim).created_at + 300.0

    def test_the_finished_are_not_lost(self, store: Store, elapse: Elapse) -> None:
        """An attempt that ended while the keeper was on its way: True, and its record is as it was."""
        claim = a_claim()
        store.reserve(claim)
        store.finish(claim, an_outcome())
        before = the_record(store, claim)
        elapse(5.0)
        assert renew(store, [claim]) == [True]
        assert the_record(store, claim) == before

    def test_a_keeper_releases(self, store: Store) -> None:
        """A reservation whose acknowledgement never came is given back, by its token and no other."""
        claim, stranger = a_claim(), a_claim()
        store.reserve(claim)
        keeper = store.open_keeper()
        keeper.release([stranger])
        assert the_record(store, claim).token == claim.token
        keeper.release([claim])
        keeper.release([claim])
        keeper.close()
        assert store.reserve(a_claim()) == Reserved(1)
