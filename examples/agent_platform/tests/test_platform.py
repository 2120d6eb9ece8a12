"""What agents see: authentication before keys, corrected bodies, registration, in progress, a deploy."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from examples.agent_platform.client import AgentClient
from examples.agent_platform.models import Agent, Heartbeat, Story
from examples.agent_platform.storm import QuickClient
from examples.agent_platform.tests.conftest import Harness, wait_until
from examples.gateway import Proxy


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def story(intent: str) -> dict[str, str]:
    return {"intent": intent, "title": "a storm"}


def replayed(response: httpx.Response) -> bool:
    return bool(response.headers.get("Idempotent-Replayed") == "true")


def test_an_expired_token(harness: Harness, key: str) -> None:
    """401 with its challenge, and no record: with a new token the same key runs."""
    agent = harness.register("ada")
    token = harness.log_in(agent)
    harness.expire(token)
    refused = harness.post("/api/stories", story(key), token=token, key=key)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')
    assert harness.records(key) == 0
    accepted = harness.post("/api/stories", story(key), token=harness.log_in(agent), key=key)
    assert (accepted.status_code, replayed(accepted)) == (201, False)
    assert (harness.records(key), harness.rows(Story, key)) == (1, 1)


def test_a_token_that_was_revoked(harness: Harness, key: str) -> None:
    """The agent revokes one of its tokens: 401, also for what it has done with it."""
    token = harness.log_in(harness.register("bob"))
    assert harness.post("/api/stories", story(key), token=token, key=key).status_code == 201
    revoked = harness.http.delete(
        f"{harness.url}/api/auth/token", headers={"Authorization": f"Bearer {token}"}
    )
    assert revoked.status_code == 204
    refused = harness.post("/api/stories", story(key), token=token, key=key)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')


def test_without_a_token(harness: Harness, key: str) -> None:
    """RFC 6750 section 3: no error code where no credentials were sent; and no record."""
    refused = harness.post("/api/stories", story(key), key=key)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert harness.records(key) == 0


def test_a_revoked_agent(harness: Harness, key: str) -> None:
    """403, and not the response that is stored for it."""
    agent = harness.register("cleo")
    token = harness.log_in(agent)
    first = harness.post("/api/stories", story(key), token=token, key=key)
    harness.revoke(agent)
    refused = harness.post("/api/stories", story(key), token=token, key=key)
    assert (refused.status_code, replayed(refused)) == (403, False)
    assert first.text not in refused.text
    login = harness.post("/api/auth/token", {"agent": agent.agent, "secret": agent.secret})
    assert login.status_code == 403


def test_a_refreshed_token(harness: Harness, key: str) -> None:
    """A replay: the owner of the key is the agent, whichever token it has."""
    agent = harness.register("dan")
    first, second = (
        harness.post("/api/stories", story(key), token=harness.log_in(agent), key=key) for _ in range(2)
    )
    assert (first.status_code, second.content, replayed(second)) == (201, first.content, True)
    assert harness.rows(Story, key) == 1


def test_two_agents_with_one_key(harness: Harness, key: str) -> None:
    """Another agent's key is another key."""
    responses = [
        harness.post("/api/stories", story(key), token=harness.log_in(harness.register(name)), key=key)
        for name in ("eve", "finn")
    ]
    assert [(response.status_code, replayed(response)) for response in responses] == [(201, False)] * 2
    assert harness.rows(Story, key) == 2


def test_a_body_that_is_corrected(harness: Harness, key: str) -> None:
    """What validation refuses uses no key up; what has run is not run again for another body."""
    token = harness.log_in(harness.register("gwen"))
    assert harness.post("/api/stories", {"intent": key}, token=token, key=key).status_code == 422
    assert harness.records(key) == 0
    right = harness.post("/api/stories", story(key), token=token, key=key)
    assert (right.status_code, replayed(right)) == (201, False)
    other = harness.post("/api/stories", {"intent": key, "title": "another"}, token=token, key=key)
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert harness.rows(Story, key) == 1


