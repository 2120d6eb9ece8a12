"""Payloads that are stored, and the workers that handle them: none is lost, and none is handled twice."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from retrysafe import Guard, NotDone, current, sqlite3
from retrysafe.callbacks import (
    AlreadyHandled,
    InFlight,
    KeyReused,
    Payload,
    PayloadRefused,
    Receipts,
    Retries,
    Unavailable,
    receipts,
)
from retrysafe.callbacks.worker import Worker
from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.admin import Note, Query
from tests.callbacks.conftest import Clock

EVENT = {"run_id": "run-7", "callback_id": "c-1", "status": "success"}


class Handler:
    """Counts what it is given, and fails as often as it is told to."""

    def __init__(self, found: Receipts[dict[str, str]], fails: int = 0) -> None:
        self.handled: list[str] = []
        self.attempts: list[int] = []
        self.fails = fails
        found.handler(self.handle)

    def handle(self, event: dict[str, object]) -> None:
        self.attempts.append(current().number)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the bucket is gone")
        self.handled.append(str(event["callback_id"]))


def work(found: Receipts[dict[str, str]]) -> Worker:
    worker = Worker(found)
    worker.run(until_idle=True)
    return worker


def state(found: Receipts[dict[str, str]], id: str = "c-1") -> tuple[str, str]:
    receipt = found.find(id)
    assert receipt is not None
    return receipt.state, receipt.status


# --- an inbox


def test_an_inbox(guard: Guard) -> None:
    """Stored, acknowledged, and handled by the worker; a second delivery is a duplicate before and after."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    assert found.handle(EVENT) == (False, True, None)
    second = found.handle(EVENT)
    assert (second.duplicate, second.stored) == (True, True)
    assert handler.handled == []
    assert state(found) == ("in_progress", "processing")
    worker = work(found)
    assert (worker.handled, worker.failed, handler.handled) == (1, 0, ["c-1"])
    third = found.handle(EVENT)
    assert (third.duplicate, third.stored) == (True, False)
    assert state(found) == ("completed", "success")
    assert work(found).handled == 0


def test_deliveries_are_those_of_the_sender(guard: Guard) -> None:
    """What a worker does is no delivery."""
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found, fails=1)
    found.handle(EVENT)
    work(found)
    found.handle(EVENT)
    guard.runtime.leases.close()
    receipt = found.find("c-1")
    assert receipt is not None
    assert receipt.deliveries == 2


