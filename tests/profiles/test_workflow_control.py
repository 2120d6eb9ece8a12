"""The profile `workflow-control` at the request door, sentence by sentence of its specification.

What it says of functions is in `tests/operations/dbos`, with real workflows.
"""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe import ConfigurationError, Guard, NotDone, scopes
from retrysafe.policy import DAY
from retrysafe.stores.sql.sqlite import SQLiteStore
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call, Held, during

CANCEL = "/workflows/w-1/cancel"
TTL = "IDEMPOTENCY_TTL_DAYS"
INTERVAL = "IDEMPOTENCY_CLEANUP_INTERVAL_SECONDS"


def test_keys(serve: Serve) -> None:
    """004-6, 004-7, 004-8: 200 bytes at most, none of them white space around the key, else 400."""
    service = serve("workflow-control", required=True)
    assert service.post(CANCEL, key="k" * 200).status == 201
    assert service.post(CANCEL, key="  " + "k" * 200 + "\t").replayed
    for key in ("", "   ", '""', "k" * 201, None):
        reply = service.post(CANCEL, key=key)
        assert (reply.status, reply.code) == (400, "key-missing" if key is None else "key-invalid")
    assert len(service.runs) == 1


def test_in_progress(serve: Serve) -> None:
    """004-13, 004-15, 004-16: reserved first, 409 meanwhile, and then what was stored."""
    held = Held()
    service = serve("workflow-control", held)
    first, meanwhile, after = during(service, held, "k", path=CANCEL)
    assert (first.status, meanwhile.status, after.status) == (201, 409, 201)
    assert (meanwhile.code, after.body, len(service.runs)) == ("in-flight", first.body, 1)


def test_a_failure(serve: Serve) -> None:
    """004-12, 004-14, 004-17: stored, and then 409 that says how the first one failed."""

    async def unavailable(call: Call) -> Answer:
        return Answer(500, b'{"error": "the queue is full"}')

    service = serve("workflow-control", unavailable)
    assert service.post(CANCEL, key="k").status == 500
    again = service.post(CANCEL, key="k")
    assert (again.status, again.code, len(service.runs)) == (409, "previously-failed", 1)
    assert again.document["previous"]["status"] == 500
    assert again.header("X-Should-Retry") == "false"


def test_another_action_or_workflow(serve: Serve) -> None:
    """004-18, 004-28: 409, and the first outcome is still there."""
    service = serve("workflow-control")
    service.post(CANCEL, key="k")
    for path in ("/workflows/w-1/resume", "/workflows/w-2/cancel"):
        reply = service.post(path, key="k")
        assert (reply.status, reply.code) == (409, "key-reused")
    assert service.post(CANCEL, key="k").replayed
    assert len(service.runs) == 1


def test_the_word_for_a_completed_record(serve: Serve) -> None:
    """004-11: what is published calls it `succeeded`."""
    service = serve("workflow-control")
    said = service.request("GET", "/idempotency", headers=[("Accept", "application/json")])
    assert list(said.document["states"]) == ["in_progress", "succeeded", "failed"]
    assert b"completed" not in said.body


def test_seven_days_from_the_last_update(serve: Serve) -> None:
    """004-21, 004-22: a record that was completed three days after it was made lives seven from then on."""
    held = Held()
    service = serve("workflow-control", held, lease="4d")

    async def slow() -> None:
        running = asyncio.create_task(service.asked(path=CANCEL, key="k"))
        await held.begun.wait()
        service.clock.now += 3 * DAY
        held.end.set()
        await running

    service.run(slow())
    service.clock.now += 7 * DAY - 1
    assert service.post(CANCEL, key="k").replayed
    service.clock.now += 1
    assert not service.post(CANCEL, key="k").replayed
    assert len(service.runs) == 2


def test_a_failure_known_not_to_have_happened(serve: Serve) -> None:
    """The original stored it, and the key was lost for a week; here it is as good as new."""

    async def refuses_once(call: Call) -> Answer:
        if call.number == 1:
            raise NotDone("the queue is full")
        return Answer(201, b"{}")

    service = serve("workflow-control", refuses_once)
    assert [service.post(CANCEL, key="k").status for _ in range(2)] == [503, 201]


def test_operators_set_days_and_seconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """004-21, 004-23, 004-24: `ttl_days` and `cleanup_interval_seconds` of a table, where operators look.

    That processes take turns with one table, at this interval, is in `tests/stores/test_cleanup.py`.
    """

    def seconds(store: str | SQLiteStore, profile: str = "workflow-control") -> tuple[float, float]:
        with closing(Guard(store, scope=scopes.user, profile=profile)) as guard:
            return guard.rules.policy.retention, guard.store._cleanup._interval  # type: ignore[attr-defined]  # of SQLite

    url = f"sqlite:///{tmp_path}/keys.db"
    assert seconds(url) == (7 * DAY, 300)
    monkeypatch.setenv(TTL, "0.5")
    monkeypatch.setenv(INTERVAL, " 60 ")
    assert seconds(url) == (DAY / 2, 60)
    assert seconds(SQLiteStore(tmp_path / "keys.db", cleanup_interval="9s")) == (DAY / 2, 9)
    assert seconds(url, "agents") == (DAY, 5)


@pytest.mark.parametrize(("name", "unit"), [(TTL, "days"), (INTERVAL, "seconds")])
@pytest.mark.parametrize("text", ["", "7d", "0", "-1", "nan", "1e3"])
def test_a_wrong_value_in_the_environment(
    name: str, unit: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable, what was found and what was expected."""
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as raised:
        Guard("memory:", scope=scopes.user, profile="workflow-control")
    for part in (name, repr(text), f"a number of {unit} greater than zero", "workflow-control"):
        assert part in str(raised.value)
