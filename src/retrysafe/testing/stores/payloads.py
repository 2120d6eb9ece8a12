"""Payloads: what is stored beside a record, and when a worker may handle it."""

from collections.abc import Sequence

import pytest

from retrysafe._core.model import Claim, Deliveries, Final, Found, Inbox, Reserved, Response
from retrysafe.stores.admin import Admin, Note, Query, Source
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

NOTE = Note("ada", "the receiver is repaired")
PAYLOAD = b'[["content-type","application/json"]]\n{"id": 1}\xff\0'


def delivered(key: str = "key", payload: bytes | None = PAYLOAD, due_in: float | None = 60.0) -> Claim:
    """The claim of a delivery, whose payload may be handled after a minute."""
    claim = a_claim(key)._replace(door="callback", action="orders", target="run-1")
    return claim._replace(inbox=Inbox(payload, due_in))


def due(admin: Admin, action: str = "orders", limit: int = 10) -> list[str | None]:
    return [each.record.key for each in admin.due(action, limit)]


def standings(admin: Admin) -> Sequence[str]:
    return [sighting.standing for sighting in admin.list(Query())]


class Payloads(Harness):
    """`Claim.inbox`, `Final.due_in`, and what operators and workers see of them."""

    def test_a_payload_is_stored_with_its_record(self, half: Half, admin: Admin) -> None:
        """Byte for byte; the record itself is as any other."""
        claim = delivered()
        assert half.reserve(claim) == Reserved(1)
        assert admin.payload(claim.id) == PAYLOAD
        [seen] = admin.list(Query())
        assert (seen.standing, seen.payload) == ("in_progress", len(PAYLOAD))
        assert seen.due_at == pytest.approx(seen.record.created_at + 60.0)
        assert seen.record == the_record(half, claim)

    def test_most_records_have_none(self, half: Half, admin: Admin) -> None:
        """Nor has a key of which there is no record; an empty payload is one."""
        claim, empty = a_claim(), delivered("empty", b"")
        half.reserve(claim)
        half.reserve(empty)
        assert admin.payload(claim.id) is None
        assert admin.payload(a_claim("nothing").id) is None
        assert admin.payload(empty.id) == b""
        seen = {sighting.record.key: sighting for sighting in admin.list(Query())}
        assert (seen["key"].payload, seen["key"].due_at, seen["empty"].payload) == (None, None, 0)

    def test_another_delivery_changes_nothing(self, half: Half, admin: Admin) -> None:
        """The payload that was stored first stays."""
        first = delivered()
        half.reserve(first)
        assert isinstance(half.reserve(delivered(payload=b"another", due_in=1.0)), Found)
        assert admin.payload(first.id) == PAYLOAD
        [seen] = admin.list(Query())
        assert seen.due_at == pytest.approx(seen.record.created_at + 60.0)

    def test_what_is_due_comes_in_order(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """That first which could be handled first; not more than were asked for, and of one action."""
        for key, due_in in (("third", 50.0), ("first", 31.0), ("second", 40.0), ("later", 500.0)):
            half.reserve(delivered(key, due_in=due_in))
        half.reserve(delivered("another")._replace(action="refunds"))
        half.reserve(delivered("never", due_in=None))
        assert due(admin) == []
        elapse(100.0)
        assert due(admin) == ["first", "second", "third"]
        assert due(admin, limit=2) == ["first", "second"]
        assert (due(admin, "refunds"), due(admin, "nothing")) == (["another"], [])
        [first, *_] = admin.due("orders")
        assert first == (the_record(half, delivered("first")), PAYLOAD)

    def test_nothing_is_due_while_its_lease_lives(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """It is being handled; once the lease has ended, a worker handles it, and it is not abandoned."""
        half.reserve(delivered(due_in=0.0))
        elapse(29.0)
        assert (due(admin), standings(admin)) == ([], ["in_progress"])
        elapse(1.0)
        assert (due(admin), standings(admin)) == (["key"], ["waiting"])

    def test_a_lease_that_ended_without_a_due_time_is_abandoned(
        self, half: Half, admin: Admin, elapse: Elapse
    ) -> None:
        """No worker may handle it, whatever is stored with it."""
        half.reserve(delivered(due_in=None))
        elapse(31.0)
        assert (due(admin), standings(admin)) == ([], ["abandoned"])

    def test_taking_over_keeps_the_payload(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """A worker claims what is due, and says when another may; of two that saw the same, one gets it."""
        first = delivered()
        half.reserve(first)
        elapse(60.0)
        [(seen, _)] = admin.due("orders")
        worker = delivered(payload=None, due_in=90.0)
        assert half.take_over(worker, seen.token, "in_progress") == Reserved(2)
        assert isinstance(half.take_over(delivered(payload=None), seen.token, "in_progress"), Found)
        assert admin.payload(worker.id) == PAYLOAD
        [taken] = admin.list(Query())
        assert taken.due_at == pytest.approx(taken.record.updated_at + 90.0)
        assert due(admin) == []
        elapse(89.0)
        assert due(admin) == []
        elapse(1.0)
        assert due(admin) == ["key"]

    def test_taking_over_replaces_the_payload_by_another(
        self, half: Half, admin: Admin, elapse: Elapse
    ) -> None:
        """A sender that tries again brings what is handled now."""
        first = delivered()
        half.reserve(first)
        elapse(30.0)
        second = delivered(payload=b"\n2")
        assert half.take_over(second, first.token, "in_progress") == Reserved(2)
        assert admin.payload(second.id) == b"\n2"

    @pytest.mark.parametrize("ended", ["failed", "died"])
    @pytest.mark.parametrize("later", [0.0, 500.0])
    def test_what_is_only_stored_takes_over_nothing_that_is_due(
        self, half: Half, admin: Admin, elapse: Elapse, ended: str, later: float
    ) -> None:
        """Now or later a worker handles it, and its payload and its time stay."""
        first = delivered(due_in=40.0 + later)
        half.reserve(first)
        if ended == "failed":
            half.finish(first, A_FAILURE._replace(due_in=40.0 + later))
        elapse(40.0)
        before = the_record(half, first)
        second = delivered(payload=b"\n2")._replace(lease=0.0, inbox=Inbox(b"\n2", 0.0, never_released=True))
        assert before.state != "completed"
        kept = half.take_over(second, first.token, before.state)
        assert isinstance(kept, Found)
        assert (kept.record, admin.payload(first.id)) == (before, PAYLOAD)
        assert due(admin) == ([] if later else ["key"])
        elapse(later)
        assert due(admin) == ["key"]

    @pytest.mark.parametrize("ended", ["failed", "died"])
    @pytest.mark.parametrize("payload", [None, PAYLOAD])
    def test_what_is_only_stored_takes_over_what_no_worker_handles(
        self, half: Half, admin: Admin, elapse: Elapse, ended: str, payload: bytes | None
    ) -> None:
        """It was tried in vain, or is of a claim that brought no payload; now a worker handles what came."""
        first = delivered(payload=payload, due_in=None)
        half.reserve(first)
        if ended == "failed":
            half.finish(first, A_FAILURE)
        elapse(31.0)
        state = the_record(half, first).state
        assert state != "completed"
        second = delivered()._replace(lease=0.0, inbox=Inbox(b"\n2", 0.0, never_released=True))
        assert half.take_over(second, first.token, state) == Reserved(2)
        assert (due(admin), admin.payload(first.id)) == (["key"], b"\n2")

    def test_without_a_payload_nothing_is_due(
        self, half: Half, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """A worker's claim that made a record anew, and was not released: it expires like any other."""
        anew = delivered(payload=None, due_in=0.0)
        assert half.take_over(anew, b"released", "failed") == Reserved(1)
        [seen] = admin.list(Query())
        assert (seen.payload, seen.due_at) == (None, None)
        bare = a_claim("bare")
        half.reserve(bare)
        half.finish(bare, A_FAILURE)
        assert half.take_over(delivered("bare")._replace(id=bare.id, inbox=anew.inbox), bare.token, "failed")
        elapse(7200.0)
        assert (due(admin), store.purge().records) == ([], 2)

    def test_taking_over_without_an_inbox_ends_the_wait(
        self, half: Half, admin: Admin, elapse: Elapse
    ) -> None:
        """No worker may handle what another claims without one; the payload stays."""
        first = delivered()
        half.reserve(first)
        half.finish(first, A_FAILURE._replace(due_in=5.0))
        second = delivered()._replace(inbox=None)
        assert half.take_over(second, first.token, "failed") == Reserved(2)
        elapse(100.0)
        assert (due(admin), standings(admin)) == ([], ["abandoned"])
        assert admin.payload(first.id) == PAYLOAD

    @pytest.mark.parametrize("retention_from", ["creation", "update"])
    def test_a_failure_is_due_again(
        self, half: Half, admin: Admin, elapse: Elapse, retention_from: str
    ) -> None:
        """After as many seconds as its outcome says; without any, an operator is to look at it."""
        claim = delivered()._replace(retention_from=retention_from)  # type: ignore[arg-type]
        half.reserve(claim)
        assert half.finish(claim, A_FAILURE._replace(due_in=300.0)) is True
        assert standings(admin) == ["waiting"]
        elapse(299.0)
        assert due(admin) == []
        elapse(1.0)
        assert due(admin) == ["key"]
        again = delivered(payload=None)._replace(retention_from=retention_from)  # type: ignore[arg-type]
        assert half.take_over(again, claim.token, "failed") == Reserved(2)
        assert half.finish(again, A_FAILURE) is True
        elapse(300.0)
        assert (due(admin), standings(admin)) == ([], ["failed"])
        assert admin.payload(claim.id) == PAYLOAD

    def test_an_outcome_says_when_without_an_inbox(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """It is the outcome that says it, whatever the claim brought."""
        first = delivered()
        half.reserve(first)
        half.finish(first, A_FAILURE)
        second = delivered()._replace(inbox=None)
        half.take_over(second, first.token, "failed")
        assert half.finish(second, A_FAILURE._replace(due_in=5.0)) is True
        elapse(5.0)
        assert due(admin) == ["key"]

    def test_completing_ends_the_wait(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """Its payload stays as long as the record, and no worker handles it again; late, too."""
        in_time, late = delivered(), delivered("late")
        for claim in (in_time, late):
            half.reserve(claim)
        assert half.finish(in_time, an_outcome()) is True
        assert half.finish(in_time, an_outcome()) is True, "said again, because its result was lost"
        elapse(3600.0)
        assert half.finish(late, an_outcome()) is True
        assert (due(admin), standings(admin)) == ([], ["completed"])
        assert the_record(half, late).expires_at == pytest.approx(the_record(half, late).updated_at + 3600.0)
        assert (admin.payload(in_time.id), admin.payload(late.id)) == (None, PAYLOAD)

    def test_the_overtaken_says_nothing_about_the_payload(
        self, half: Half, admin: Admin, elapse: Elapse
    ) -> None:
        """A stranger neither ends the wait nor begins one."""
        first, second = delivered(), delivered(payload=None, due_in=None)
        half.reserve(first)
        elapse(60.0)
        half.take_over(second, first.token, "in_progress")
        assert half.finish(first, A_FAILURE._replace(due_in=0.0)) is False
        [seen] = admin.list(Query())
        assert (seen.due_at, seen.standing) == (None, "in_progress")

    def test_releasing_deletes_the_payload(self, half: Half, admin: Admin) -> None:
        """With its record: the sender was told to try again."""
        claim = delivered()
        half.reserve(claim)
        half.release(claim)
        assert admin.payload(claim.id) is None
        assert half.reserve(a_claim()) == Reserved(1)
        assert admin.payload(claim.id) is None

    @pytest.mark.parametrize("ended", ["failed", "died"])
    def test_what_waits_does_not_expire(
        self, half: Half, store: Store, admin: Admin, elapse: Elapse, ended: str
    ) -> None:
        """What was acknowledged is not lost because no worker ran; once it is done with, it expires."""
        claim = delivered()
        half.reserve(claim)
        if ended == "failed":
            half.finish(claim, A_FAILURE._replace(due_in=60.0))
        elapse(30 * 86400.0)
        assert isinstance(half.reserve(delivered()), Found)
        assert half.look(claim.id) is not None
        assert (store.purge().records, admin.expired(), admin.purge(10).records) == (0, 0, 0)
        assert (due(admin), standings(admin)) == (["key"], ["waiting"])
        worker = delivered(payload=None)
        state = the_record(half, claim).state
        assert state != "completed"
        assert half.take_over(worker, claim.token, state) == Reserved(2)
        assert half.finish(worker, an_outcome()) is True
        elapse(3599.0)
        assert half.look(claim.id) is not None
        elapse(1.0)
        assert half.look(claim.id) is None
        assert admin.payload(claim.id) is None
        assert admin.purge(10).records == 1

    def test_a_fresh_record_has_no_payload_of_the_expired_one(
        self, half: Half, admin: Admin, elapse: Elapse
    ) -> None:
        """Neither the payload nor the time, and it has those that its own claim brings."""
        old = delivered()
        half.reserve(old)
        half.finish(old, an_outcome())
        elapse(3600.0)
        fresh = a_claim()
        assert half.reserve(fresh) == Reserved(1)
        assert admin.payload(fresh.id) is None
        half.finish(fresh, an_outcome())
        elapse(3600.0)
        newest = delivered(payload=b"\n3", due_in=7.0)
        assert half.reserve(newest) == Reserved(1)
        assert admin.payload(newest.id) == b"\n3"
        [seen] = admin.list(Query())
        assert seen.due_at == pytest.approx(seen.record.created_at + 7.0)

    def test_operators_find_what_waits(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """Told apart from what failed and from what is abandoned, in lists and in figures."""
        died, failed, lost = delivered("died"), delivered("failed"), a_claim("lost")
        for claim in (died, failed, lost, delivered("running")._replace(lease=1000.0)):
            half.reserve(claim)
        half.finish(failed, A_FAILURE._replace(due_in=45.0))
        assert admin.statistics().oldest_due == pytest.approx(the_record(half, failed).updated_at + 45.0)
        elapse(50.0)
        waiting = admin.list(Query(standings=frozenset({"waiting"})))
        assert {sighting.record.key for sighting in waiting} == {"died", "failed"}
        [abandoned] = admin.list(Query(standings=frozenset({"abandoned"})))
        assert abandoned.record.key == "lost"
        assert admin.list(Query(standings=frozenset({"failed"}))) == []
        assert admin.list(Query())[0].record.key == "lost", "what an operator has to look at comes first"
        found = admin.statistics()
        assert found.total.records == {"abandoned": 1, "waiting": 2, "in_progress": 1}
        assert found.oldest_abandoned == abandoned.record.created_at
        assert found.oldest_due == pytest.approx(the_record(half, failed).updated_at + 45.0)

    def test_sources_are_counted(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """What was delivered, how often, and how long it took until it was handled; callbacks alone."""
        claims = [delivered(f"order {n}") for n in range(3)]
        for claim in [*claims, delivered("refund")._replace(action="refunds"), a_claim("request")]:
            store.reserve(claim)
        keeper = store.open_keeper()
        keeper.add_deliveries({claims[0].id: Deliveries(2, (1.0, 0.0))})
        keeper.close()
        elapse(10.0)
        store.finish(claims[0], an_outcome())
        elapse(20.0)
        store.finish(claims[1], an_outcome())
        store.finish(claims[2], A_FAILURE)
        found = admin.statistics().by_source
        assert list(found) == ["orders", "refunds"]
        events, deliveries, handled, seconds, longest = found["orders"]
        assert (events, deliveries, handled) == (3, 5, 2)
        assert seconds == pytest.approx(20.0)
        assert longest == pytest.approx(30.0)
        assert found["refunds"] == Source(1, 1, 0, None, None)
        assert list(admin.statistics(groups=1).by_source) == ["orders"]

    def test_no_source_where_there_is_no_callback(self, store: Store, admin: Admin) -> None:
        """Requests and operations are counted elsewhere."""
        store.reserve(a_claim())
        found = admin.statistics()
        assert (found.by_source, found.oldest_due) == ({}, None)

    def test_a_failure_is_redriven(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """It is due at once, and stays the failure that it is until a worker takes it over."""
        claim = delivered()
        half.reserve(claim)
        half.finish(claim, A_FAILURE)
        elapse(10.0)
        seen = the_record(half, claim)
        assert admin.redrive(seen, NOTE) is True
        assert (due(admin), standings(admin)) == (["key"], ["waiting"])
        record = the_record(half, claim)
        assert (record.state, record.response) == ("failed", A_FAILURE.response)
        assert (record.completed_at, record.updated_at) == (seen.completed_at, seen.updated_at + 10.0)
        assert record.token != seen.token
        assert half.take_over(delivered(payload=None), record.token, "failed") == Reserved(2)
        assert admin.payload(claim.id) == PAYLOAD

    def test_an_abandoned_delivery_is_redriven(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """What came of it is not known, so it is a failure without a response; and its owner is fenced."""
        claim = delivered(due_in=None)
        half.reserve(claim)
        half.checkpoint(claim, Response(202))
        elapse(31.0)
        assert admin.redrive(the_record(half, claim), NOTE) is True
        assert due(admin) == ["key"]
        record = the_record(half, claim)
        assert (record.state, record.response, record.omitted) == ("failed", Response(500), True)
        assert record.completed_at == record.updated_at
        assert half.finish(claim, an_outcome()) is False
        half.release(claim)
        assert due(admin) == ["key"]

    def test_what_waits_is_redriven(self, half: Half, admin: Admin) -> None:
        """Sooner than a worker would by itself."""
        claim = delivered()
        half.reserve(claim)
        half.finish(claim, A_FAILURE._replace(due_in=86400.0))
        assert due(admin) == []
        assert admin.redrive(the_record(half, claim), NOTE) is True
        assert due(admin) == ["key"]

    def test_a_redrive_is_written_down(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """By whom, why, and what the record was."""
        failed, died = delivered("failed"), delivered("died")
        half.reserve(failed)
        half.finish(failed, A_FAILURE)
        half.reserve(died)
        elapse(31.0)
        for claim in (failed, died):
            assert admin.redrive(the_record(half, claim), NOTE) is True
        second, first = admin.audit()
        assert (first.by, first.reason, first.act) == ("ada", "the receiver is repaired", "redrive")
        assert (first.outcome, second.outcome) == (
            "to be handled again, was failed",
            "to be handled again, was abandoned",
        )
        assert (first.id, first.key, first.action, first.target) == (failed.id, "failed", "orders", "run-1")

    def test_what_cannot_be_redriven_is_left_alone(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """Completed, being handled, without a payload, expired, or not as it was seen; and nothing is written
        down."""
        completed, running, bare = delivered("completed"), delivered("running"), a_claim("bare")
        changed, gone = delivered("changed"), delivered("gone")._replace(retention=10.0)
        for claim in (completed, running, bare, changed, gone):
            half.reserve(claim)
        half.finish(completed, an_outcome())
        for claim in (bare, changed, gone):
            half.finish(claim, A_FAILURE)
        expired, before = the_record(half, gone), the_record(half, changed)
        half.take_over(delivered("changed"), changed.token, "failed")
        elapse(10.0)
        for claim in (completed, running, bare):
            seen = the_record(half, claim)
            assert admin.redrive(seen, NOTE) is False
            assert the_record(half, claim) == seen
        for seen in (
            expired,
            before,
            the_record(half, changed),
            the_record(half, completed)._replace(state="failed"),
            the_record(half, running)._replace(state="failed"),
        ):
            assert admin.redrive(seen, NOTE) is False
        assert admin.audit() == []
        assert due(admin) == []

    def test_settling_by_hand_ends_the_wait(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """An operator found out what happened: no worker handles it again."""
        claim = delivered()
        half.reserve(claim)
        elapse(100.0)
        assert due(admin) == ["key"]
        assert admin.resolve(the_record(half, claim), Final("completed", Response(200)), NOTE) is True
        assert (due(admin), standings(admin)) == ([], ["completed"])
        elapse(3600.0)
        assert half.look(claim.id) is None

    def test_what_waits_is_deleted_by_an_operator(self, half: Half, admin: Admin, elapse: Elapse) -> None:
        """With its payload: as an abandoned record, or as a failed one that was seen so."""
        died, failed = delivered("died"), delivered("failed")
        for claim in (died, failed):
            half.reserve(claim)
        half.finish(failed, A_FAILURE._replace(due_in=0.0))
        elapse(60.0)
        assert admin.release(the_record(half, died), NOTE) is True
        assert admin.release(the_record(half, failed), NOTE) is False
        assert admin.release(the_record(half, failed), NOTE, settled=True) is True
        assert due(admin) == []
        assert (admin.payload(died.id), admin.payload(failed.id)) == (None, None)
