"""The profile `agents`, sentence by sentence; the numbers are those of its specification's sentences."""

import asyncio
import sqlite3

import pytest

from retrysafe import scopes
from retrysafe.stores.admin import Query
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call, Held, during

KEY = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
ACT = "/api/dwellers/7/act"


def test_a_retry_after_a_lost_response(serve: Serve) -> None:
    """002-1, 002-2, 002-7, 002-9: what ran is not run again, however often a client asks."""
    service = serve("agents")
    replies = [service.post(ACT, key=KEY) for _ in range(5)]
    assert {reply.essence for reply in replies} == {(201, b'{"charge": 1}')}
    assert [reply.replayed for reply in replies] == [False] + [True] * 4
    assert len(service.runs) == 1


def test_a_failure_is_replayed(serve: Serve) -> None:
    """002-1, 002-11: a 502 says nothing about its effect, so the retry gets it again, and is told so."""
    service = serve("agents", _fails_first)
    replies = [service.post(ACT, key=KEY) for _ in range(2)]
    assert [reply.status for reply in replies] == [502, 502]
    assert [reply.header("X-Should-Retry") for reply in replies] == ["false", "false"]
    assert len(service.runs) == 1


def test_a_failure_is_tried_again_as_in_the_original(serve: Serve) -> None:
    """002-11: `failed="retry"`, for actions that are repeatable or undone."""
    service = serve("agents", _fails_first, failed="retry")
    replies = [service.post(ACT, key=KEY) for _ in range(3)]
    assert [reply.status for reply in replies] == [502, 201, 201]
    assert [reply.replayed for reply in replies] == [False, False, True]
    assert replies[0].header("X-Should-Retry") == "true"
    assert len(service.runs) == 2


async def _fails_first(call: Call) -> Answer:
    return Answer(502, b"{}") if call.number == 1 else Answer(201, b'{"acted": true}')


def test_the_header(serve: Serve) -> None:
    """002-3, 002-4: `X-Idempotency-Key`; `Idempotency-Key` is another header, and no key."""
    service = serve("agents")
    for _ in range(2):
        service.post(ACT, headers=[("X-Idempotency-Key", KEY)])
    assert len(service.runs) == 1
    for _ in range(2):
        service.post(ACT, headers=[("Idempotency-Key", KEY)])
    assert len(service.runs) == 3


@pytest.mark.parametrize(
    ("method", "runs"), [("POST", 1), ("PUT", 1), ("PATCH", 1), ("GET", 2), ("DELETE", 2)]
)
def test_methods(serve: Serve, method: str, runs: int) -> None:
    """002-5, 002-18, 002-26: POST, PUT and PATCH; others are not looked at, and GET is not cached."""
    service = serve("agents")
    for _ in range(2):
        service.request(method, ACT, key=KEY)
    assert len(service.runs) == runs


def test_no_header(serve: Serve) -> None:
    """002-5, 002-6: without it there is no check."""
    service = serve("agents")
    for _ in range(2):
        assert [name for name, _ in service.post(ACT).fields] == ["content-type"]
    assert len(service.runs) == 2


def test_in_flight(serve: Serve) -> None:
    """002-8: 409, with these words."""
    held = Held()
    service = serve("agents", held)
    first, meanwhile, after = during(service, held, KEY, path=ACT)
    assert (meanwhile.status, meanwhile.document["detail"]) == (409, "Request is being processed")
    assert after.replayed
    assert first.essence == after.essence
    assert len(service.runs) == 1


def test_keys_expire(serve: Serve) -> None:
    """002-10, 002-22, 002-25: after 24 hours a key is new; purging removes it, in whichever task."""
    service = serve("agents")
    service.post(ACT, key=KEY)
    service.clock.now += 86399
    assert service.post(ACT, key=KEY).replayed
    service.clock.now += 1
    assert not service.post(ACT, key=KEY).replayed
    service.clock.now += 86400
    assert service.store.purge().records == 1


def test_what_is_stored(serve: Serve) -> None:
    """002-11 to 002-15, 002-28: state, user, endpoint, response and time; found by its user."""
    service = serve("agents")
    service.post(ACT, key=KEY, user="alice")
    service.post(ACT, key=KEY, user="bob")
    (seen,) = service.store.open_admin().find(Query(scope=(("user", "alice"),)), 10)
    record = seen.record
    assert (record.state, record.key, record.action, record.target) == ("completed", KEY, "POST", ACT)
    assert (record.created_at, record.completed_at) == (service.clock.now, service.clock.now)
    found = service.store.look(record.id)
    assert found is not None
    assert found.record.response is not None
    assert (found.record.response.status, found.record.response.body) == (201, b'{"charge": 1}')


def test_a_key_has_an_owner(serve: Serve) -> None:
    """002-12: the original's primary key was the key alone, and served one user's response to another."""
    service = serve("agents")
    mine, theirs = (service.post(ACT, key=KEY, user=user) for user in ("alice", "bob"))
    assert (mine.body, theirs.body, theirs.replayed) == (b'{"charge": 1}', b'{"charge": 2}', False)
    assert len(service.runs) == 2


@pytest.mark.parametrize(
    ("path", "runs"),
    [(ACT, 1), ("/api/stories", 1), ("/api/review/story/1/feedback", 1), ("/login", 2), ("/apis", 2)],
)
def test_under_api(serve: Serve, path: str, runs: int) -> None:
    """002-16, 002-19: all that is under /api/, and nothing else."""
    service = serve("agents")
    for _ in range(2):
        service.post(path, key=KEY)
    assert len(service.runs) == runs


@pytest.mark.parametrize("paths", [["/*"], ["/login"]])
def test_other_paths(serve: Serve, paths: list[str]) -> None:
    """What a middleware is given counts over the profile's paths."""
    service = serve("agents", paths=paths)
    for _ in range(2):
        service.post("/login", key=KEY)
    assert len(service.runs) == 1


def test_behind_authentication(serve: Serve) -> None:
    """002-17, 002-23: the user that authentication has found is the owner; without one, 400 and no run."""
    service = serve("agents")
    assert service.post(ACT, key=KEY, user=None).code == "principal-required"
    assert service.runs == []


def test_registration_has_no_user(serve: Serve) -> None:
    """002-20: that route says that its keys are public, and they must be too long to be guessed."""
    service = serve("agents", routes={"/api/auth/agent": {"scope": scopes.public()}})
    for _ in range(2):
        assert service.post("/api/auth/agent", key=KEY, user=None).status == 201
    assert len(service.runs) == 1
    assert service.post("/api/auth/agent", key="short", user=None).code == "key-invalid"
    assert service.post(ACT, key=KEY, user=None).code == "principal-required"


def test_one_key_one_row(serve: Serve) -> None:
    """002-24: on the platform's own table, whatever the retries, one key never makes two rows."""
    platform = sqlite3.connect(":memory:", isolation_level=None)
    platform.execute("CREATE TABLE actions (dweller TEXT, body TEXT)")

    async def act(call: Call) -> Answer:
        await asyncio.sleep(0)
        platform.execute("INSERT INTO actions VALUES (?, ?)", (call.path, call.body.decode()))
        return Answer(201, b"{}")

    service = serve("agents", act)

    async def storm() -> None:
        await asyncio.gather(
            *(service.asked(path=ACT, key=f"{KEY}-{n % 5}", body=b'"%d"' % (n % 5)) for n in range(50))
        )

    for _ in range(3):
        service.run(storm())
    counted = platform.execute("SELECT body, count(*) FROM actions GROUP BY body").fetchall()
    platform.close()
    assert dict(counted) == {f'"{n}"': 1 for n in range(5)}
