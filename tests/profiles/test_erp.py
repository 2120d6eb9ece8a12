"""The profile `erp`, sentence by sentence; the numbers are those of its specification's sentences."""

import asyncio
import itertools

import pytest

from retrysafe import profiles, scopes
from retrysafe.policy import MIB
from retrysafe.stores.admin import Query
from retrysafe.testing.adapters.client import Reply
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call, Held, during

KEY = "550e8400-e29b-41d4-a716-446655440000"
TENANT = scopes.all_of(scopes.header("X-Tenant"), scopes.user)


def is_replayed(reply: Reply) -> bool:
    return reply.header("X-Idempotent-Replayed") == "true"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_covered_methods(serve: Serve, method: str) -> None:
    """001-1, 001-6, 001-10, 001-11: the duplicate gets the original status and body, and nothing runs."""
    service = serve("erp")
    first, again = (service.request(method, "/api/v1/orders", key=KEY) for _ in range(2))
    assert first.essence == again.essence == (201, b'{"charge": 1}')
    assert (is_replayed(first), is_replayed(again)) == (False, True)
    assert len(service.runs) == 1


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_other_methods(serve: Serve, method: str) -> None:
    """001-1: they pass through, and are not changed."""
    service = serve("erp")
    replies = [service.request(method, "/api/v1/orders", key=KEY) for _ in range(2)]
    assert len(service.runs) == 2
    assert [reply.header("Idempotency-Key") for reply in replies] == [None, None]


@pytest.mark.parametrize("path", ["/api/v1/orders", "/api/v1/payments", "/pos/transactions"])
def test_global(serve: Serve, path: str) -> None:
    """001-2, 001-25, 001-32: every route is covered, and no handler knows of it."""
    service = serve("erp")
    assert [service.post(path, key=KEY).status for _ in range(2)] == [201, 201]
    assert len(service.runs) == 1


def test_only_the_api(serve: Serve) -> None:
    """001-2: a group of routes is a prefix."""
    service = serve("erp", paths=["/api/*"])
    for path, runs in (("/api/v1/orders", 1), ("/web/orders", 3)):
        for _ in range(2):
            service.post(path, key=KEY)
        assert len(service.runs) == runs


@pytest.mark.parametrize("sent", [KEY, f'"{KEY}"'])
def test_the_key_is_echoed(serve: Serve, sent: str) -> None:
    """001-3, 001-4, 001-5: on the first response and on replays, as the client wrote it."""
    service = serve("erp")
    for _ in range(2):
        assert service.post(key=sent).header("Idempotency-Key") == sent


def test_the_marker(serve: Serve) -> None:
    """001-7: `X-Idempotent-Replayed: true` on replays, by no other name."""
    service = serve("erp")
    first, again = (service.post(key=KEY) for _ in range(2))
    assert first.header("X-Idempotent-Replayed") is None
    assert again.header("X-Idempotent-Replayed") == "true"
    assert again.header("Idempotent-Replayed") is None


def test_no_header(serve: Serve) -> None:
    """001-8: unchanged."""
    service = serve("erp")
    replies = [service.post() for _ in range(2)]
    assert len(service.runs) == 2
    assert {name for reply in replies for name, _ in reply.fields} == {"content-type"}


@pytest.mark.parametrize(
    "key",
    ["k" * 256, "k" * 300, '"' + "k" * 256 + '"', "", '""', "a,b", '"open', '"bad\\escape"', "caf\xe9"],
)
def test_a_key_that_is_none(serve: Serve, key: str) -> None:
    """001-9: over 255 characters is 422 before anything is processed; so is every other malformed key."""
    service = serve("erp")
    reply = service.post(key=key)
    assert (reply.status, reply.code, len(service.runs)) == (422, "key-invalid", 0)


def test_the_longest_key(serve: Serve) -> None:
    """001-9, 001-17: 255 characters are a key."""
    service = serve("erp")
    assert [service.post(key="k" * 255).status for _ in range(2)] == [201, 201]
    assert len(service.runs) == 1


def test_in_flight(serve: Serve) -> None:
    """001-12: a duplicate meanwhile is 409, one after it the replay."""
    held = Held()
    service = serve("erp", held)
    first, meanwhile, after = during(service, held, KEY)
    assert (meanwhile.status, meanwhile.code) == (409, "in-flight")
    assert first.essence == after.essence
    assert is_replayed(after)
    assert len(service.runs) == 1


def test_a_race(serve: Serve) -> None:
    """001-22, 001-29, 001-33: of many at once, also from other devices, one runs; the others are 409."""
    held = Held()
    service = serve("erp", held)

    async def race() -> list[Reply]:
        asked = [asyncio.create_task(service.asked(key=KEY)) for _ in range(20)]
        refused = [await reply for reply in itertools.islice(asyncio.as_completed(asked), 19)]
        held.end.set()
        (first,) = [await task for task in asked if not task.done()]
        return [first, *refused]

    assert [reply.status for reply in service.run(race())] == [201] + [409] * 19
    assert len(service.runs) == 1