def test_registration(harness: Harness, key: str) -> None:
    """Without a user: a key that cannot be guessed registers one agent, and gives its secret again."""
    document = {"name": "hugo", "intent": key}
    first, second = (harness.post("/api/auth/agent", document, key=key) for _ in range(2))
    assert (first.status_code, second.content, replayed(second)) == (201, first.content, True)
    assert harness.rows(Agent, key) == 1
    short = harness.post("/api/auth/agent", document, key="x" * 15)
    assert (short.status_code, short.json()["code"]) == (400, "key-invalid")
    assert harness.rows(Agent, key) == 1
    assert harness.post("/api/auth/agent", document, key="x" * 16).status_code == 201


def test_in_progress(harness: Harness, key: str) -> None:
    """409 says in which words, and when to ask again; the client that does so gets the response."""
    agent = harness.register("iris")
    token = harness.log_in(agent)
    harness.hold_next()
    with ThreadPoolExecutor(2) as threads, QuickClient(harness.url, agent) as client:
        first = threads.submit(harness.post, "/api/stories", story(key), token=token, key=key)
        harness.wait_until_held()
        busy = harness.post("/api/stories", story(key), token=token, key=key)
        assert (busy.status_code, busy.json()["detail"]) == (409, "Request is being processed")
        assert (busy.headers["Retry-After"], busy.headers["X-Should-Retry"]) == ("1", "true")
        patient = threads.submit(client.send, "/api/stories", story(key), key)
        harness.release()
        assert (first.result().status_code, replayed(first.result())) == (201, False)
        assert (patient.result().content, replayed(patient.result())) == (first.result().content, True)
    assert harness.rows(Story, key) == 1


def test_a_redeploy_between_heartbeats(harness: Harness) -> None:
    """Every agent retries after it: one heartbeat had been stored, the other was killed midway; each is
    there once.  So is that of an agent that was restarted without a memory of it."""
    due = "2026-01-01T04:00:00+00:00"
    stored, midway = harness.register("jon"), harness.register("kira")
    with (
        Proxy(harness.platform.port, lose=1, repeat=0) as gateway,
        QuickClient(gateway.url, stored) as jon,
        QuickClient(gateway.url, midway) as kira,
        ThreadPoolExecutor(2) as threads,
    ):
        # The gateway destroys logins, too: both log in before.
        gateway.lose = 0
        for client, name in ((jon, "jon"), (kira, "kira")):
            assert client.heartbeat("2026-01-01T00:00:00+00:00", f"{name} at 0").status_code == 201
        gateway.lose = 1
        jons = threads.submit(jon.heartbeat, due, "jon at 4")
        wait_until(lambda: gateway.destroyed() > 0)
        harness.hold_next()
        kiras = threads.submit(kira.heartbeat, due, "kira at 4")
        harness.wait_until_held()
        harness.platform.kill()
        harness.release()
        gateway.lose = 0
        harness.platform.start()
        gateway.upstream = harness.platform.port
        assert (jons.result().status_code, replayed(jons.result())) == (201, True)
        assert (kiras.result().status_code, replayed(kiras.result())) == (201, False)
    with AgentClient(harness.url, stored) as restarted:
        again = restarted.heartbeat(due, "jon at 4")
    assert (again.content, replayed(again)) == (jons.result().content, True)
    assert [harness.rows(Heartbeat, f"{name} at {hour}") for name in ("jon", "kira") for hour in (0, 4)] == [
        1
    ] * 4


def test_the_page_for_agents(harness: Harness) -> None:
    """`GET /idempotency` lists the routes that take a key, and says what registration does differently."""
    page = harness.http.get(f"{harness.url}/idempotency", headers={"Accept": "application/json"})
    document = json.loads(page.text)
    assert document["key"]["header"] == "X-Idempotency-Key"
    routes = {route["path"]: route for route in document["routes"]}
    assert set(routes) == {
        "/api/auth/agent",
        "/api/dwellers/{dweller}/act",
        "/api/dwellers/{dweller}/heartbeat",
        "/api/stories",
        "/api/proposals",
        "/api/review/{kind}/{number}/feedback",
    }
    assert "16 characters" in routes["/api/auth/agent"]["differs"]["key"]["public"]
    assert routes["/api/auth/agent"]["differs"]["retention"]["seconds"] == 3600
