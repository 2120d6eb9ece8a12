"""Callbacks on every store, by its own clock: receipts, payloads that wait for a worker, who handles them.

What is decided about an event is tried in `test_handling.py` and `test_worker.py`, on a clock that is set by
hand.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Thread

import pytest

from retrysafe import Guard, current
from retrysafe.callbacks import (
    AlreadyHandled,
    InFlight,
    KeyReused,
    Receipts,
    Retries,
    receipts,
)
from retrysafe.callbacks.worker import Worker
from retrysafe.stores.admin import Note, Query
from retrysafe.testing.adapters.client import until
from tests.any_store import STORES
from tests.callbacks.test_worker import kill_in_handler

EVENT = {"run_id": "run-7", "callback_id": "c-1", "status": "success", "result_uri": "file:///7"}
CROWD = 24

pytestmark = pytest.mark.parametrize("address", STORES, indirect=True)

SOON = Retries(first=0.01, longest=0.05)

Found = Receipts[dict[str, str]]


@pytest.fixture
def guard(address: str) -> Iterator[Guard]:
    guard = Guard(address, profile="job-callbacks")
    yield guard
    guard.close()


def test_an_event_is_handled_once(guard: Guard) -> None:
    """Of many deliveries at the same moment one is handled; the others are refused, and duplicates later."""
    found = receipts(guard, source="jobs")
    handled: list[str] = []
    start = Barrier(CROWD)

    def deliver(_: int) -> str:
        start.wait()
        try:
            with found.handling(EVENT) as handling:
                handled.append(str(handling.id))
        except (AlreadyHandled, InFlight) as refused:
            return type(refused).__name__
        return "handled"

    with ThreadPoolExecutor(CROWD) as pool:
        ends = Counter(pool.map(deliver, range(CROWD)))
    assert ends["handled"] == len(handled) == 1
    assert set(ends) <= {"handled", "AlreadyHandled", "InFlight"}
    with pytest.raises(AlreadyHandled) as again, found.handling(EVENT):
        raise AssertionError("it was handled")
    receipt = again.value.receipt
    assert (receipt.id, receipt.source, receipt.subject) == ("c-1", "jobs", "run-7")
    assert (receipt.status, receipt.result_uri) == ("success", "file:///7")
    with pytest.raises(KeyReused), found.handling({**EVENT, "status": "failed"}):
        raise AssertionError("another payload under the same id")


def test_what_failed_is_handled_again(guard: Guard) -> None:
    """By the next delivery; and what was said of the failure is replaced by what came of it."""
    found = receipts(guard, source="jobs")

    def fail() -> None:
        raise ConnectionError("the bucket is gone: ünïcode 🙂")

    with pytest.raises(ConnectionError), found.handling(EVENT):
        fail()
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.details["error"]) == (
        "failed",
        "ConnectionError: the bucket is gone: ünïcode 🙂",
    )
    with found.handling(EVENT) as handling:
        assert handling.attempt == 2
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.status, "error" in receipt.details) == ("completed", "success", False)


def test_an_inbox(guard: Guard) -> None:
    """A payload waits, is listed as waiting, and is handled as it came: once, by a worker."""
    found = receipts(guard, source="jobs", inbox=True)
    event = {**EVENT, "note": "é\u0301 🙂 " + "x" * 70_000}
    handled: list[dict[str, str]] = []

    @found.handler
    def handle(event: dict[str, str]) -> None:
        handled.append(event)

    assert found.handle(event) == (False, True, None)
    assert found.handle(event).duplicate
    with closing(guard.store.open_admin()) as admin:
        [waiting] = admin.list(Query(standings=frozenset({"waiting"})))
        assert (waiting.record.action, waiting.record.target) == ("jobs", "run-7")
        assert waiting.payload is not None
        assert waiting.payload > 70_000
        assert [due.record.id for due in admin.due("jobs")] == [waiting.record.id]
        assert list(admin.due("other")) == []
    worker = _worked(found)
    assert (worker.handled, handled) == (1, [event])
    assert _worked(found).handled == 0
    guard.runtime.leases.close()  # which has the number of deliveries written
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.deliveries) == ("completed", 2)


def test_what_fails_is_tried_again_until_it_is_given_up(guard: Guard) -> None:
    """By workers, after a pause by the store's clock; then an operator has it handled once more."""
    found = receipts(guard, source="jobs", inbox=True, retries=SOON._replace(attempts=3))
    attempts: list[int] = []
    broken = [True]

    @found.handler
    def handle(event: dict[str, str]) -> None:
        attempts.append(current().number)
        if broken:
            raise ConnectionError("the bucket is gone")

    found.handle(EVENT)

    def given_up() -> bool:
        _worked(found)
        return len(attempts) == 3

    until(given_up)
    assert _worked(found).failed == 0
    with closing(guard.store.open_admin()) as admin:
        [listed] = admin.list(Query(standings=frozenset({"failed"})))
        assert (listed.due_at, listed.record.attempt) == (None, attempts[-1])
        broken.clear()
        assert admin.redrive(listed.record, Note("ada", "it is back"))
        assert _worked(found).handled == 1
        assert [entry.act for entry in admin.audit() if entry.act != "arm"] == ["redrive"]


def test_two_workers_share_the_work(guard: Guard) -> None:
    """Each event is handled by one of them."""
    found = receipts(guard, source="jobs", inbox=True)
    handled: list[str] = []

    @found.handler
    def handle(event: dict[str, str]) -> None:
        handled.append(event["callback_id"])

    expected = [f"c-{number:02}" for number in range(CROWD)]
    for id in expected:
        found.handle({**EVENT, "callback_id": id})
    workers = [Worker(found, concurrency=2) for _ in range(2)]
    threads = [Thread(target=worker.run, kwargs={"until_idle": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(handled) == expected
    assert sum(worker.handled for worker in workers) == CROWD


def test_a_worker_that_died(guard: Guard) -> None:
    """Its lease ends, by the store's clock, and another one handles the event; none does before that."""
    found = receipts(guard, source="jobs", inbox=True, lease=1.0)
    handled: list[int] = []

    @found.handler
    def handle(event: dict[str, str]) -> None:
        handled.append(current().number)

    found.handle(EVENT)
    kill_in_handler(found)
    assert _worked(found).handled == 0
    until(lambda: _worked(found).handled == 1)
    assert handled == [3]


def test_coroutine_functions(guard: Guard) -> None:
    """On an event loop, stored and handled several at a time."""
    found = receipts(guard, source="jobs", inbox=True)
    together = asyncio.Event()
    running: list[str] = []

    @found.handler
    async def handle(event: dict[str, str]) -> None:
        running.append(event["callback_id"])
        if len(running) == 3:
            together.set()
        await together.wait()

    async def main() -> Worker:
        for number in range(3):
            await found.handle_async({**EVENT, "callback_id": f"c-{number}"})
        worker = Worker(found, concurrency=3)
        await worker.run_async(until_idle=True)
        return worker

    assert asyncio.run(main()).handled == 3
    assert sorted(running) == ["c-0", "c-1", "c-2"]


def _worked(found: Found) -> Worker:
    worker = Worker(found)
    worker.run(until_idle=True)
    return worker