@pytest.mark.parametrize("hours", [None, "48"])
def test_an_expired_key_is_fresh(serve: Serve, hours: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-13, 001-21: after 24 hours, or what `IDEMPOTENCY_TTL_HOURS` says; not a second before."""
    if hours is not None:
        monkeypatch.setenv("IDEMPOTENCY_TTL_HOURS", hours)
    service = serve("erp")
    service.post(key=KEY)
    service.clock.now += float(hours or 24) * 3600 - 1
    assert is_replayed(service.post(key=KEY))
    service.clock.now += 2
    fresh = service.post(key=KEY)
    assert (is_replayed(fresh), fresh.body, len(service.runs)) == (False, b'{"charge": 2}', 2)


def test_what_is_stored(serve: Serve) -> None:
    """001-14 to 001-20, 001-26: id, tenant, user, key, method, path, status, body, times; for an operator."""
    service = serve("erp", scope=TENANT)
    service.post("/api/v1/orders", key=KEY, headers=[("X-Tenant", "acme")])
    admin = service.store.open_admin()
    (sighting,) = admin.find(Query(key=KEY, scope=(("user", "alice"),)), 10)
    record = sighting.record
    assert dict(record.scope) == {"x-tenant": "acme", "user": "alice"}
    assert (len(record.id), record.key, record.action, record.target) == (32, KEY, "POST", "/api/v1/orders")
    assert record.completed_at == service.clock.now
    assert record.expires_at == service.clock.now + 86400
    found = service.store.look(record.id)
    assert found is not None
    assert found.record.response is not None
    assert (found.record.response.status, found.record.response.body) == (201, b'{"charge": 1}')


def test_tenants_and_users_share_nothing(serve: Serve) -> None:
    """001-15, 001-16: a key belongs to a user of a tenant; the same user id in another tenant is another."""
    service = serve("erp", scope=TENANT)
    owners = [("acme", "1"), ("acme", "2"), ("globex", "1"), ("globex", "2")]
    for _ in range(2):
        replies = [
            service.post(key=KEY, user=user, headers=[("X-Tenant", tenant)]) for tenant, user in owners
        ]
        assert [reply.body for reply in replies] == [b'{"charge": %d}' % n for n in (1, 2, 3, 4)]
    assert len(service.runs) == 4
    assert service.post(key=KEY, user=None, headers=[("X-Tenant", "acme")]).code == "principal-required"
    assert service.post(key=KEY, user="1").code == "principal-required"


async def big(call: Call) -> Answer:
    return Answer(202, b"x" * (MIB + (call.path == "/api/over")))


def test_a_large_body(serve: Serve) -> None:
    """001-23: 1 MiB is stored; of more, the status is, and the retry says that the body is not there."""
    service = serve("erp", big)
    assert [len(service.post("/api/up-to", key="fits").body) for _ in range(2)] == [MIB, MIB]
    service.post("/api/over", key=KEY)
    again = service.post("/api/over", key=KEY)
    assert again.essence == (202, b"")
    assert again.header("Idempotency-Body") == "omitted"
    assert is_replayed(again)
    assert len(service.runs) == 2


def test_a_large_body_as_in_the_original(serve: Serve) -> None:
    """001-24: an empty 200, as an option."""
    service = serve("erp", big, wire=profiles.wire("erp")._replace(tombstone="empty-200"))
    assert service.post("/api/over", key=KEY).status == 202
    again = service.post("/api/over", key=KEY)
    assert again.essence == (200, b"")
    assert is_replayed(again)
    assert len(service.runs) == 1
    published = service.request("GET", "/idempotency", headers=[("Accept", "application/json")]).document
    assert "an empty 200" in published["stored"]["bodies"]


def test_pruning(serve: Serve) -> None:
    """001-28: what has expired is removed, and nothing else."""
    service = serve("erp")
    service.post(key="old")
    service.clock.now += 3600
    service.post(key="new")
    service.clock.now += 86400 - 3600
    assert service.store.purge().records == 1
    assert is_replayed(service.post(key="new"))


def test_a_crash_leaves_no_409_for_a_day(serve: Serve) -> None:
    """A worker that died blocks its key for the lease; then an operator is told (the original: for 24 h)."""
    held = Held()
    service = serve("erp", held)

    async def die() -> None:
        task = asyncio.create_task(service.asked(key=KEY))
        await held.begun.wait()
        # What a dead process leaves: its record, and no renewals.
        service.guard.runtime.leases.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    service.run(die())
    service.clock.now += 31
    assert service.post(key=KEY).code == "outcome-unknown"
    (seen,) = service.store.open_admin().find(Query(standings=frozenset({"abandoned"})), 10)
    assert seen.record.key == KEY
