"""Expiry: when a record counts as absent, and that nothing but time makes it so."""

from retrysafe._core.model import Found, Reserved, Response
from retrysafe.testing.stores.harness import (
    Elapse,
    Half,
    Harness,
    LoseLease,
    a_claim,
    an_outcome,
    the_record,
)


class Expiry(Harness):
    """Expiry, as `reserve` and `look` see it."""

    def test_an_outcome_is_found_until_it_expires(self, half: Half, elapse: Elapse) -> None:
        """Shortly before: found.  After: absent, and the key is fresh, whether or not it was purged."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        elapse(3599.0)
        assert isinstance(half.reserve(a_claim()), Found)
        elapse(1.0)
        assert half.look(claim.id) is None
        assert half.reserve(a_claim()) == Reserved(1)

    def test_a_fresh_record_keeps_nothing_of_the_expired_one(self, half: Half, elapse: Elapse) -> None:
        """Neither response nor times nor attempt; it is as if there had never been another."""
        old = a_claim()
        half.reserve(old)
        half.finish(old, an_outcome()._replace(omitted=True))
        elapse(3600.0)
        new = old._replace(token=b"n" * 16, fingerprint=b"f" * 32, request_id="new", key=None, mode="tx")
        half.reserve(new)
        found = half.look(new.id)
        assert found is not None
        record = found.record
        assert (record.state, record.response, record.omitted) == ("in_progress", None, False)
        assert (record.request_id, record.key, record.mode) == ("new", None, "tx")
        assert (record.token, record.fingerprint) == (b"n" * 16, b"f" * 32)
        assert abs(found.now - record.created_at) < 1.0
        assert record.expires_at == record.created_at + 3600.0
        assert record.completed_at is None
        half.checkpoint(new, Response(200))
        assert the_record(half, new).response == Response(200), "not with the body of old"

    def test_no_record_expires_under_a_live_lease(self, half: Half, elapse: Elapse) -> None:
        """An attempt that runs for longer than the retention is still the only one."""
        claim = a_claim()._replace(lease=7200.0)
        half.reserve(claim)
        elapse(7199.0)
        assert isinstance(half.reserve(a_claim()), Found)
        elapse(1.0)
        assert half.reserve(a_claim()) == Reserved(1)

    def test_an_abandoned_attempt_is_found_until_it_expires(self, half: Half, elapse: Elapse) -> None:
        """The end of its lease does not free the key; that is for the judge to decide."""
        claim = a_claim()
        half.reserve(claim)
        elapse(3599.0)
        assert isinstance(half.reserve(a_claim()), Found)
        elapse(1.0)
        assert half.look(claim.id) is None

    def test_an_abandoned_attempt_is_held(self, half: Half, elapse: Elapse) -> None:
        """With a hold longer than the retention it blocks its key until the hold is over."""
        claim = a_claim()._replace(hold=86400.0)
        half.reserve(claim)
        elapse(86399.0)
        assert isinstance(half.reserve(a_claim()), Found)
        elapse(1.0)
        assert half.reserve(a_claim()) == Reserved(1)

    def test_an_outcome_is_not_held(self, half: Half, elapse: Elapse) -> None:
        """The hold is for those whose outcome is unknown."""
        claim = a_claim()._replace(hold=86400.0)
        half.reserve(claim)
        half.finish(claim, an_outcome())
        elapse(3600.0)
        assert half.look(claim.id) is None

    def test_a_missing_lease_lasts_as_long_as_the_record(
        self, half: Half, elapse: Elapse, lose_lease: LoseLease
    ) -> None:
        """Alive until the expiry, so that no attempt is taken over; no longer, so that no key is lost
        forever."""
        claim = a_claim()
        half.reserve(claim)
        lose_lease(claim.id)
        elapse(3599.0)
        assert isinstance(half.reserve(a_claim()), Found)
        elapse(1.0)
        assert half.reserve(a_claim()) == Reserved(1)

    def test_asking_does_not_prolong(self, half: Half, elapse: Elapse) -> None:
        """Replays and mismatches leave every time in the record as it was."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        before = the_record(half, claim)
        for _ in range(3):
            elapse(600.0)
            half.reserve(a_claim())
            half.reserve(a_claim()._replace(fingerprint=b"another request", retention=1e6))
            half.take_over(a_claim(), claim.token, "in_progress")
        assert the_record(half, claim) == before
