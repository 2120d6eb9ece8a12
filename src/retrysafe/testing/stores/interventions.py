"""Interventions: what operators may do to a record, and that nothing is done without an entry in the audit
trail."""

import threading
from collections.abc import Callable

import pytest

from retrysafe._core.model import Claim, Final, Found, Purged, Record, Reserved, Response
from retrysafe.stores.admin import Admin, Note, Query
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import Elapse, Half, Harness, a_claim, an_outcome, the_record

NOTE = Note("ops@example.com", "the bank has the payment")
BY_HAND = Final("completed", Response(201, ((b"content-type", b"text/plain"),), b"paid"))
FAILED = Final("failed", Response(500), omitted=True)

Act = Callable[[Admin, Record], bool]


def release(admin: Admin, seen: Record) -> bool:
    return admin.release(seen, NOTE)


def resolve(admin: Admin, seen: Record) -> bool:
    return admin.resolve(seen, BY_HAND, NOTE)


def release_settled(admin: Admin, seen: Record) -> bool:
    return admin.release(seen, NOTE, settled=True)


settled = pytest.mark.parametrize("final", [BY_HAND, FAILED], ids=lambda final: final.state)
either = pytest.mark.parametrize("act", [release, resolve])


def abandoned(store: Store, elapse: Elapse, key: str = "key") -> Claim:
    claim = a_claim(key)._replace(hold=86400.0)
    store.reserve(claim)
    elapse(30.0)
    return claim


def finished(store: Store, final: Final) -> tuple[Claim, Record]:
    claim = a_claim()
    store.reserve(claim)
    store.finish(claim, final)
    return claim, the_record(store, claim)


