"""Payloads that are stored, and the workers that handle them: none is lost, and none is handled twice."""

import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel, Field, field_validator

import retrysafe
from retrysafe import Guard, NotDone, current, sqlite3
from retrysafe._core.model import Claim, Final, Response
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
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreError, StoreUnavailable
from retrysafe.stores.admin import Note, Query
from retrysafe.stores.memory import MemoryStore
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


def test_a_turn_of_a_worker_is_an_event_and_ends(clock: Clock) -> None:
    """Observers are told of it as of the delivery, and its lease is not renewed any longer."""
    ended: list[retrysafe.Event] = []
    claims: list[Claim] = []
    guard = Guard(MemoryStore(clock), profile="job-callbacks", on_event=ended.append)
    found = receipts(guard, source="jobs", inbox=True)

    @found.handler
    def handle(event: dict[str, str]) -> None:
        claims.append(current().claim)

    with closing(guard):
        found.handle(EVENT)
        work(found)
        assert [guard.runtime.leases.drop(claim) for claim in claims] == [None]
    accepted, handled = ended
    assert (accepted.verdict, handled.verdict) == ("accepted", "completed")
    assert (handled.id, handled.scope) == (accepted.id, accepted.scope)
    assert handled.seconds is not None


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


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("how", ["unavailable", "broken", "draining"])
def test_what_cannot_be_begun_is_left_alone_for_a_while(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, how: str
) -> None:
    """What is due can be read and not be claimed, as where a disk is full: it is still due, and is not tried
    thousands of times a second.  Afterwards it is handled."""
    found = receipts(guard, source="jobs", inbox=True)
    handled: list[str] = []
    if kind == "plain":

        @found.handler
        def handle(event: dict[str, str]) -> None:
            handled.append(event["callback_id"])

        found.handle(EVENT)
    else:

        @found.handler
        async def handle_async(event: dict[str, str]) -> None:
            handled.append(event["callback_id"])

        asyncio.run(found.handle_async(EVENT))
    tried: list[object] = []

    def refuse(*arguments: object) -> NoReturn:
        tried.append(arguments)
        raise StoreUnavailable("full") if how == "unavailable" else OSError("broken")

    async def refuse_async(*arguments: object) -> NoReturn:
        refuse(*arguments)

    def is_draining(*arguments: object) -> bool:
        tried.append(arguments)
        return True

    worker = Worker(found, poll=0.01)
    with monkeypatch.context() as patched:
        if how == "draining":
            patched.setattr(type(guard.runtime), "is_draining", is_draining)
        patched.setattr(guard.store, "take_over", refuse)
        patched.setattr(guard.store.aio, "take_over", refuse_async)
        thread = Thread(target=worker.run if kind == "plain" else lambda: asyncio.run(worker.run_async()))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    assert 1 <= len(tried) <= 8, "after 10 milliseconds, 20, 40 and so on"
    assert len(caplog.records) <= 8
    until = time.monotonic() + 30
    while not handled and time.monotonic() < until:
        time.sleep(0.01)
    worker.stop()
    thread.join(30)
    assert (thread.is_alive(), handled) == (False, ["c-1"])


