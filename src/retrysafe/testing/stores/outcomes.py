"""Outcomes: what is stored, for how long, and that it is stored once."""

import pytest

from retrysafe._core.model import Final, Response
from retrysafe.testing.stores.harness import (
    A_FAILURE,
    Elapse,
    Half,
    Harness,
    a_claim,
    an_outcome,
    the_record,
)


class Outcomes(Harness):
    """`checkpoint` and `finish`."""

    @pytest.mark.parametrize("final", [an_outcome(), A_FAILURE], ids=["completed", "failed"])
    def test_an_outcome_is_kept(self, half: Half, elapse: Elapse, final: Final) -> None:
        """State, response and time of completion; nothing else changes."""
        claim = a_claim()
        half.reserve(claim)
        before = the_record(half, claim)
        elapse(5.0)
        assert half.finish(claim, final) is True
        after = the_record(half, claim)
        assert after.completed_at == after.updated_at
        assert after.updated_at > before.updated_at
        assert after == before._replace(
            state=final.state,
            response=final.response,
            completed_at=after.completed_at,
            updated_at=after.updated_at,
        )

    def test_saying_it_twice_is_saying_it_once(self, half: Half, elapse: Elapse) -> None:
        """A finish whose acknowledgement was lost is confirmed, and changes nothing."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        before = the_record(half, claim)
        elapse(5.0)
        assert half.finish(claim, an_outcome()) is True
        assert the_record(half, claim) == before

    @pytest.mark.parametrize(
        "other",
        [A_FAILURE, an_outcome(b"another"), an_outcome()._replace(omitted=True)],
        ids=["state", "body", "omitted"],
    )
    def test_an_outcome_is_final(self, half: Half, other: Final) -> None:
        """The same token with another outcome is refused: what was once confirmed cannot be unsaid."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        before = the_record(half, claim)
        assert half.finish(claim, other) is False
        assert the_record(half, claim) == before

    def test_nothing_is_finished_that_was_not_begun(self, half: Half) -> None:
        """Without a record there is nothing to finish, and none is made."""
        claim = a_claim()
        assert half.finish(claim, an_outcome()) is False
        assert half.look(claim.id) is None

    def test_nothing_is_finished_that_was_released(self, half: Half) -> None:
        """A release is a statement that nothing happened."""
        claim = a_claim()
        half.reserve(claim)
        half.release(claim)
        assert half.finish(claim, an_outcome()) is False

    def test_a_stranger_finishes_nothing(self, half: Half) -> None:
        """Without the token, no outcome."""
        claim = a_claim()
        half.reserve(claim)
        assert half.finish(a_claim(), an_outcome()) is False
        assert the_record(half, claim).state == "in_progress"

    def test_an_attempt_that_was_not_taken_over_may_finish(self, half: Half, elapse: Elapse) -> None:
        """A lease that ended without a takeover is not a reason to lose the outcome."""
        claim = a_claim()
        half.reserve(claim)
        elapse(31.0)
        assert half.finish(claim, an_outcome()) is True

    def test_finishing_in_time_does_not_move_the_expiry(self, half: Half, elapse: Elapse) -> None:
        """Retention counts from the creation."""
        claim = a_claim()
        half.reserve(claim)
        before = the_record(half, claim).expires_at
        elapse(20.0)
        half.finish(claim, an_outcome())
        assert the_record(half, claim).expires_at == before

    def test_a_late_outcome_is_seen_for_its_retention(self, half: Half, elapse: Elapse) -> None:
        """One that lands after the expiry would be gone at once; it is given its time."""
        claim = a_claim()._replace(lease=7200.0)
        half.reserve(claim)
        elapse(3700.0)
        assert half.finish(claim, an_outcome()) is True
        record = the_record(half, claim)
        assert record.expires_at == record.updated_at + 3600.0

    def test_a_checkpoint_is_seen(self, half: Half) -> None:
        """Status and headers of the response that is leaving, on a record that is still in progress."""
        claim = a_claim()
        half.reserve(claim)
        head = Response(200, ((b"content-type", b"text/csv"),))
        assert half.checkpoint(claim, head) is True
        record = the_record(half, claim)
        assert (record.state, record.checkpointed, record.response) == ("in_progress", True, head)

    def test_a_checkpoint_may_be_repeated_and_then_finished(self, half: Half) -> None:
        """The same response both times; the end keeps what it is given."""
        claim = a_claim()
        half.reserve(claim)
        assert half.checkpoint(claim, Response(200)) is True
        assert half.checkpoint(claim, Response(200)) is True
        final = Final("completed", Response(200, ((b"etag", b'"1"'),)), omitted=True)
        assert half.finish(claim, final) is True
        record = the_record(half, claim)
        assert (record.checkpointed, record.omitted, record.response) == (True, True, final.response)

    def test_a_checkpoint_is_fenced(self, half: Half) -> None:
        """A stranger makes none, and an attempt that has ended makes no more."""
        claim = a_claim()
        assert half.checkpoint(claim, Response(200)) is False
        half.reserve(claim)
        assert half.checkpoint(a_claim(), Response(200)) is False
        half.finish(claim, an_outcome())
        assert half.checkpoint(claim, Response(500)) is False
        assert the_record(half, claim).response == an_outcome().response
