"""Takeovers: which claim may replace an attempt, when, and what that does to the one replaced."""

from retrysafe._core.model import Found, Reserved, Response
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import (
    A_FAILURE,
    Elapse,
    Half,
    Harness,
    LoseLease,
    a_claim,
    an_outcome,
    the_record,
)


class Takeovers(Harness):
    """`take_over`, and the fence."""

    def test_an_abandoned_attempt_is_taken_over(self, half: Half, elapse: Elapse) -> None:
        """Its lease has ended, so the next one holds the key, as attempt two."""
        first, second = a_claim(), a_claim()._replace(mode="tx", request_id="second")
        half.reserve(first)
        before = the_record(half, first)
        elapse(30.0)
        assert half.take_over(second, first.token, "in_progress") == Reserved(2)
        after = the_record(half, second)
        assert (after.token, after.mode, after.state) == (second.token, "tx", "in_progress")
        assert after.lease_until == after.updated_at + 30.0
        kept = ("created_at", "expires_at", "request_id", "correlation_id", "key", "scope", "target")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]

    def test_a_failed_attempt_is_taken_over(self, half: Half) -> None:
        """At once, and nothing of the failure remains."""
        first, second = a_claim(), a_claim()
        half.reserve(first)
        half.checkpoint(first, Response(500))
        half.finish(first, A_FAILURE._replace(omitted=True))
        assert half.take_over(second, first.token, "failed") == Reserved(2)
        record = the_record(half, second)
        assert (record.state, record.response, record.completed_at) == ("in_progress", None, None)
        assert (record.checkpointed, record.omitted) == (False, False)
        half.checkpoint(second, Response(200))
        assert the_record(half, second).response == Response(200), "not with the body of the failure"

    def test_a_live_lease_is_never_taken_away(self, half: Half, elapse: Elapse) -> None:
        """A moment before its end it still protects its holder."""
        first = a_claim()
        half.reserve(first)
        elapse(29.0)
        assert isinstance(half.take_over(a_claim(), first.token, "in_progress"), Found)
        assert the_record(half, first).token == first.token

    def test_a_missing_lease_is_a_live_one(self, half: Half, elapse: Elapse, lose_lease: LoseLease) -> None:
        """A lease that was lost in the store says nothing about its owner, who may be at work."""
        first = a_claim()
        half.reserve(first)
        lose_lease(first.id)
        elapse(3599.0)
        assert isinstance(half.take_over(a_claim(), first.token, "in_progress"), Found)
        assert the_record(half, first).lease_until is None

    def test_a_checkpointed_attempt_is_never_taken_over(self, half: Half, elapse: Elapse) -> None:
        """A client has part of its response; a second run could only contradict it."""
        first = a_claim()
        half.reserve(first)
        half.checkpoint(first, Response(200))
        elapse(31.0)
        assert isinstance(half.take_over(a_claim(), first.token, "in_progress"), Found)
        assert the_record(half, first).token == first.token

    def test_a_completed_attempt_is_never_taken_over(self, half: Half, elapse: Elapse) -> None:
        """It happened."""
        first = a_claim()
        half.reserve(first)
        half.finish(first, an_outcome())
        elapse(31.0)
        found = half.take_over(a_claim(), first.token, "in_progress")
        assert isinstance(found, Found)
        assert found.record.state == "completed"

    def test_only_the_attempt_that_was_judged_is_replaced(self, half: Half, elapse: Elapse) -> None:
        """With another token than the record's, another claim was faster: judge again."""
        first, second, third = a_claim(), a_claim(), a_claim()
        half.reserve(first)
        elapse(31.0)
        assert half.take_over(second, first.token, "in_progress") == Reserved(2)
        elapse(31.0)
        found = half.take_over(third, first.token, "in_progress")
        assert isinstance(found, Found)
        assert found.record.token == second.token

    def test_an_owner_that_failed_in_the_last_moment_was_not_abandoned(
        self, half: Half, elapse: Elapse
    ) -> None:
        """A claim that judged it abandoned must judge again: its failure may be what is to be replayed."""
        first = a_claim()
        half.reserve(first)
        elapse(31.0)
        half.finish(first, A_FAILURE)
        found = half.take_over(a_claim(), first.token, "in_progress")
        assert isinstance(found, Found)
        assert found.record.state == "failed"

    def test_a_repeated_takeover_recognises_itself(self, half: Half, elapse: Elapse) -> None:
        """The acknowledgement was lost; the same token again is the same attempt, not one more."""
        first, second = a_claim(), a_claim()
        half.reserve(first)
        elapse(31.0)
        assert [half.take_over(second, first.token, "in_progress") for _ in range(2)] == [Reserved(2)] * 2
        assert the_record(half, second).attempt == 2

    def test_what_is_gone_is_reserved_instead(self, half: Half) -> None:
        """The attempt was released meanwhile, so the key is free."""
        assert half.take_over(a_claim(), b"some other token", "in_progress") == Reserved(1)

    def test_what_has_expired_is_reserved_instead(self, half: Half, elapse: Elapse) -> None:
        """Expired means absent: a fresh record, with an expiry of its own."""
        first, second = a_claim(), a_claim()
        half.reserve(first)
        half.finish(first, A_FAILURE)
        elapse(3600.0)
        assert half.take_over(second, first.token, "failed") == Reserved(1)
        record = the_record(half, second)
        assert record.expires_at == record.created_at + 3600.0

    def test_the_overtaken_can_change_nothing(self, half: Half, store: Store, elapse: Elapse) -> None:
        """Checkpoint, finish, release and renew of the first attempt leave the second as it is."""
        first, second = a_claim(), a_claim()
        half.reserve(first)
        elapse(31.0)
        half.take_over(second, first.token, "in_progress")
        before = the_record(half, second)
        elapse(1.0)  # a lease that is renewed ends at another time now
        keeper = store.open_keeper()
        assert half.checkpoint(first, Response(200)) is False
        assert half.finish(first, an_outcome()) is False
        half.release(first)
        assert list(keeper.renew([first])) == [False]
        keeper.release([first])
        keeper.close()
        assert the_record(half, second) == before
