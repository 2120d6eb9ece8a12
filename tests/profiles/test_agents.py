"""The profile `agents`, sentence by sentence; the numbers are those of its specification's sentences."""

import asyncio
import re
import sqlite3

import pytest

from retrysafe import scopes
from retrysafe.stores.admin import Query
from tests.cli.terminal import run
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


# --- what agents are told


@pytest.fixture(scope="module")
def skill() -> str:
    """What `retrysafe skill --profile agents` prints."""
    done = run("skill", "--profile", "agents", "--url", "https://agents.test")
    assert (done.code, done.err) == (0, "")
    return done.out


@pytest.mark.parametrize(
    "said",
    [
        # "Include X-Idempotency-Key: <uuid> on all POST requests."
        "send it in the header `X-Idempotency-Key` with the POST, PUT or PATCH request for it",
        # "Generate a new UUID for each unique action."
        "Make one key, such as a UUID, for each action that you intend",
        "Use a new key for a new intent, and for nothing else",
        # "Reuse the same UUID when retrying a failed request."
        "If no response arrives, send exactly the same request again, with the same key",
        # "This prevents duplicate actions when retrying after timeouts or 502 errors."
        "While its key is stored, a request takes effect at most once.",
        "| **None, or a 5xx without `X-Should-Retry`** | It is not known whether the request was executed. "
        "| Send the same request again, with the same key. |",
    ],
)
def test_skill(skill: str, said: str) -> None:
    """002-21: each sentence of the original's `Skill.md` is in ours, and what it leaves out besides."""
    assert said in skill


# What must be in it, in this order; `…` stands for any text.
GOLDEN = """---
name: safe-retries
description: "…https://agents.test…POST, PUT, PATCH…timed out or failed."
---

# Retrying safely
…
KEY=$(…)  # once; each retry has the same
curl -X POST https://agents.test/api/PATH \\
  -H "X-Idempotency-Key: $KEY" \\
…
A retry while the first request runs gets the problem `in-flight`, 409 with `Retry-After`.
…
- **Required**: no
…
- **Retention**: Responses are stored for 24 hours from the first request. After that, the same key is …
…
| **401, 403, 408, 413, 425, 429, or 503 with `Retry-After`** | Nothing was done…with the same key. |
| **Any other 2xx, 3xx or 4xx** | …`Idempotent-Replayed: true`. | Take it, whether it is a replay or not.… |
| **Any other 5xx** | …what it did is not known.…gets the same response. | …`X-Should-Retry: true`… |
…
| 400 | `key-invalid` | …
| 400 | `principal-required` | …
| 409 | `in-flight` | …“Request is being processed” | Wait as long as `Retry-After` says…with the same key. |
| 409 | `outcome-unknown` | …It is not executed again. | Check the resource, or ask the operator.… |
| 413 | `body-too-large` | …
| 422 | `key-reused` | … | Use a new key for a new request. |
| 500 | `handler-failed` | …
| 503 | `not-done` | …
| 503 | `store-unavailable` | …
| 503 | `draining` | …
| `X-Should-Retry` | true or false, …
…
These routes take keys, and no others.
…
| POST, PUT, PATCH | `/api/*` | optional | nothing |

This is published at https://agents.test/idempotency, as text/html, text/markdown and application/json.
"""


def test_the_whole_skill(skill: str) -> None:
    """002-21: every part that an agent needs, in its order; DELETE takes no keys here."""
    pattern = re.escape(GOLDEN).replace("…", ".*?")
    assert re.fullmatch(pattern, skill, re.DOTALL)
    assert "DELETE" not in skill


def test_a_service_hands_out_its_skill(serve: Serve, skill: str) -> None:
    """002-21: the same text, by the address that agents know already; without the head of a file."""
    service = serve("agents", routes={"/api/auth/agent": {"scope": scopes.public()}})
    reply = service.request("GET", "/idempotency", headers=[("Accept", "text/markdown")])
    text = reply.body.decode()
    assert reply.header("Content-Type") == "text/markdown; charset=utf-8"
    # 002-20: registration has no user, and says what that means for its keys.
    assert "`/api/auth/agent` | optional | At least 16 characters that cannot be guessed." in text
    ours = skill.partition("\n# ")[2].replace("https://agents.test", "http://shop.test")
    for section in ("What is promised", "The key", "Headers of responses"):
        assert _section(ours, section) == _section(text, section) != ""


def _section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]
