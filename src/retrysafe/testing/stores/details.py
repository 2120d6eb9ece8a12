"""What a record gathers besides its outcome: details, deliveries, and a retention that begins anew."""

import contextlib

import pytest

from retrysafe._core.model import Deliveries, Found, Reserved, Response
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import (
    A_FAILURE,
    Elapse,
    Half,
    Harness,
    a_claim,
    an_outcome,
    the_record,
)


class Details(Harness):
    """`details`, `deliveries` and `retention_from`."""

    def test_details_come_with_the_claim_and_with_the_outcome(self, half: Half) -> None:
        """Those of the outcome are added, and replace others of the same name."""
        claim = a_claim()._replace(details=(("run", "9"), ("status", "processing")))
        half.reserve(claim)
        assert the_record(half, claim).details == claim.details
        half.finish(claim, an_outcome()._replace(details=(("status", "done"), ("result", "s3://x\0\ud800"))))
        details = dict(the_record(half, claim).details)
        assert set(details) == {"run", "status", "result"}
        assert (details["run"], details["status"]) == ("9", "done")
        assert details["result"].startswith("s3://x")

    def test_an_outcome_without_details_leaves_those_of_the_claim(self, half: Half) -> None:
        """Nothing is lost because nothing was added."""
        claim = a_claim()._replace(details=(("run", "9"),))
        half.reserve(claim)
        half.finish(claim, an_outcome())
        assert the_record(half, claim).details == (("run", "9"),)

    def test_a_successor_brings_details_of_its_own(self, half: Half) -> None:
        """Those of the attempt that failed are gone with it."""
        first = a_claim()._replace(details=(("run", "9"),))
        half.reserve(first)
        half.finish(first, A_FAILURE._replace(details=(("result", "none"),)))
        second = a_claim()._replace(details=(("run", "10"),))
        assert half.take_over(second, first.token, "failed") == Reserved(2)
        assert the_record(half, second).details == (("run", "10"),)

    def test_deliveries_are_counted(self, store: Store, half: Half) -> None:
        """Their number and the last of their times; the record is otherwise as it was."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, an_outcome())
        before = the_record(half, claim)
        assert (before.deliveries, before.seen_at, before.delivery_times) == (1, None, ())
        with contextlib.closing(store.open_keeper()) as keeper:
            keeper.add_deliveries({claim.id: Deliveries(2, [0.5, 0.25])})
            keeper.add_deliveries({claim.id: Deliveries(30, [0.0]), a_claim("gone").id: Deliveries(1, [0.0])})
            keeper.add_deliveries({})
        after = half.look(claim.id)
        assert after is not None
        record = after.record
        assert record.deliveries == 33
        assert len(record.delivery_times) == 3
        assert list(record.delivery_times) == sorted(record.delivery_times)
        assert record.seen_at == pytest.approx(record.delivery_times[-1], abs=0.01)
        assert record.seen_at == pytest.approx(after.now, abs=5.0)
        assert half.look(a_claim("gone").id) is None
        unchanged = record._replace(deliveries=1, seen_at=None, delivery_times=())
        assert unchanged == before, "a delivery is not an update"

    def test_the_last_twenty_times_are_stored(self, store: Store, half: Half) -> None:
        """The oldest make room."""
        claim = a_claim()
        half.reserve(claim)
        with contextlib.closing(store.open_keeper()) as keeper:
            keeper.add_deliveries({claim.id: Deliveries(15, [100.0 - n for n in range(15)])})
            keeper.add_deliveries({claim.id: Deliveries(15, [50.0 - n for n in range(15)])})
        record = the_record(half, claim)
        assert record.deliveries == 31
        assert len(record.delivery_times) == 20
        last, first = record.delivery_times[-1], record.delivery_times[0]
        assert last - first == pytest.approx(90.0 - 36.0, abs=1.0)

    def test_a_new_record_has_none_of_it(self, store: Store, half: Half, elapse: Elapse) -> None:
        """An expired one leaves nothing behind."""
        old = a_claim()._replace(details=(("run", "9"),), retention_from="update")
        half.reserve(old)
        half.finish(old, an_outcome())
        with contextlib.closing(store.open_keeper()) as keeper:
            keeper.add_deliveries({old.id: Deliveries(1, [0.0])})
        elapse(3600.0)
        new = a_claim()
        assert half.reserve(new) == Reserved(1)
        record = the_record(half, new)
        assert (record.details, record.deliveries, record.seen_at) == ((), 1, None)
        assert (record.delivery_times, record.retention_from) == ((), "creation")

    def test_retention_from_the_last_update(self, half: Half, elapse: Elapse) -> None:
        """Completing begins it anew; asking does not."""
        claim = a_claim()._replace(retention_from="update")
        half.reserve(claim)
        elapse(3000.0)
        half.finish(claim, an_outcome())
        finished = the_record(half, claim)
        assert finished.retention_from == "update"
        assert finished.expires_at == pytest.approx(finished.updated_at + 3600.0)
        elapse(3599.0)
        assert isinstance(half.reserve(a_claim()._replace(retention_from="update")), Found)
        elapse(1.0)
        assert half.look(claim.id) is None

    def test_every_update_counts(self, half: Half, elapse: Elapse) -> None:
        """A checkpoint and a takeover, too."""
        first = a_claim()._replace(retention_from="update")
        half.reserve(first)
        elapse(1000.0)
        half.checkpoint(first, Response(200))
        assert the_record(half, first).expires_at == pytest.approx(
            the_record(half, first).updated_at + 3600.0
        )
        elapse(1000.0)
        half.finish(first, A_FAILURE)
        elapse(1000.0)
        second = a_claim()._replace(retention_from="update")
        assert half.take_over(second, first.token, "failed") == Reserved(2)
        record = the_record(half, second)
        assert record.expires_at == pytest.approx(record.updated_at + 3600.0)
        assert record.expires_at == pytest.approx(record.created_at + 6600.0, abs=5.0)

    def test_retention_from_creation_stays(self, half: Half, elapse: Elapse) -> None:
        """Unless another is asked for, no update moves the expiry."""
        claim = a_claim()
        half.reserve(claim)
        before = the_record(half, claim).expires_at
        elapse(1000.0)
        half.checkpoint(claim, Response(200))
        half.finish(claim, an_outcome())
        assert the_record(half, claim).expires_at == pytest.approx(before)
