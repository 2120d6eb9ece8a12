"""What clients, jobs and operators see, while nothing goes wrong and while processes are killed."""

import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from examples.services import PATIENCE
from examples.validation_service.environment import demo_token
from examples.validation_service.jobs.checks import Check
from examples.validation_service.jobs.job_folder import JobFolder
from examples.validation_service.tests.conftest import TOKEN, Gateway, Harness, running, wait_until

FAULTY = [1.0, None, 3.0, 120.0, 7.0, 7.0, 7.0, 7.0]
"""An error and a warning in the range; one that is stuck, and two steep changes."""


COPIES = 50


@pytest.fixture
def own_harness(database: str, tmp_path: Path) -> Iterator[Harness]:
    """A service of the test's own."""
    with Gateway() as gateway, running(database, tmp_path, gateway) as harness:
        yield harness


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def test_a_run(harness: Harness, key: str) -> None:
    """Two callbacks, whose findings, status and counts are those of the run; a retry is a replay."""
    submitted = harness.submit(FAULTY, key)
    assert (submitted.status_code, submitted.json()["status"]) == (202, "running")
    run = submitted.json()["id"]
    ended = harness.client.wait(run)
    assert (ended["status"], ended["awaited"], ended["errors"], ended["warnings"]) == ("failed", 0, 2, 3)
    assert [(one["check"], one["position"], one["rule"]) for one in ended["findings"]] == [
        ("continuity", 3, "too steep"),
        ("continuity", 4, "too steep"),
        ("continuity", 7, "stuck"),
        ("range", 1, "missing"),
        ("range", 3, "too high"),
    ]
    assert {one.status for one in harness.received(run)} == {"failed"}
    again = harness.submit(FAULTY, key)
    assert (again.content, again.headers["Idempotent-Replayed"]) == (submitted.content, "true")
    assert harness.submit([1.0], key).json()["code"] == "key-reused"
    harness.wait_until_quiet()
    assert harness.wrong() == []


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
def test_50_copies_of_one_start(own_harness: Harness, key: str) -> None:
    """One run, one quota unit: each copy gets its response, or 409 while it is made."""
    harness = own_harness
    start = harness.start
    document, together = {"name": key, "readings": FAULTY}, Barrier(COPIES)

    def send(_: int) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key}
        with httpx.Client(
            base_url=f"{harness.service.url}/api/", headers=headers, timeout=PATIENCE
        ) as client:
            together.wait()
            return client.post(start, json=document)

    with ThreadPoolExecutor(COPIES) as clients:
        responses = list(clients.map(send, range(COPIES)))
    assert {response.status_code for response in responses} <= {202, 409}
    started = [response for response in responses if response.status_code == 202]
    assert len({response.content for response in started}) == 1
    assert sum("Idempotent-Replayed" not in response.headers for response in started) == 1
    assert {one.json()["code"] for one in responses if one.status_code == 409} <= {"in-flight"}
    assert harness.submit(FAULTY, key).content == started[0].content
    assert harness.used() == 1
    assert harness.client.wait(started[0].json()["id"])["errors"] == 2
    harness.wait_until_quiet()
    assert harness.wrong() == []


def test_a_run_without_findings(harness: Harness) -> None:
    ended = harness.finished([20.0, 21.5, 20.5])
    assert (ended["status"], ended["errors"], ended["findings"]) == ("passed", 0, [])
    assert {one.status for one in harness.received(ended["id"])} == {"passed"}


def test_requests_that_are_refused(harness: Harness, key: str) -> None:
    """They use no key up."""
    document = {"name": "one", "readings": [1.0]}
    headers = {"Idempotency-Key": key}
    invalid = harness.http.post(harness.start, json={"name": "one", "readings": []}, headers=headers)
    assert invalid.status_code == 400
    unknown = harness.http.post(
        harness.start, json=document, headers={**headers, "Authorization": "Bearer x"}
    )
    assert unknown.status_code == 401
    south = {"Authorization": f"Bearer {demo_token('south')}"}
    assert harness.http.post(harness.start, json=document, headers={**headers, **south}).status_code == 404
    assert harness.submit([1.0], key).status_code == 202
    run = harness.finished([1.0])["id"]
    assert harness.http.get(f"runs/{run}/", headers=south).status_code == 404


def test_a_request_without_a_key(harness: Harness) -> None:
    """It is served, and logged, because a key is to be required one day."""
    document = {"name": str(uuid.uuid4()), "readings": [1.0]}
    assert harness.http.post(harness.start, json=document).status_code == 202
    assert "a request without a key was served" in harness.service.log


def test_a_callback_that_comes_again(harness: Harness) -> None:
    """It is acknowledged and not handled; under its id, another payload is refused."""
    run = harness.finished(FAULTY)["id"]
    again = harness.call_back(run, Check.RANGE)
    assert again.status_code == 200
    assert again.json() == {
        "message": "Callback already processed",
        "idempotent_replayed": True,
        "original_received_at": harness.receipt(run, Check.RANGE).received_at.isoformat(),
    }
    wait_until(lambda: harness.receipt(run, Check.RANGE).deliveries == 2)
    changed = harness.call_back(run, Check.RANGE, status="passed")
    assert (changed.status_code, changed.json()["code"]) == (422, "key-reused")
    assert harness.wrong() == []