def test_what_fails_is_tried_again(guard: Guard, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """After a pause that doubles; the log says each time why, and how often it was."""
    found = receipts(guard, source="jobs", inbox=True, retries=Retries(first=8.0))
    handler = Handler(found, fails=3)
    found.handle(EVENT)
    work(found)
    for pause in (16, 32, 64):
        assert state(found) == ("failed", "failed")
        clock.now += pause - 1
        assert work(found).failed == 0
        clock.now += 1
        work(found)
    assert handler.attempts == [2, 3, 4, 5]
    assert handler.handled == ["c-1"]
    assert caplog.text.count("was not handled (attempt") == 3
    assert "ConnectionError: the bucket is gone" in caplog.text


def test_what_fails_too_often_is_listed_as_failed(guard: Guard, clock: Clock) -> None:
    """And not tried any more, until it is delivered again, or an operator says so."""
    found = receipts(guard, source="jobs", inbox=True, retries=Retries(attempts=2))
    handler = Handler(found, fails=3)
    found.handle(EVENT)
    for _ in range(5):
        work(found)
        clock.now += 3600
    assert len(handler.attempts) == 2
    admin = guard.store.open_admin()
    [listed] = admin.list(Query(door="callback", standings=frozenset({"failed"})))
    assert listed.payload
    assert listed.due_at is None
    assert admin.redrive(listed.record, Note("ada", "it is back"))
    work(found)
    assert handler.fails == 0  # and it failed once more, and is not tried again by itself
    clock.now += 3600
    assert work(found).handled == 0
    again = found.handle(EVENT)  # here it comes once more
    assert again == (False, True, None)
    assert work(found).handled == 1
    assert handler.handled == ["c-1"]
    assert [entry.act for entry in admin.audit()] == ["redrive"]


def test_not_done_says_when(guard: Guard, clock: Clock) -> None:
    """`NotDone(retry_after=…)` of a payload that was acknowledged releases nothing, and names the pause."""
    found = receipts(guard, source="jobs", inbox=True)
    told = [NotDone("not yet", retry_after=500.0)]
    handled: list[int] = []

    @found.handler
    def handle(event: dict[str, str]) -> None:
        if told:
            raise told.pop()
        handled.append(current().number)

    found.handle(EVENT)
    work(found)
    clock.now += 499
    assert work(found).handled == 0
    clock.now += 1
    assert work(found).handled == 1
    assert handled == [3]


def test_a_worker_that_died(guard: Guard, clock: Clock) -> None:
    """Its lease ends, and another one handles the event; nobody does before that."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    found.handle(EVENT)
    kill_in_handler(found)
    assert work(found).handled == 0
    clock.now += 31
    assert work(found).handled == 1
    assert handler.attempts == [3]


def test_a_payload_that_kills_its_workers(guard: Guard, clock: Clock) -> None:
    """It does not go on for ever: after as many deaths as attempts it is failed, and says so."""
    found = receipts(guard, source="jobs", inbox=True, retries=Retries(attempts=2))
    handler = Handler(found)
    found.handle(EVENT)
    for _ in range(2):
        kill_in_handler(found)
        clock.now += 31
    worker = work(found)
    assert (worker.handled, worker.failed, handler.attempts) == (0, 1, [])
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.details["error"]) == ("failed", "its workers died")
    clock.now += 3600
    assert work(found).failed == 0


class _Killed(BaseException):
    """As far as a test can die."""


def kill_in_handler(found: Receipts[dict[str, str]]) -> None:
    """A worker dies in the handler: nothing of it is stored any more."""
    function, found.run_handler = found.run_handler, _die
    try:
        with pytest.raises(_Killed):
            Worker(found, concurrency=1).run(until_idle=True)
    finally:
        found.run_handler = function


def _die(event: object) -> None:
    raise _Killed


def test_two_workers_share_the_work(tmp_path: Path) -> None:
    """Each event is handled by one of them."""
    guard = Guard(f"sqlite:///{tmp_path / 'inbox.db'}", profile="job-callbacks")
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    expected = [f"c-{number}" for number in range(40)]
    for id in expected:
        found.handle({**EVENT, "callback_id": id})
    workers = [Worker(found, concurrency=2) for _ in range(2)]
    threads = [Thread(target=worker.run, kwargs={"until_idle": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(handler.handled) == sorted(expected)
    assert sum(worker.handled for worker in workers) == 40
    guard.close()


def test_in_the_database(tmp_path: Path) -> None:
    """What the handler writes and its receipt are one, in a worker as elsewhere."""
    guard = Guard(f"sqlite:///{tmp_path / 'inbox.db'}", profile="job-callbacks", effects="database")
    with sqlite3.connection(guard) as database:
        database.execute("CREATE TABLE findings (run TEXT)")
    found = receipts(guard, source="jobs", inbox=True, retries=Retries(first=0.01, longest=0.01))
    fails = [True, True]

    @found.handler
    def handle(event: dict[str, str]) -> None:
        with sqlite3.connection(guard) as database:
            database.execute("INSERT INTO findings VALUES (?)", (event["run_id"],))
        if fails:
            fails.pop()
            raise RuntimeError("too late")

    found.handle(EVENT)
    worker = Worker(found, poll=0.01)
    while not worker.handled:
        worker.run(until_idle=True)
    with sqlite3.connection(guard) as database:
        assert database.execute("SELECT run FROM findings").fetchall() == [("run-7",)]
    guard.close()


def test_coroutine_functions(guard: Guard) -> None:
    """Are awaited on one loop, several at a time."""
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

    worker = asyncio.run(main())
    assert (worker.handled, sorted(running)) == (3, ["c-0", "c-1", "c-2"])
    with pytest.raises(ConfigurationError, match="run_async"):
        Worker(found).run()


def test_a_worker_is_stopped(guard: Guard) -> None:
    """It ends what it has begun, and takes nothing new."""
    found = receipts(guard, source="jobs", inbox=True)
    entered, leave, handled = Event(), Event(), []

    @found.handler
    def handle(event: dict[str, str]) -> None:
        entered.set()
        assert leave.wait(30)
        handled.append(event["callback_id"])

    for number in range(3):
        found.handle({**EVENT, "callback_id": f"c-{number}"})
    worker = Worker(found, concurrency=1)
    thread = Thread(target=worker.run)
    thread.start()
    assert entered.wait(30)
    worker.stop()
    leave.set()
    thread.join(30)
    assert not thread.is_alive()
    assert len(handled) == worker.handled == 1


def test_the_store_is_down(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and the worker goes on when the store is back."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    found.handle(EVENT)
    outages = [StoreUnavailable("down")] * 3
    open_admin = guard.store.open_admin

    def opened() -> object:
        if outages:
            raise outages.pop()
        return open_admin()

    monkeypatch.setattr(guard.store, "open_admin", opened)
    worker = Worker(found, poll=0.001)
    worker.run(until_idle=True)
    assert handler.handled == ["c-1"]
    assert caplog.text.count("what is due cannot be read") == 1


def test_what_cannot_be_stored_is_not_acknowledged(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)

    def down(*_: object) -> None:
        raise StoreUnavailable("down")

    with monkeypatch.context() as patched:
        patched.setattr(guard.store, "reserve", down)
        with pytest.raises(Unavailable):
            found.handle(EVENT)
    assert found.handle(EVENT).stored


def test_another_payload_is_refused(guard: Guard) -> None:
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)
    found.handle(EVENT)
    with pytest.raises(KeyReused):
        found.handle({**EVENT, "status": "failed"})


def test_events_without_ids(guard: Guard) -> None:
    """Each delivery is an event of its own, as always."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    for _ in range(2):
        assert found.handle({"run_id": "run-7", "callback_id": "", "status": "success"}).stored
    assert work(found).handled == 2
    assert handler.handled == ["", ""]


def test_a_payload_that_is_too_large(guard: Guard) -> None:
    found = receipts(guard, source="jobs", inbox=True, max_payload=200)
    Handler(found)
    with pytest.raises(PayloadRefused, match="larger than 200 bytes"):
        found.handle({**EVENT, "note": "x" * 200})
    assert found.find("c-1") is None


def test_what_waits_does_not_expire(guard: Guard, clock: Clock) -> None:
    """No worker ran for a year: what was acknowledged is still handled."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    found.handle(EVENT)
    clock.now += 365 * 86400
    guard.store.purge()
    assert work(found).handled == 1
    assert handler.handled == ["c-1"]


@pytest.mark.parametrize("effects", ["outside", "repeatable"])
def test_effects_outside_are_tried_once(guard: Guard, clock: Clock, effects: str) -> None:
    """What was begun and may have been done is not done again by itself: an operator says so."""
    found = receipts(guard, source="jobs", inbox=True, effects=effects)  # type: ignore[arg-type]  # one of both
    handler = Handler(found)
    found.handle(EVENT)
    assert found.handle(EVENT).stored, "it waits, and its outcome is not unknown: it was never begun"
    kill_in_handler(found)
    clock.now += 31
    assert work(found).handled == (0 if effects == "outside" else 1)
    if effects == "outside":
        admin = guard.store.open_admin()
        [held] = admin.list(Query(standings=frozenset({"abandoned"})))
        assert admin.redrive(held.record, Note("ada", "looked: it was not done"))
        assert work(found).handled == 1
    assert handler.handled == ["c-1"]


# --- beside a service that handles events itself


def test_a_failure_is_handled_without_its_sender(guard: Guard, clock: Clock) -> None:
    """`store_payload=True`: the service handles it, and what failed there a worker repeats."""
    found = receipts(guard, source="jobs", store_payload=True)
    handler = Handler(found, fails=1)
    with pytest.raises(ConnectionError):
        found.handle(EVENT)
    assert work(found).handled == 0
    clock.now += 5
    assert work(found).handled == 1
    assert handler.attempts == [1, 2]
    assert found.handle(EVENT).duplicate


def test_its_sender_may_be_faster(guard: Guard, clock: Clock) -> None:
    """A delivery that comes again before the worker's turn is handled at once."""
    found = receipts(guard, source="jobs", store_payload=True)
    handler = Handler(found, fails=1)
    with pytest.raises(ConnectionError):
        found.handle(EVENT)
    assert not found.handle(EVENT).duplicate
    clock.now += 3600
    assert work(found).handled == 0
    assert handler.handled == ["c-1"]


def test_a_death_is_handled_without_its_sender(guard: Guard, clock: Clock) -> None:
    found = receipts(guard, source="jobs", store_payload=True)
    handler = Handler(found)
    with pytest.raises(_Killed), found.handling(EVENT):
        raise _Killed
    with pytest.raises(InFlight), found.handling(EVENT):
        raise AssertionError("its lease lasts")
    assert work(found).handled == 0
    clock.now += 31
    assert work(found).handled == 1
    with pytest.raises(AlreadyHandled), found.handling(EVENT):
        raise AssertionError("it was handled")
    assert handler.handled == ["c-1"]


def test_a_refusal_leaves_no_payload(guard: Guard) -> None:
    """Its sender was told, and nothing was acknowledged."""
    found = receipts(guard, source="jobs", store_payload=True)
    with pytest.raises(NotDone), found.handling(EVENT):
        raise NotDone
    assert found.find("c-1") is None


def test_released_by_an_operator(guard: Guard, clock: Clock) -> None:
    """A worker that saw the payload a moment before does not bring it back."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    found.handle(EVENT)
    admin = guard.store.open_admin()
    [due] = admin.due("jobs")
    assert admin.release(due.record, Note("ada", "it was a test"), settled=True)
    worker = Worker(found)
    worker._handle(due)
    assert handler.handled == []
    assert found.find("c-1") is None


# --- what is stored


def test_payloads_of_several_kinds(guard: Guard) -> None:
    """Models, dataclasses, bytes: each is given to the handler as it was handed in."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", run_id=(str, ...), callback_id=(str, ...), size=(int, 0))
    given = model(run_id="run-7", callback_id="c-1", size=5)
    found = receipts(guard, source="jobs", inbox=True)
    seen: list[object] = []

    def handle(event):  # type: ignore[no-untyped-def]  # annotated below, with a class of this function
        seen.append(event)

    handle.__annotations__ = {"event": model}
    found.handler(handle)
    found.handle(given)
    work(found)
    assert seen == [given]