def test_what_is_left_alone_does_not_hide_the_others(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of those that are due longest cannot be begun."""
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    for number in range(20):
        found.handle(EVENT | {"callback_id": f"c-{number}"})
    found.handle(EVENT | {"callback_id": "behind them"})
    take_over = guard.store.take_over

    def refuse(claim: Claim, *others: Any) -> Any:
        if claim.key != "behind them":
            raise StoreUnavailable("full")
        return take_over(claim, *others)

    monkeypatch.setattr(guard.store, "take_over", refuse)
    worker = Worker(found, concurrency=1, poll=30.0)
    thread = Thread(target=worker.run)
    thread.start()
    until = time.monotonic() + 30
    while not handler.handled and time.monotonic() < until:
        time.sleep(0.01)
    worker.stop()
    thread.join(30)
    assert (thread.is_alive(), handler.handled) == (False, ["behind them"])
    assert 17 <= worker.failed <= 20, "it is seen once there is room for it and four others"


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


@pytest.mark.parametrize("broken", ["type", "details"])
def test_code_that_reads_a_payload_and_raises(guard: Guard, clock: Clock, broken: str) -> None:
    """A failed attempt like any other, with its pauses: neither a worker that runs in circles, nor one event
    that is tried for ever."""
    is_broken = False

    class Strict(BaseModel):
        callback_id: str

        @field_validator("callback_id")
        @classmethod
        def look_up(cls, said: str) -> str:
            if is_broken and broken == "type":
                raise KeyError("no such bucket")
            return said

    def details(event: Strict) -> dict[str, object]:
        if is_broken and broken == "details":
            raise KeyError("no such bucket")
        return {"status": "fine"}

    found = receipts(guard, source="jobs", inbox=True, details=details, retries=Retries(attempts=2))
    handled: list[str] = []

    @found.handler
    def handle(event: Strict) -> None:
        handled.append(event.callback_id)

    found.handle(Strict(callback_id="c-1"))
    is_broken = True
    worker = Worker(found)
    thread = Thread(target=worker.run, kwargs={"until_idle": True}, daemon=True)
    thread.start()
    thread.join(10)
    worker.stop()
    assert not thread.is_alive()
    assert (worker.failed, handled) == (1, [])
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.details["error"]) == ("failed", "KeyError: 'no such bucket'")
    is_broken = False
    clock.now += 3600
    assert (work(found).handled, handled) == (1, ["c-1"])


# --- services that were not an inbox


@pytest.mark.parametrize("ended", ["failed", "died", "settled"])
def test_what_was_left_without_a_payload_is_handled(guard: Guard, clock: Clock, ended: str) -> None:
    """Its sender is told that it is stored, so it is: a worker has the payload of this delivery."""
    before = receipts(guard, source="jobs", inbox=ended == "settled")
    if ended == "settled":
        Handler(before)
        before.handle(EVENT)
        with closing(guard.store.open_admin()) as admin:
            [seen] = admin.list(Query())
            assert admin.resolve(seen.record, Final("failed", Response(500)), Note("ada", "not done"))
    else:
        with suppress(_Killed, ConnectionError), before.handling(EVENT):
            raise _Killed if ended == "died" else ConnectionError
    clock.now += 31
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found)
    assert found.handle(EVENT) == (False, True, None)
    assert found.handle(EVENT).stored
    assert (work(found).handled, handler.handled) == (1, ["c-1"])


def test_what_a_service_handles_itself_is_not_accepted(guard: Guard) -> None:
    """Two releases of it run: the one that is no inbox has the only copy of the payload."""
    before, found = receipts(guard, source="jobs"), receipts(guard, source="jobs", inbox=True)
    Handler(found)
    with before.handling(EVENT), pytest.raises(InFlight):
        found.handle(EVENT)
    assert found.handle(EVENT).duplicate


def test_what_waits_is_not_handled_by_a_delivery(guard: Guard, clock: Clock) -> None:
    """Also where the clock of the process that took it is a little ahead."""
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)
    found.handle(EVENT)
    clock.now -= 0.001
    assert found.handle(EVENT).stored


def test_a_delivery_again_does_not_shorten_the_pauses(guard: Guard, clock: Clock) -> None:
    found = receipts(guard, source="jobs", inbox=True)
    handler = Handler(found, fails=1)
    found.handle(EVENT)
    assert work(found).failed == 1
    assert found.handle(EVENT).stored
    assert work(found).handled == 0
    clock.now += 10
    assert (work(found).handled, handler.attempts) == (1, [2, 3])


@pytest.mark.parametrize("inbox", [True, False])
def test_only_what_a_worker_can_read_is_stored(guard: Guard, inbox: bool) -> None:
    """A sender whose payload is acknowledged does not deliver it again."""
    found = receipts(guard, source="jobs", id=lambda _: "c-1", inbox=inbox, store_payload=True)
    handled: list[object] = []

    @found.handler
    def handle(event: Renamed) -> None:
        handled.append(event)

    with pytest.raises(PayloadRefused, match="runId: Field required"):
        found.handle(Renamed.model_validate({"runId": "run-7"}))
    assert (found.find("c-1"), handled) == (None, [])


class Renamed(BaseModel):
    """Which does not write what it reads."""

    run_id: str = Field(validation_alias="runId")


# --- handlers that end in other ways


def test_a_coroutine_function_that_is_cancelled_from_inside(guard: Guard, clock: Clock) -> None:
    """It has failed, and the worker goes on."""
    found = receipts(guard, source="jobs", inbox=True)
    ends = [True]

    @found.handler
    async def handle(event: dict[str, str]) -> None:
        if ends:
            ends.pop()
            task = asyncio.ensure_future(asyncio.sleep(30))
            task.cancel()
            await task

    asyncio.run(found.handle_async(EVENT))
    worker = Worker(found)
    asyncio.run(worker.run_async(until_idle=True))
    assert (worker.handled, worker.failed) == (0, 1)
    receipt = found.find("c-1")
    assert receipt is not None
    assert receipt.details["error"] == "RuntimeError: the handler was cancelled from inside"
    clock.now += 3600
    asyncio.run(worker.run_async(until_idle=True))
    assert worker.handled == 1


@pytest.mark.parametrize("inbox", [True, False])
@pytest.mark.parametrize("kind", ["a coroutine", "a generator"])
def test_a_handler_that_leaves_its_work_to_others(guard: Guard, inbox: bool, kind: str) -> None:
    """Behind a decorator that hides it: nothing has run, and the event is not taken for handled."""
    found = receipts(guard, source="jobs", inbox=inbox)

    async def awaited(event: dict[str, str]) -> None: ...

    def parts(event: dict[str, str]) -> Iterator[int]:
        yield 1

    @found.handler
    def handle(event: dict[str, str]) -> object:
        return awaited(event) if kind == "a coroutine" else parts(event)

    if inbox:
        found.handle(EVENT)
        worker = work(found)
        assert (worker.handled, worker.failed) == (0, 1)
    else:
        with pytest.raises(ConfigurationError, match=kind):
            found.handle(EVENT)
    receipt = found.find("c-1")
    assert receipt is not None
    assert receipt.state == "failed"


def test_objects_that_are_called_like_coroutine_functions(guard: Guard) -> None:
    found = receipts(guard, source="jobs", inbox=True)
    handled: list[str] = []

    class Handles:
        async def __call__(self, event: dict[str, str]) -> None:
            handled.append(event["callback_id"])

    found.handler(Handles())
    found.handle(EVENT)
    worker = Worker(found)
    assert worker.is_async
    asyncio.run(worker.run_async(until_idle=True))
    assert (worker.handled, handled) == (1, ["c-1"])


# --- ending it


def test_it_is_stopped_wherever_a_signal_comes(guard: Guard) -> None:
    """The handler of a signal runs in the very thread that it interrupts, and must not wait for that."""
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)
    found.handle(EVENT)
    work(found)
    for place in range(60):
        worker = Worker(found, poll=0.001)
        places = itertools.count()

        def interrupt(*_: object, worker: Worker = worker, places: Iterator[int] = places) -> None:
            if next(places) >= place:  # noqa: B023 - it runs in this round
                worker.stop()

        def run(worker: Worker = worker, interrupt: Callable[..., None] = interrupt) -> None:
            sleep = worker._sleep

            def watched(pause: float) -> None:
                sys.setprofile(interrupt)
                try:
                    sleep(pause)
                finally:
                    sys.setprofile(None)

            worker._sleep = watched  # type: ignore[method-assign]  # only there it waits
            worker.run()

        thread = Thread(target=run, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), place


@pytest.mark.parametrize("trouble", [SchemaMismatch("no tables"), StoreUnavailable("down")])
def test_a_store_that_stays_away_ends_a_job(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, trouble: StoreError
) -> None:
    """With `--once` it would hang for ever; a worker that is not to end waits."""
    found = receipts(guard, source="jobs", inbox=True)
    Handler(found)

    def opened() -> object:
        raise trouble

    monkeypatch.setattr(guard.store, "open_admin", opened)
    monkeypatch.setattr("retrysafe.callbacks.worker._LONGEST_PAUSE", 0.01)
    with pytest.raises(type(trouble)):
        Worker(found, poll=0.001).run(until_idle=True)
    worker = Worker(found, poll=0.001)
    thread = Thread(target=worker.run)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()


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


@pytest.mark.parametrize(
    "retries",
    [
        Retries(attempts=0),
        Retries(first=0.0),
        Retries(first=2.0, longest=1.0),
        Retries(first=float("nan")),
        Retries(longest=float("nan")),
        20,
    ],
)
def test_retries_that_are_none(guard: Guard, retries: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"receipts 'jobs'.*Retries"):
        receipts(guard, source="jobs", retries=retries)


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


def test_a_worker_has_one_handler(guard: Guard) -> None:
    """An endpoint whose events another endpoint's function would handle is refused, unless that is said."""
    found = receipts(guard, source="jobs", inbox=True)

    def first(event: dict[str, str]) -> None: ...

    def second(event: dict[str, str]) -> None: ...

    found.starlette(first)
    with pytest.raises(ConfigurationError, match=r"second.* a worker .* calls .*first already"):
        found.starlette(second)

    def third(event: dict[str, str], request: object) -> None: ...

    with pytest.raises(ConfigurationError, match="takes 'request' besides the event"):
        found.starlette(third)
    said = receipts(guard, source="said", store_payload=True)
    said.handler(first)
    said.starlette(first)
    said.starlette(second)
    said.starlette(third)
    assert said.run_handler is first
    without = receipts(guard, source="no payloads")
    without.starlette(first)
    without.starlette(second)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inbox": True, "in_progress": "acknowledge"}, "in_progress= changes nothing with inbox=True"),
        ({"inbox": True, "in_flight": "wait"}, "in_flight= changes nothing with inbox=True"),
        ({"inbox": True, "wait_for": 5}, "wait_for= changes nothing with inbox=True"),
        ({"inbox": True, "store_down": "run"}, "store_down= changes nothing with inbox=True"),
        ({"retries": Retries(attempts=3)}, "retries= changes nothing without store_payload=True"),
        ({"max_payload": 10}, "max_payload= changes nothing without store_payload=True"),
    ],
)
def test_options_that_would_change_nothing(guard: Guard, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"receipts 'jobs': {said}"):
        receipts(guard, source="jobs", **options)


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
