"""Claims: which caller gets a key, and what the others get."""

from retrysafe._core.model import Found, Record, Reserved
from retrysafe.testing.stores.harness import (
    Elapse,
    Half,
    Harness,
    a_claim,
    an_outcome,
    identities,
    the_record,
)


class Claims(Harness):
    """`reserve`, `look` and `release`."""

    def test_a_fresh_key_is_reserved(self, half: Half) -> None:
        """There was no record, so the claim holds the key, as its first attempt."""
        assert half.reserve(a_claim()) == Reserved(1)

    def test_nothing_is_found_where_nothing_is(self, half: Half) -> None:
        """An unknown id has no record, and `look` creates none."""
        assert half.look(a_claim().id) is None
        assert half.look(a_claim().id) is None

    def test_the_record_says_what_the_claim_said(self, half: Half) -> None:
        """Every field of a new record comes from the claim, or from the store's clock."""
        claim = a_claim()._replace(hold=7200.0)
        half.reserve(claim)
        found = half.look(claim.id)
        assert found is not None
        born = found.record.created_at
        assert abs(found.now - born) < 1.0
        assert found.record == Record(
            id=claim.id,
            token=claim.token,
            fingerprint=claim.fingerprint,
            state="in_progress",
            mode="lease",
            attempt=1,
            lease_until=born + 30.0,
            checkpointed=False,
            door="request",
            scope=claim.scope,
            key=claim.key,
            action="POST",
            target="/orders",
            request_id="first-request",
            correlation_id="trace-1",
            created_at=born,
            updated_at=born,
            completed_at=None,
            expires_at=born + 3600.0,
            held_until=born + 7200.0,
            response=None,
            omitted=False,
        )

    def test_a_second_claim_is_told_of_the_first(self, half: Half) -> None:
        """The key is reserved: the record is returned and stays as it is."""
        first = a_claim()
        half.reserve(first)
        before = the_record(half, first)
        found = half.reserve(a_claim()._replace(fingerprint=b"something else", request_id="second"))
        assert isinstance(found, Found)
        assert found.record == before == the_record(half, first)

    def test_a_repeated_claim_recognises_itself(self, half: Half) -> None:
        """An acknowledgement may be lost.  The same token again gives the same verdict, not a conflict."""
        claim = a_claim()
        assert half.reserve(claim) == half.reserve(claim) == Reserved(1)

    def test_a_finished_claim_is_found_by_its_own_token(self, half: Half) -> None:
        """Once there is an outcome the key cannot be reserved, not even by its owner."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        assert isinstance(half.reserve(claim), Found)

    def test_what_is_found_is_dated_by_the_store(self, half: Half, elapse: Elapse) -> None:
        """`now` is the store's time of looking, so that a lease can be judged without another clock."""
        claim = a_claim()
        half.reserve(claim)
        first = half.look(claim.id)
        elapse(12.0)
        second = half.reserve(a_claim())
        assert first is not None
        assert isinstance(second, Found)
        assert abs((second.now - first.now) - 12.0) < 1.0

    def test_a_released_key_is_fresh_again(self, half: Half) -> None:
        """What is known not to have happened leaves no trace."""
        claim = a_claim()
        half.reserve(claim)
        half.release(claim)
        assert half.look(claim.id) is None
        assert half.reserve(a_claim()) == Reserved(1)

    def test_a_key_is_released_by_its_holder_only(self, half: Half) -> None:
        """Another token releases nothing."""
        holder = a_claim()
        half.reserve(holder)
        half.release(a_claim())
        assert the_record(half, holder).token == holder.token

    def test_releasing_twice_is_releasing_once(self, half: Half) -> None:
        """A repeated release does not touch a claim that came in between."""
        claim, successor = a_claim(), a_claim()
        half.reserve(claim)
        half.release(claim)
        half.reserve(successor)
        half.release(claim)
        assert the_record(half, successor).token == successor.token

    def test_an_outcome_cannot_be_released(self, half: Half) -> None:
        """A finished record stays, whatever its owner asks for afterwards."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        half.release(claim)
        assert the_record(half, claim).state == "completed"

    def test_ids_are_bytes_and_only_bytes(self, half: Half) -> None:
        """Ids that a collation might merge are different: case, trailing space, zero, length, accents."""
        ids = [
            b"a" * 32,
            b"A" * 32,
            b"a" * 31 + b" ",
            b"a" * 31 + b"\0",
            b"a" * 31,
            b"\0" * 32,
            "é".encode() * 16,
            "e\u0301".encode() * 8 + b"e" * 8,
            bytes(range(32)),
            b"\xff" * 32,
        ]
        claims = [a_claim()._replace(id=identities.ending_as(id)) for id in ids]
        assert [half.reserve(claim) for claim in claims] == [Reserved(1)] * len(ids)
        assert [the_record(half, claim).token for claim in claims] == [claim.token for claim in claims]