class Interventions(Harness):
    """`release`, `resolve`, `purge` and `audit`."""

    def test_a_released_key_is_free(self, half: Half, store: Store, admin: Admin, elapse: Elapse) -> None:
        """The next retry runs, as the first attempt; the owner who comes back has nothing left to say."""
        owner = abandoned(store, elapse)
        assert admin.release(the_record(store, owner), NOTE) is True
        assert half.look(owner.id) is None
        assert half.finish(owner, an_outcome()) is False
        successor = a_claim()
        assert half.reserve(successor) == Reserved(1)
        assert half.finish(owner, an_outcome()) is False
        assert the_record(half, successor).token == successor.token

    @settled
    def test_a_settled_key_can_be_released(
        self, half: Half, store: Store, admin: Admin, final: Final
    ) -> None:
        """Only when the operator names what it is; the next request then runs, as the first attempt, and the
        audit trail has the outcome that was deleted."""
        owner, seen = finished(store, final)
        assert admin.release(seen, NOTE) is False
        assert the_record(half, owner) == seen
        assert admin.audit() == []
        assert admin.release(seen, NOTE, settled=True) is True
        assert half.look(owner.id) is None
        [entry] = admin.audit()
        assert (entry.by, entry.reason, entry.act) == (*NOTE, "release")
        assert entry.outcome == f"released, was {final.state} {final.response.status}"
        assert (entry.id, entry.key, entry.target) == (owner.id, "key", "/orders")
        successor = a_claim()
        assert half.reserve(successor) == Reserved(1)
        assert half.finish(owner, final) is False
        assert admin.release(seen, NOTE, settled=True) is False, "it is another's now"
        assert the_record(half, successor).token == successor.token

    def test_a_settled_key_that_was_retried_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """A retry took the failed record over while the operator was thinking; running, abandoned or finished
        the same way, it is not what the operator saw."""
        owner, seen = finished(store, FAILED)
        successor = a_claim()
        assert isinstance(store.take_over(successor, owner.token, "failed"), Reserved)
        self.is_refused(store, admin, release_settled, seen)
        elapse(30.0)
        self.is_refused(store, admin, release_settled, seen)
        store.finish(successor, FAILED)
        self.is_refused(store, admin, release_settled, seen)

    def test_a_record_in_another_state_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """It was seen abandoned and has finished since, under the same token: what the operator agreed to
        release is not there any more."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        store.finish(owner, an_outcome())
        self.is_refused(store, admin, release_settled, seen)
        completed = the_record(store, owner)
        self.is_refused(store, admin, release_settled, completed._replace(state="failed"))
        assert release_settled(admin, completed) is True

    def test_a_live_lease_protects_in_any_case(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """No option releases what a worker may be running; an abandoned record is released either way."""
        owner = a_claim()
        store.reserve(owner)
        elapse(29.0)
        seen = the_record(store, owner)
        self.is_refused(store, admin, release_settled, seen)
        for state in ("completed", "failed"):
            self.is_refused(store, admin, release_settled, seen._replace(state=state))
        elapse(1.0)
        assert release_settled(admin, seen) is True

    @settled
    def test_a_settled_record_that_has_expired_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, final: Final
    ) -> None:
        """Expired means absent."""
        _, seen = finished(store, final)
        elapse(3600.0)
        assert release_settled(admin, seen) is False
        assert admin.audit() == []

    def test_a_settled_record_is_not_resolved(self, store: Store, admin: Admin) -> None:
        """Its outcome is known: it is deleted or it stays, but it is never rewritten."""
        _, seen = finished(store, FAILED)
        self.is_refused(store, admin, resolve, seen)

    @pytest.mark.parametrize("final", [BY_HAND, FAILED], ids=lambda final: final.state)
    def test_a_resolved_record_is_replayed(
        self, half: Half, store: Store, admin: Admin, elapse: Elapse, final: Final
    ) -> None:
        """As the operator said, bytes and all; what was known about the request stays."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        elapse(5.0)
        assert admin.resolve(seen, final, NOTE) is True
        found = half.reserve(a_claim())
        assert isinstance(found, Found)
        record = found.record
        assert (record.state, record.response, record.omitted) == final[:3]
        assert record.completed_at == record.updated_at == seen.created_at + 35.0
        kept = (
            "created_at",
            "request_id",
            "correlation_id",
            "key",
            "scope",
            "fingerprint",
            "attempt",
            "mode",
        )
        assert [getattr(record, name) for name in kept] == [getattr(seen, name) for name in kept]

    def test_a_response_by_hand_is_stored_as_a_handlers(
        self, half: Half, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """What could not be replayed is left out, and what is not a final response changes nothing."""
        seen = the_record(store, abandoned(store, elapse))
        headers = (
            (b"Content-Length", b"3"),
            (b"set-cookie", b"a=1"),
            (b"x-a", b"1\r\n2"),
            (b"Location", b"/7"),
        )
        with pytest.raises(ValueError, match="199 is not a valid status"):
            admin.resolve(seen, Final("completed", Response(199)), NOTE)
        assert admin.audit() == []
        assert admin.resolve(seen, Final("completed", Response(201, headers, b"abc")), NOTE) is True
        found = half.look(seen.id)
        assert found is not None
        assert found.record.response == Response(201, ((b"location", b"/7"),), b"abc")

    def test_a_resolved_record_is_fenced(
        self, half: Half, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """An owner that returns can neither finish, checkpoint, renew nor release, nor say the same again."""
        owner = abandoned(store, elapse)
        admin.resolve(the_record(store, owner), BY_HAND, NOTE)
        resolved = the_record(half, owner)
        assert half.checkpoint(owner, Response(200)) is False
        assert half.finish(owner, an_outcome()) is False
        assert half.finish(owner, BY_HAND) is False
        half.release(owner)
        keeper = store.open_keeper()
        assert list(keeper.renew([owner])) == [False]
        keeper.release([owner])
        keeper.close()
        assert isinstance(half.reserve(owner), Found)
        assert the_record(half, owner) == resolved

    def test_a_resolved_record_lasts_for_its_retention(
        self, store: Store, admin: Admin, elapse: Elapse
    ) -> None:
        """From the resolution on, though its first expiry has passed long ago: else no retry could get it."""
        owner = abandoned(store, elapse)
        elapse(7200.0)
        assert admin.resolve(the_record(store, owner), BY_HAND, NOTE) is True
        elapse(3599.0)
        assert the_record(store, owner).response == BY_HAND.response
        elapse(1.0)
        assert store.look(owner.id) is None

    @either
    def test_a_checkpointed_record_too(self, store: Store, admin: Admin, elapse: Elapse, act: Act) -> None:
        """No retry may take it over, but an operator knows what the client saw, and decides."""
        owner = a_claim()
        store.reserve(owner)
        store.checkpoint(owner, Response(200))
        elapse(30.0)
        assert act(admin, the_record(store, owner)) is True
        assert len(admin.audit()) == 1

    @either
    def test_a_running_record_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """Its lease has a moment to go."""
        owner = a_claim()
        store.reserve(owner)
        elapse(29.0)
        self.is_refused(store, admin, act, the_record(store, owner))

    @either
    def test_an_owner_that_came_back_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """It renewed its lease while the operator was thinking."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        keeper = store.open_keeper()
        assert list(keeper.renew([owner])) == [True]
        keeper.close()
        self.is_refused(store, admin, act, seen)

    @either
    def test_an_owner_that_finished_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """Its own outcome is better than what an operator found out."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        store.finish(owner, an_outcome())
        self.is_refused(store, admin, act, seen)

    @either
    def test_another_attempt_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """It is abandoned as well, but it is not the one that the operator looked into."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        store.take_over(a_claim(), owner.token, "in_progress")
        elapse(30.0)
        self.is_refused(store, admin, act, seen)

    @either
    def test_what_has_expired_is_left_alone(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """Expired means absent."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        elapse(86400.0)
        assert act(admin, seen) is False
        assert admin.audit() == []

    @either
    def test_it_is_done_once(self, store: Store, admin: Admin, elapse: Elapse, act: Act) -> None:
        """Of two operators one gets False; there is one entry."""
        owner = abandoned(store, elapse)
        seen = the_record(store, owner)
        other = store.open_admin()
        assert [act(admin, seen), act(other, seen)] == [True, False]
        other.close()
        assert len(admin.audit()) == 1

    @either
    def test_an_operator_and_a_successor_at_once(
        self, store: Store, admin: Admin, elapse: Elapse, act: Act
    ) -> None:
        """The record is the operator's or the successor's, and the audit trail says whose."""
        for round in range(20):
            owner = abandoned(store, elapse, f"key {round}")
            seen = the_record(store, owner)
            successor = a_claim(f"key {round}")
            barrier = threading.Barrier(2)
            taken: list[object] = []

            def take_over(
                owner: Claim = owner,
                successor: Claim = successor,
                barrier: threading.Barrier = barrier,
                taken: list[object] = taken,
            ) -> None:
                barrier.wait()
                taken.append(store.take_over(successor, owner.token, "in_progress"))

            thread = threading.Thread(target=take_over)
            thread.start()
            barrier.wait()
            done = act(admin, seen)
            thread.join()
            entries = admin.audit(id=owner.id.hex())
            assert len(entries) == done
            if not done:
                assert taken == [Reserved(2)], "the successor was first"
            elif act is release:
                assert taken == [Reserved(1)], "the key was free"
            else:
                assert isinstance(taken[0], Found)
            theirs = the_record(store, owner).token == successor.token
            assert theirs is isinstance(taken[0], Reserved)

    def is_refused(self, store: Store, admin: Admin, act: Act, seen: Record) -> None:
        before = store.look(seen.id)
        assert before is not None
        assert act(admin, seen) is False
        after = store.look(seen.id)
        assert after is not None
        assert after.record == before.record
        assert admin.audit() == [], "nothing was done, so nothing is written down"

    def test_the_audit_trail(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """Who did what to which record, when and why, the latest first; all of it, or of one record."""
        first, second = abandoned(store, elapse, "first"), abandoned(store, elapse, "second")
        admin.release(the_record(store, first), NOTE)
        elapse(10.0)
        admin.resolve(the_record(store, second), FAILED, Note("ünal \udce9", "no \0 trace\nof it"))
        elapse(10.0)
        latest, earliest = admin.audit()
        assert (earliest.by, earliest.reason) == NOTE
        assert (earliest.act, earliest.outcome) == ("release", "released")
        assert (earliest.id, earliest.key) == (first.id, "first")
        assert (earliest.scope, earliest.action, earliest.target) == (first.scope, "POST", "/orders")
        assert earliest.request_id == "first-request"
        assert (latest.act, latest.outcome, latest.id) == ("resolve", "failed 500", second.id)
        # A database that cannot hold NUL in a text has its escape.
        assert latest.reason in ("no \0 trace\nof it", "no \\x00 trace\nof it")
        assert latest.by.startswith("ünal")
        assert abs(latest.at - earliest.at - 10.0) < 1.0
        assert admin.audit(limit=1) == [latest]
        for digits in (7, 8, 64):
            assert admin.audit(id=first.id.hex()[:digits]) == [earliest]
        assert admin.audit(id="not hexadecimal") == []

    def test_a_purge_is_written_down_once(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """With what it came to; one that found nothing to remove has done nothing."""
        for n in range(450):
            store.reserve(a_claim(f"key {n}")._replace(lease=1.0))
        store.reserve(a_claim("living")._replace(retention=7200.0))
        elapse(3600.0)
        assert admin.expired() == 450
        assert admin.purge(50).records == 50
        assert admin.audit() == [], "it had no note"
        purged = admin.purge(1000, NOTE)
        assert (purged.records, len(purged.unresolved)) == (400, 400)
        assert admin.purge(1000, NOTE) == Purged(0)
        [entry] = admin.audit()
        assert (entry.by, entry.reason, entry.act) == (*NOTE, "purge")
        assert (entry.outcome, entry.id, entry.key, entry.scope) == ("400 records removed", None, None, ())
        assert admin.expired() == 0
        assert [sighting.record.key for sighting in admin.list(Query())] == ["living"]

    def test_a_purge_keeps_its_limit(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """No more than that, and not one record that has not expired."""
        for n in range(5):
            store.reserve(a_claim(f"key {n}"))
        held = a_claim("held")._replace(hold=1e6)
        store.reserve(held)
        elapse(3600.0)
        assert [admin.purge(limit).records for limit in (0, 2, 10)] == [0, 2, 3]
        assert the_record(store, held).token == held.token

    def test_it_works_from_any_thread(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """The operator's end works from any thread, beside a store in use, and after it was closed."""
        owner = abandoned(store, elapse)
        replies: list[bool] = []
        thread = threading.Thread(target=lambda: replies.append(release(admin, the_record(store, owner))))
        thread.start()
        thread.join()
        assert replies == [True]
        admin.close()
        admin.close()
        assert [entry.act for entry in admin.audit()] == ["release"]