def test_callbacks_that_are_refused(harness: Harness, key: str) -> None:
    """An unknown run is 404, what is not valid is 422; neither leaves a receipt."""
    run = harness.finished(FAULTY)["id"]
    unknown = harness.call_back(run, Check.RANGE, callback_id=key, run_id="none")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "subject-unknown")
    for changed in (
        {"status": "done"},
        {"check": "smell"},
        {"run_id": 7},
    ):
        invalid = harness.call_back(run, Check.RANGE, **{"callback_id": key, **changed})
        assert invalid.status_code == 422, changed
    foreign = harness.call_back(run, Check.RANGE, callback_id=key, result_uri="file:///etc/passwd")
    assert foreign.status_code == 400
    assert harness.receipts.find(key) is None
    assert harness.wrong() == []


def test_a_start_that_fails(harness: Harness, key: str) -> None:
    """The view raises after the run was counted: all of it is rolled back, and the retry runs."""
    used, trap = harness.used(), harness.trap("fail before commit")
    assert harness.submit(FAULTY, key).status_code == 500
    assert not trap.exists()
    assert harness.used() == used
    retried = harness.submit(FAULTY, key)
    assert (retried.status_code, "Idempotent-Replayed" in retried.headers) == (202, False)
    assert harness.used() == used + 1


def test_a_worker_that_dies_before_the_commit(harness: Harness, key: str) -> None:
    """Nothing of the run is left; the retry runs once, when the lease of the dead worker is over."""
    used, trap = harness.used(), harness.trap("die before commit")
    with pytest.raises(httpx.TransportError):
        harness.submit(FAULTY, key)
    assert not trap.exists()
    assert harness.used() == used
    wait_until(lambda: harness.submit(FAULTY, key).status_code == 202)
    assert harness.used() == used + 1
    assert harness.client.wait(harness.submit(FAULTY, key).json()["id"])["errors"] == 2
    assert harness.wrong() == []


def test_a_worker_that_dies_before_the_launch(harness: Harness, key: str) -> None:
    """The run is committed, so its jobs are launched by another worker, and the retry is a replay."""
    trap = harness.trap("die after commit")
    with pytest.raises(httpx.TransportError):
        harness.submit(FAULTY, key)
    assert not trap.exists()
    retried = harness.submit(FAULTY, key)
    assert retried.headers["Idempotent-Replayed"] == "true"
    assert harness.client.wait(retried.json()["id"])["errors"] == 2
    assert harness.wrong() == []


@pytest.mark.parametrize("check", Check)
def test_a_job_that_is_killed(harness: Harness, gateway: Gateway, check: Check) -> None:
    """By either launcher it is started again, and goes on: what was written is sent, under the same id."""
    service = harness.service
    with gateway.doing("lose the request"):
        run = harness.client.submit(str(uuid.uuid4()), FAULTY)
        name = f"{run}-{check}"
        folder = JobFolder(service.files / "jobs" / name)
        wait_until(lambda: name in service.jobs() and len(list(folder.callbacks.glob("*.json"))) == 1)
        result, [callback] = folder.result.stat(), folder.callbacks.glob("*.json")
        sent, first = callback.read_bytes(), service.jobs()[name]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: service.jobs().get(name, first) != first)
        assert callback.read_bytes() == sent
    assert harness.client.wait(run)["errors"] == 2
    assert folder.result.stat() == result
    assert harness.wrong() == []


@pytest.mark.parametrize("check", Check)
def test_a_job_that_is_killed_too_late(harness: Harness, gateway: Gateway, check: Check) -> None:
    """Its callback was handled, which it does not know.  What it sends when it goes on is a duplicate."""
    service = harness.service
    with gateway.doing("lose the response"):
        run = harness.client.submit(str(uuid.uuid4()), FAULTY)
        assert harness.client.wait(run)["errors"] == 2
        wait_until(lambda: harness.receipt(run, check).deliveries > 1)
        name = f"{run}-{check}"
        first = service.jobs()[name]
        os.kill(first, signal.SIGKILL)
        if check is Check.CONTINUITY:  # the service knows what it has handled, the runner does not
            wait_until(lambda: service.jobs().get(name, first) != first)
    harness.wait_until_quiet()
    assert harness.wrong() == []


def test_a_runner_that_is_killed(harness: Harness, gateway: Gateway) -> None:
    """The next one goes on with the spool, and leaves the job alone that has outlived it."""
    service = harness.service
    with gateway.doing("lose the request"):
        run = harness.client.submit(str(uuid.uuid4()), FAULTY)
        name = f"{run}-{Check.CONTINUITY}"
        wait_until(lambda: name in service.jobs())
        job, runner = service.jobs()[name], service.runner()
        assert service.kill_runner()
        wait_until(lambda: service.runner() not in (runner, None))
        assert service.jobs()[name] == job
    assert harness.client.wait(run)["errors"] == 2
    harness.wait_until_quiet()
    assert harness.wrong() == []


def test_a_job_that_gives_up(harness: Harness, gateway: Gateway) -> None:
    """Its callback is refused for good: it is not started again until an operator has looked into it."""
    service = harness.service
    with gateway.doing("refuse"):
        run = harness.client.submit(str(uuid.uuid4()), FAULTY)
        folders = [JobFolder(service.files / "jobs" / f"{run}-{check}") for check in Check]
        wait_until(lambda: all(folder.given_up.exists() for folder in folders))
        harness.wait_until_quiet()
    assert "410" in folders[0].given_up.read_text()
    assert any("status, awaited, errors and warnings" in text for text in harness.wrong())
    for folder in folders:
        folder.given_up.unlink()
    assert harness.client.wait(run)["errors"] == 2
    harness.wait_until_quiet()
    assert harness.wrong() == []