def test_raw_payloads(guard: Guard) -> None:
    found = receipts(guard, source="jobs", id=lambda event: event.json()["id"], inbox=True)
    seen: list[Payload] = []

    @found.handler
    def handle(event: Payload) -> None:
        seen.append(event)

    given = Payload(b'{"id": "a", "odd": 1.0}\n\x20', {"content-type": "application/json"})
    found.handle(given)
    work(found)
    assert seen == [given]


def test_a_payload_that_the_handler_cannot_read_any_more(guard: Guard, clock: Clock) -> None:
    """It fails, and is handled once the handler can read it again."""
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)
    found.handle(EVENT)
    newer = receipts(guard, source="jobs", inbox=True)
    seen: list[object] = []

    @newer.handler
    def handle(event: list[int]) -> None:
        seen.append(event)

    assert work(newer).failed == 1
    clock.now += 3600
    assert work(found).handled == 1
    assert seen == []


# --- misuse


def test_workers_that_have_nothing_to_do(guard: Guard) -> None:
    without = receipts(guard, source="jobs")
    with pytest.raises(ConfigurationError, match="store no payloads"):
        Worker(without)
    with pytest.raises(ConfigurationError, match="no handler"):
        Worker(receipts(guard, source="jobs", inbox=True))
    with pytest.raises(ConfigurationError, match="expected receipts"):
        Worker(guard)  # type: ignore[arg-type]  # a mistake
    ready = receipts(guard, source="jobs", inbox=True)
    Handler(ready)
    wrongs: list[dict[str, Any]] = [{"concurrency": 0}, {"concurrency": True}, {"poll": 0}, {"poll": "soon"}]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            Worker(ready, **wrong)


def test_handlers_that_a_worker_cannot_call(guard: Guard) -> None:
    """It has the payload alone, and no request."""
    found = receipts(guard, source="jobs", store_payload=True)

    def handle(event: dict[str, str], session: object) -> None: ...

    with pytest.raises(ConfigurationError, match="takes 'session' besides the event"):
        found.handler(handle)
    with pytest.raises(ConfigurationError, match="no handler"):
        found.handle(EVENT)
    Handler(found)
    with pytest.raises(ConfigurationError, match="a handler already"):
        Handler(found)
    with pytest.raises(ConfigurationError, match="an inbox"):
        receipts(guard, source="jobs", inbox=True).handling(EVENT)


def test_logged_with_a_traceback(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found, fails=1)
    found.handle(EVENT)
    with caplog.at_level(logging.ERROR):
        work(found)
    [line] = [record for record in caplog.records if record.name == "retrysafe.worker"]
    assert line.exc_info
    with suppress(AttributeError):
        assert "the bucket is gone" in str(line.exc_info[1])
