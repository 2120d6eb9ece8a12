"""Leases, expiry and interventions by the store's own clock, which no test can move: durations are short, and
waited for.

How long anything takes is never asserted.  What the store did is compared with the times that it gave itself.
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from retrysafe._core.model import Claim, Final, Found, Reserved, Response
from retrysafe.stores.admin import Admin, Note, Query
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.concurrency import CROWD, all_at_once
from retrysafe.testing.stores.harness import Half, Harness, a_claim, an_outcome, the_record

SHORT = 0.25
"""Seconds."""
PATIENCE = 60.0
NOTE = Note("retrysafe.testing", "the store suite")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {PATIENCE:g} seconds"
        time.sleep(0.02)


def lapse(half: Half, claim: Claim) -> None:
    """Wait until the lease has ended, by the store's clock."""

    def has_lapsed() -> bool:
        found = half.look(claim.id)
        assert found is not None, "the record is gone"
        assert found.record.lease_until is not None
        return found.record.lease_until <= found.now

    until(has_lapsed)


class OwnClock(Harness):
    """What the other chapters prove with a clock of their own."""

    @pytest.fixture
    def admin(self, store: Store) -> Iterator[Admin]:
        """Of tables that a service has made.  They are not migrated: others may be using them."""
        store.look(os.urandom(32))
        try:
            admin = store.open_admin()
        except NotImplementedError as error:
            pytest.skip(f"this store has no administration: {error}")
        yield admin
        admin.close()

    def test_a_lease_protects_until_its_end(self, half: Half) -> None:
        """No takeover before, and one after it."""
        first, second = a_claim()._replace(lease=SHORT), a_claim()
        half.reserve(first)
        lease_until = the_record(half, first).lease_until
        assert lease_until is not None

        def took_over() -> bool:
            # Looked at before, and not by what the take-over found: it may end between its two statements.
            before = half.look(first.id)
            assert before is not None
            taken = half.take_over(second, first.token, "in_progress") == Reserved(2)
            assert taken or before.now < lease_until, "the lease had ended, and was not taken over"
            return taken

        until(took_over)
        assert the_record(half, second).updated_at >= lease_until, "taken over before its end"

    def test_a_renewed_lease_protects(self, half: Half, store: Store) -> None:
        """From the renewal on, though it had ended, and by its new length."""
        claim = a_claim()._replace(lease=SHORT)
        half.reserve(claim)
        lapse(half, claim)
        keeper = store.open_keeper()
        try:
            assert list(keeper.renew([claim._replace(lease=3600.0)])) == [True]
        finally:
            keeper.close()
        assert isinstance(half.take_over(a_claim(), claim.token, "in_progress"), Found)

    def test_an_owner_that_was_not_overtaken_may_finish(self, half: Half) -> None:
        """The end of a lease alone takes nothing away."""
        claim = a_claim()._replace(lease=SHORT)
        half.reserve(claim)
        lapse(half, claim)
        assert half.finish(claim, an_outcome()) is True

    def test_the_overtaken_can_change_nothing(self, half: Half, store: Store) -> None:
        """Checkpoint, finish, release and renew of the first attempt leave the second as it is."""
        first, second = a_claim()._replace(lease=SHORT), a_claim()
        half.reserve(first)
        lapse(half, first)
        assert half.take_over(second, first.token, "in_progress") == Reserved(2)
        before = the_record(half, second)
        assert half.checkpoint(first, Response(200)) is False
        assert half.finish(first, an_outcome()) is False
        half.release(first)
        keeper = store.open_keeper()
        try:
            assert list(keeper.renew([first])) == [False]
            keeper.release([first])
        finally:
            keeper.close()
        assert the_record(half, second) == before

    def test_one_of_a_hundred_successors_takes_over(self, store: Store) -> None:
        """An abandoned attempt has one successor, however many judged it abandoned."""
        first = a_claim()._replace(lease=SHORT)
        store.reserve(first)
        lapse(store, first)
        reservations = all_at_once(lambda: store.take_over(a_claim(), first.token, "in_progress"))
        assert reservations == {Reserved: 1, Found: CROWD - 1}

    def test_an_outcome_is_found_until_it_expires(self, half: Half) -> None:
        """Then the key is fresh, whether or not it was purged."""
        claim = a_claim()._replace(retention=SHORT)
        half.reserve(claim)
        assert half.finish(claim, an_outcome()) is True
        found = half.look(claim.id)
        expires_at = None if found is None else found.record.expires_at

        def is_fresh() -> bool:
            reservation = half.reserve(a_claim())
            if isinstance(reservation, Found):
                assert reservation.now < reservation.record.expires_at, "it has expired, and was found"
            return reservation == Reserved(1)

        until(is_fresh)
        if expires_at is not None:
            assert the_record(half, a_claim()).created_at >= expires_at, "fresh before it expired"

    def test_an_abandoned_attempt_is_held(self, half: Half) -> None:
        """It blocks its key until the hold is over, though lease and retention are."""
        claim = a_claim()._replace(lease=SHORT, retention=SHORT, hold=3 * SHORT)
        half.reserve(claim)
        held_until = the_record(half, claim).held_until

        def is_fresh() -> bool:
            reservation = half.reserve(a_claim())
            if isinstance(reservation, Found):
                assert reservation.now < held_until, "its hold is over, and it was found"
            return reservation == Reserved(1)

        until(is_fresh)
        assert the_record(half, a_claim()).created_at >= held_until, "fresh before its hold was over"

    def test_a_late_outcome_is_seen_for_its_retention(self, half: Half) -> None:
        """One that lands after the expiry would be gone at once; it is given its time."""
        claim = a_claim()._replace(lease=3600.0, retention=SHORT)
        half.reserve(claim)

        def is_late() -> bool:
            found = half.look(claim.id)
            assert found is not None, "the record of a running attempt is gone"
            return found.record.expires_at <= found.now

        until(is_late)
        assert half.finish(claim._replace(retention=3600.0), an_outcome()) is True
        record = the_record(half, claim)
        assert abs(record.expires_at - (record.updated_at + 3600.0)) < 0.001

    def test_an_operator_resolves(self, store: Store, admin: Admin) -> None:
        """An abandoned record is found by its key, and gets its response by hand; the audit trail says so."""
        claim = self._abandoned(store)
        [sighting] = admin.list(Query(key=claim.key))
        assert sighting.standing == "abandoned"
        by_hand = Final("completed", Response(201, ((b"location", b"/orders/7"),), b"by hand"))
        assert admin.resolve(the_record(store, claim), by_hand, NOTE) is True
        found = store.reserve(a_claim(str(claim.key)))
        assert isinstance(found, Found)
        assert (found.record.state, found.record.response) == ("completed", by_hand.response)
        assert store.finish(claim, an_outcome()) is False
        [entry] = admin.audit(id=claim.id.hex())
        assert (entry.act, entry.by, entry.reason) == ("resolve", *NOTE)

    def test_an_operator_releases(self, store: Store, admin: Admin) -> None:
        """The key is fresh again; a record whose lease is alive is left alone."""
        running = a_claim(os.urandom(8).hex())
        store.reserve(running)
        assert admin.release(the_record(store, running), NOTE) is False
        claim = self._abandoned(store)
        assert admin.release(the_record(store, claim), NOTE) is True
        assert store.reserve(a_claim(str(claim.key))) == Reserved(1)
        assert [entry.act for entry in admin.audit(id=claim.id.hex())] == ["release"]

    def _abandoned(self, store: Store) -> Claim:
        # By a key that no other record has: an operator asks for it among all that there are.
        claim = a_claim(os.urandom(8).hex())._replace(lease=SHORT)
        store.reserve(claim)
        lapse(store, claim)
        return claim
