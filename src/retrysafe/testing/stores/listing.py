"""Listing: what operators see of records, all of it and nothing else."""

import pytest

from retrysafe._core.model import Claim, Response
from retrysafe.stores.admin import Admin, Place, Query, Share
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import (
    A_FAILURE,
    Elapse,
    Harness,
    LoseLease,
    a_claim,
    an_outcome,
    ended,
    the_record,
)


def keys(admin: Admin, query: Query = Query(), limit: int = 100) -> list[str | None]:  # noqa: B008 - frozen
    return [sighting.record.key for sighting in admin.list(query, limit)]


def one_of_each(store: Store, elapse: Elapse) -> None:
    """Made one after the other: gone, abandoned, completed, failed, running; `gone` has expired."""
    store.reserve(a_claim("gone")._replace(retention=3650.0))
    store.reserve(a_claim("abandoned")._replace(hold=1e6))
    elapse(3600.0)
    for key, final in (("completed", an_outcome()), ("failed", A_FAILURE)):
        elapse(10.0)
        claim = a_claim(key)
        store.reserve(claim)
        store.finish(claim, final)
    elapse(10.0)
    store.reserve(a_claim("running"))
    elapse(20.0)  # only now: a claim may remove what has expired


class Listing(Harness):
    """`list`, `find`, `statistics`, `expired` and the counts."""

    def test_the_abandoned_come_first(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """The oldest of them first, then everything else, the youngest first; nothing that has expired."""
        one_of_each(store, elapse)
        elapse(1.0)
        store.reserve(a_claim("abandoned too")._replace(lease=1.0))
        elapse(2.0)
        everything = ["abandoned", "abandoned too", "running", "failed", "completed"]
        assert keys(admin) == everything
        assert keys(admin, limit=3) == everything[:3]
        standings = [sighting.standing for sighting in admin.list(Query())]
        assert standings == ["abandoned", "abandoned", "in_progress", "failed", "completed"]

    @pytest.mark.parametrize(
        ("standings", "expected"),
        [
            ({"abandoned"}, ["abandoned"]),
            ({"in_progress"}, ["running"]),
            ({"completed"}, ["completed"]),
            ({"failed", "abandoned"}, ["abandoned", "failed"]),
        ],
    )
    def test_a_standing_is_asked_for(
        self, store: Store, admin: Admin, elapse: Elapse, standings: set[str], expected: list[str]
    ) -> None:
        """The lease tells running and abandoned records apart."""
        one_of_each(store, elapse)
        assert keys(admin, Query(standings=frozenset(standings))) == expected  # type: ignore[arg-type]

    def test_a_missing_lease_is_no_abandonment(
        self, store: Store, admin: Admin, elapse: Elapse, lose_lease: LoseLease
    ) -> None:
        """Not before the record expires, when its hold alone keeps it: then an operator has to see it."""
        claim = a_claim()._replace(hold=1e6)
        store.reserve(claim)
        lose_lease(claim.id)
        elapse(3599.0)
        assert [sighting.standing for sighting in admin.list(Query())] == ["in_progress"]
        elapse(1.0)
        assert [sighting.standing for sighting in admin.list(Query())] == ["abandoned"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (Query(door="callback"), ["callback"]),
            (Query(scope=(("tenant", "7"),)), ["callback", "order"]),
            (Query(scope=(("user", "42"), ("tenant", "7"))), ["order"]),
            (Query(scope=(("user", "4"),)), []),
            (Query(scope=(('a"b\\', "é\n[1]"),)), ["odd"]),
            (Query(scope=(("tenant", "é\n[1]"),)), []),
            (Query(action="cancel"), ["cancel"]),
            (Query(action="POST"), ["odd", "callback", "order"]),
            (Query(action="POST", door="operation"), []),
            (Query(action="cancel", target="wf-1"), ["cancel"]),
            (Query(target="/orders"), ["order"]),
            (Query(target="/orders*"), ["odd", "order"]),
            (Query(target="/orders/%_*"), ["odd"]),
            (Query(target="*"), ["odd", "callback", "order", "cancel"]),
            (Query(target="/order"), []),
            (Query(older=25.0), ["order", "cancel"]),
            (Query(older=20.0, younger=20.0), ["callback"]),
            (Query(younger=15.0), ["odd"]),
            (Query(key="order"), ["order"]),
            (Query(key="Order"), []),
            (Query(key="order", door="callback"), []),
            (Query(door="callback", target="/jobs"), ["callback"]),
            (Query(door="operation", target="/jobs"), []),
            (Query(door="request", target="/orders"), ["order"]),
            (Query(request_id="job-1"), ["callback"]),
            (Query(request_id="job"), []),
            (Query(request_id="job-1", door="request"), []),
            (Query(scope=(("list", "],["),)), ["odd"]),
        ],
        ids=str,
    )
    def test_a_record_is_asked_for(
        self, store: Store, admin: Admin, elapse: Elapse, query: Query, expected: list[str]
    ) -> None:
        """By door, parts of its scope, action, path or beginning of it, age, key and request; by several at
        once."""
        for claim in (
            a_claim("cancel")._replace(
                door="operation", scope=(("service", "jobs"),), action="cancel", target="wf-1"
            ),
            a_claim("order"),
            a_claim("callback")._replace(
                door="callback",
                scope=(("tenant", "7"), ("user", "9")),
                target="/jobs",
                request_id="job-1",
            ),
            a_claim("odd")._replace(scope=(('a"b\\', "é\n[1]"), ("list", "],[")), target="/orders/%_/1"),
        ):
            store.reserve(claim._replace(lease=1000.0))
            elapse(10.0)
        assert keys(admin, query) == expected

    def test_everything_is_exported(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """With bodies, what has expired too, in the order of ids, and more than fits a page; or a part of
        it."""
        claims = [a_claim(f"key {n}") for n in range(120)]
        for claim in claims:
            store.reserve(claim)
            store.finish(claim, an_outcome(claim.id))
        later = a_claim("later")._replace(door="callback", retention=7200.0)
        store.reserve(later)
        elapse(3600.0)
        exported = list(admin.export())
        assert [record.id for record in exported] == sorted(claim.id for claim in [*claims, later])
        bodies = {record.id: record.response.body for record in exported if record.response}
        assert bodies == {claim.id: claim.id for claim in claims}
        assert [record.id for record in admin.export(door="callback")] == [later.id]
        assert len(list(admin.export(expiring=3590.0))) == 120
        assert len(list(admin.export(expiring=3600.0))) == 121

    def test_an_identity_is_found_by_its_first_digits(self, store: Store, admin: Admin) -> None:
        """As many as are in the log, an odd number too; all of them, or none, as they are asked for."""
        claims = [a_claim(f"key {n}") for n in range(40)]
        for claim in claims:
            store.reserve(claim)
        wanted = claims[0].id.hex()
        for digits in (1, 2, 3, 8, 64):
            expected = {claim.key for claim in claims if claim.id.hex().startswith(wanted[:digits])}
            assert set(keys(admin, Query(id=wanted[:digits]))) == expected
        assert keys(admin, Query(id=wanted.upper())) == [claims[0].key]
        assert keys(admin, Query(id=wanted + "0")) == []
        assert keys(admin, Query(id="not hexadecimal")) == []
        assert keys(admin, Query(id=wanted[:8], key="another")) == []

    def test_a_list_has_no_bodies(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """But their size, and everything else as the record has it; who asks for one record sees all of
        it."""
        claim = a_claim()
        store.reserve(claim)
        store.finish(claim, an_outcome(b"\0" * 5000))
        elapse(7.0)
        record = the_record(store, claim)
        assert record.response is not None
        [listed] = admin.list(Query())
        [found] = admin.find(Query())
        assert found.record == record
        assert listed.record == record._replace(response=record.response._replace(body=b""))
        assert listed[1:] == found[1:] == ("completed", 5000, listed.now, None, None)
        assert abs(listed.now - record.created_at - 7.0) < 1.0

    def test_a_checkpointed_record_shows_its_head(self, store: Store, admin: Admin) -> None:
        """Status and headers that have left already."""
        claim = a_claim()
        store.reserve(claim)
        store.checkpoint(claim, Response(200, ((b"content-type", b"text/plain"),)))
        [listed] = admin.list(Query())
        assert listed.record == the_record(store, claim)
        assert listed.size == 0

    def test_a_digest_is_all_there_is(self, store: Store, admin: Admin) -> None:
        """A key that may not be kept is listed without it, and not found by it."""
        store.reserve(a_claim("secret")._replace(key=None))
        assert keys(admin) == [None]
        assert keys(admin, Query(key="secret")) == []

    def test_statistics_count_everything_once(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """By standing, with the bytes of the bodies; the expired apart; and since when the oldest is
        there."""
        one_of_each(store, elapse)
        found = admin.statistics()
        each = {"abandoned": 1, "in_progress": 1, "completed": 1, "failed": 1}
        size = len(an_outcome().response.body) + len(A_FAILURE.response.body)
        assert found.total == Share(each, size)  # type: ignore[arg-type]
        assert found.expired == admin.expired() == 1
        running, abandoned = admin.list(Query(key="running")), admin.list(Query(key="abandoned"))
        assert found.oldest_running == running[0].record.created_at
        assert found.oldest_abandoned == abandoned[0].record.created_at
        assert abs(found.now - running[0].now) < 1.0
        assert found.by_door == {"request": found.total}
        assert found.by_route == {("POST", "/orders"): found.total}
        assert found.by_scope == {(("tenant", "7"), ("user", "42")): found.total}

    def test_statistics_of_nothing(self, admin: Admin) -> None:
        """Zeros, and no times."""
        found = admin.statistics()
        assert found.total == Share({}, 0)
        assert (found.expired, found.oldest_running, found.oldest_abandoned) == (0, None, None)
        assert (found.by_door, found.by_route, found.by_scope) == ({}, {}, {})
        assert (found.verdicts, found.counted_since) == ({}, None)

    def test_statistics_show_the_largest_groups(self, store: Store, admin: Admin) -> None:
        """In their order, and no more than were asked for; the total has all."""
        claims: list[Claim] = []
        for number in (3, 1, 2):
            for n in range(number):
                claim = a_claim(f"{number} {n}")
                claims.append(claim._replace(target=f"/of/{number}", scope=(("user", str(number)),)))
        for claim in claims:
            store.reserve(claim)
        found = admin.statistics(groups=2)
        assert list(found.by_route) == [("POST", "/of/3"), ("POST", "/of/2")]
        assert list(found.by_scope) == [(("user", "3"),), (("user", "2"),)]
        assert found.by_route["POST", "/of/3"] == Share({"in_progress": 3}, 0)
        assert found.total == Share({"in_progress": 6}, 0)

    def test_statistics_group_operations_by_action(self, store: Store, admin: Admin) -> None:
        """Their targets are ids, and there are as many as calls."""
        for n in range(3):
            claim = a_claim(f"key {n}")._replace(door="operation", action="charge", target=f"o-{n}")
            store.reserve(claim)
        store.reserve(a_claim("request"))
        found = admin.statistics()
        assert found.by_route == {
            ("charge", ""): Share({"in_progress": 3}, 0),
            ("POST", "/orders"): Share({"in_progress": 1}, 0),
        }
        assert found.by_door == {
            "operation": Share({"in_progress": 3}, 0),
            "request": Share({"in_progress": 1}, 0),
        }

    def test_one_door_is_purged(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """What has expired of the others stays until it is asked for."""
        for n in range(3):
            claim = a_claim(f"key {n}")._replace(door="operation" if n else "request")
            store.reserve(claim)
            store.finish(claim, an_outcome())
        elapse(3600.0)
        assert (admin.expired(), admin.expired("operation"), admin.expired("callback")) == (3, 2, 0)
        assert admin.purge(10, door="operation").records == 2
        assert (admin.expired(), admin.purge(10).records) == (1, 1)

    def test_counts_add_up(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """Of several keepers, as of several processes; and it is known since when."""
        first, second = store.open_keeper(), store.open_keeper()
        first.count(ended({"completed": 2, "replayed": 1}))
        began = admin.statistics().counted_since
        elapse(60.0)
        second.count(ended({"replayed": 4, "in-flight": 1}))
        first.count({})
        first.close()
        second.close()
        found = admin.statistics()
        assert found.verdicts == {"completed": 2, "replayed": 5, "in-flight": 1}
        assert began is not None
        assert found.counted_since == began
        assert abs(found.now - began - 60.0) < 1.0

    def test_calls_are_counted_by_place(self, store: Store, admin: Admin, elapse: Elapse) -> None:
        """By door, route and source, with the last time of each verdict; first those that lack keys."""
        keeper = store.open_keeper()
        keeper.count(
            {
                **ended({"completed": 90, "keyless": 2}),
                **ended({"completed": 500}, "/refunds"),
                **ended({"key-missing": 1, "keyless": 7}, "/old"),
                **ended({"completed": 1}, "", "callback", "jobs"),
                **ended({"completed": 1}, "charge", "operation"),
            }
        )
        elapse(60.0)
        keeper.count(ended({"completed": 10, "replayed": 1}))
        keeper.close()
        found = admin.statistics()
        assert [*found.calls] == [
            Place("request", "/old", ""),
            Place("request", "/orders", ""),
            Place("request", "/refunds", ""),
            Place("callback", "", "jobs"),
            Place("operation", "charge", ""),
        ]
        verdicts, since, last = found.calls[Place("request", "/orders", "")]
        assert verdicts == {"completed": 100, "keyless": 2, "replayed": 1}
        ages = {verdict: round(found.now - at) for verdict, at in last.items()}
        assert ages == {"completed": 0, "keyless": 60, "replayed": 0}
        assert round(found.now - since) == 60
        assert found.verdicts == {"completed": 602, "keyless": 9, "key-missing": 1, "replayed": 1}
        assert found.counted_since == since
        assert [*admin.statistics(1).calls] == [Place("request", "/old", "")]
        assert admin.statistics(0).calls == {}

    def test_any_route_can_be_counted(self, store: Store, admin: Admin) -> None:
        """Where a framework gives paths for routes: with any character, and of any length.  A store may cut
        them, and then adds up what is the same."""
        keeper = store.open_keeper()
        long = "/é" * 10_000
        odd = "/a\0b\udce9"
        counts = {**ended({"keyless": 1}, f"{long}1"), **ended({"keyless": 1}, f"{long}2")}
        keeper.count({**counts, **ended({"keyless": 1}, odd)})
        keeper.count(ended({"keyless": 1}, odd))
        keeper.close()
        found = admin.statistics()
        assert found.verdicts == {"keyless": 4}
        assert sum(calls.verdicts["keyless"] for calls in found.calls.values()) == 4
        assert any(
            calls.verdicts["keyless"] == 2 and "b" in place.route for place, calls in found.calls.items()
        )
