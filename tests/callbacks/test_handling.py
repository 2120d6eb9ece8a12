"""Handling an event in a block or by a function: once, and again after whatever was not completed."""

import asyncio
import pickle
import sqlite3 as driver
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine, text

import retrysafe
from retrysafe import Guard, NotDone, current, sqlite3, stores
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe.callbacks import (
    AlreadyHandled,
    InFlight,
    KeyReused,
    OutcomeUnknown,
    Payload,
    PayloadRefused,
    PreviouslyFailed,
    Receipts,
    SubjectUnknown,
    Unavailable,
    Undone,
    receipts,
    webhooks,
)
from retrysafe.errors import ConfigurationError, NotJoined, StoreUnavailable
from retrysafe.sqlalchemy import sessionmaker
from tests.callbacks.conftest import Clock

EVENT = {"run_id": "run-7", "callback_id": "c-1", "status": "success", "result_uri": "file:///7"}


@pytest.fixture
def finished(guard: Guard) -> Receipts[dict[str, str]]:
    return receipts(guard, source="jobs")


def handle(finished: Receipts[dict[str, str]], event: dict[str, str], handled: list[str]) -> None:
    with finished.handling(event) as handling:
        assert handling.id is not None
        handled.append(handling.id)


# --- what a delivery comes to


def test_an_event_is_handled_once(finished: Receipts[dict[str, str]]) -> None:
    """Its second delivery raises before the block, with the receipt of the first."""
    handled: list[str] = []
    handle(finished, EVENT, handled)
    with pytest.raises(AlreadyHandled) as raised:
        handle(finished, EVENT, handled)
    assert handled == ["c-1"]
    receipt = raised.value.receipt
    assert (receipt.id, receipt.source, receipt.subject) == ("c-1", "jobs", "run-7")
    assert "c-1" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).receipt == receipt


def test_a_duplicate_is_skipped_with_suppress(finished: Receipts[dict[str, str]]) -> None:
    handled: list[str] = []
    for _ in range(3):
        with suppress(AlreadyHandled), finished.handling(EVENT):
            handled.append("handled")
    assert handled == ["handled"]


def test_coroutines(finished: Receipts[dict[str, str]]) -> None:
    """`async with` is the same."""

    async def twice() -> list[int]:
        handled: list[int] = []
        for _ in range(2):
            with suppress(AlreadyHandled):
                async with finished.handling(EVENT) as handling:
                    assert current().number == 1
                    handled.append(handling.attempt)
        return handled

    assert asyncio.run(twice()) == [1]


def test_a_failed_event_is_handled_again(finished: Receipts[dict[str, str]]) -> None:
    """What the block raises goes on, the receipt says why, and the next delivery is handled."""
    with pytest.raises(ZeroDivisionError), finished.handling(EVENT):
        raise ZeroDivisionError("by accident")
    receipt = finished.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.status) == ("failed", "failed")
    assert receipt.details == {"error": "ZeroDivisionError: by accident"}
    with finished.handling(EVENT) as handling:
        assert handling.attempt == 2
    receipt = finished.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.status, receipt.details, receipt.attempt) == (
        "completed",
        "success",
        {},
        2,
    )


def test_an_abandoned_event_is_handled_again(
    guard: Guard, finished: Receipts[dict[str, str]], clock: Clock
) -> None:
    """While the lease of a worker lasts, which may be dead, a delivery is refused; then it is handled."""
    died = finished.handling(EVENT)
    died.__enter__()
    with pytest.raises(InFlight) as refused, finished.handling(EVENT):
        raise AssertionError("it is being handled")
    assert refused.value.retry
    clock.now += guard.rules.policy.lease + 1
    with finished.handling(EVENT) as handling:
        assert handling.attempt == 2
    died.__exit__(None, None, None)  # it was not dead, and is told that another one has handled it
    assert died.handled().duplicate


def test_nothing_begun_leaves_no_receipt(finished: Receipts[dict[str, str]]) -> None:
    with pytest.raises(NotDone), finished.handling(EVENT):
        raise NotDone("the bucket cannot be read yet")
    assert finished.find("c-1") is None


def test_an_interrupted_block_is_not_acknowledged(finished: Receipts[dict[str, str]]) -> None:
    """A KeyboardInterrupt says nothing about the effect: the lease is left to lapse."""
    with pytest.raises(KeyboardInterrupt), finished.handling(EVENT):
        raise KeyboardInterrupt
    receipt = finished.find("c-1")
    assert receipt is not None
    assert receipt.state == "in_progress"
    assert receipt.status == "processing"


def test_a_cancelled_block_is_not_acknowledged(finished: Receipts[dict[str, str]]) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def cancelled() -> None:
            async with finished.handling(EVENT):
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(cancelled())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    receipt = finished.find("c-1")
    assert receipt is not None
    assert receipt.state == "in_progress"


def test_another_payload_is_refused_and_reported(
    finished: Receipts[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    handle(finished, EVENT, [])
    with pytest.raises(KeyReused, match="another payload"):
        handle(finished, {**EVENT, "status": "failed"}, [])
    assert "an id of jobs was delivered with another payload" in caplog.text
    with pytest.raises(AlreadyHandled):
        handle(finished, EVENT, [])


def test_two_sources_do_not_hide_each_other(guard: Guard) -> None:
    handled: list[str] = []
    for source in ("energy", "fmi"):
        handle(receipts(guard, source=source), EVENT, handled)
    assert handled == ["c-1", "c-1"]


def test_the_source_may_be_the_events(guard: Guard) -> None:
    """Found by a function; then the receipts have a name to be listed by."""
    found = receipts(guard, source=lambda event: event["from"], name="brokers")
    handled: list[str] = []
    for sender in ("a", "b", "a"):
        with suppress(AlreadyHandled):
            handle(found, {**EVENT, "from": sender}, handled)
    assert handled == ["c-1", "c-1"]
    assert {receipt.source for receipt in found.list("run-7")} == {"a", "b"}


def test_an_event_without_an_id_is_handled_as_always(
    guard: Guard, finished: Receipts[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str | None] = []
    without = {name: value for name, value in EVENT.items() if name != "callback_id"}
    for nothing in ({"callback_id": None}, {"callback_id": ""}, {}):
        with finished.handling({**without, **nothing}) as handling:  # type: ignore[dict-item]
            handled.append(handling.id)
            assert handling.attempt == 0
    assert handled == [None, None, None]
    assert caplog.text.count("an event without an id was handled") == 1
    assert finished.list("run-7") == []
    assert {(ended.verdict, ended.source): times for ended, times in guard.counts().items()} == {
        ("keyless", "jobs"): 3
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x" * 256, "256 bytes"),
        ("a\0b", "cannot be printed"),
        ("\ud800", "cannot be printed"),
        (" a", "white space"),
        ("", "not known"),
        (None, "not known"),
        (True, "not known"),
    ],
)
def test_sources_that_are_none(guard: Guard, source: object, reason: str) -> None:
    """They come with the event, and are stored and listed: what holds for ids holds for them."""
    found = receipts(guard, source=lambda _: source, name="brokers")
    with pytest.raises(PayloadRefused, match=reason), found.handling(EVENT):
        raise AssertionError("it is refused")


async def _awaited(event: object) -> str:
    return "jobs"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"source": "x" * 256}, "source='xxx.*256 bytes"),
        ({"source": "a\0b"}, "cannot be printed"),
        ({"source": " a"}, "white space"),
        ({"source": "a", "name": "b\n"}, "name=.*white space"),
        ({"source": _awaited, "name": "a"}, "source=. is asynchronous"),
        ({"source": "a", "details": _awaited}, "details= is asynchronous"),
    ],
)
def test_options_that_are_none(guard: Guard, options: dict[str, Any], reason: str) -> None:
    """Said when they are declared, and not with the first delivery."""
    with pytest.raises(ConfigurationError, match=reason):
        receipts(guard, **options)


def test_a_part_that_no_event_has(guard: Guard) -> None:
    """Its name is said as it was written."""
    with (
        pytest.raises(ConfigurationError, match=r"has no part 'data\.id' that would be its id"),
        receipts(guard, source="jobs", id="data.id").handling(Done("run-7", "c-1")),
    ):
        raise AssertionError("it is refused")


@pytest.mark.parametrize("id", [17, UUID(int=5)])
def test_ids_that_are_no_text(guard: Guard, id: object) -> None:
    found = receipts(guard, source="jobs", id=lambda event: event)
    with found.handling(id) as handling:
        assert handling.id == str(id)


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("x" * 256, "256 bytes"),
        ("ü" * 128, "256 bytes"),
        ("a\nb", "cannot be printed"),
        (" a", "white space"),
        (1.5, "float"),
        (b"a", "bytes"),
        (True, "bool"),
    ],
)
def test_ids_that_are_none(guard: Guard, id: object, reason: str) -> None:
    """They are refused, because two of them could be taken for one, or not be stored."""
    found = receipts(guard, source="jobs", id=lambda event: event)
    with pytest.raises(PayloadRefused, match=reason), found.handling(id):
        raise AssertionError("it is refused")


def test_the_longest_id(guard: Guard) -> None:
    found = receipts(guard, source="jobs", id=lambda event: event)
    with found.handling("ü" * 127 + "x"):
        pass


@pytest.mark.parametrize("awaited", [False, True])
def test_an_unknown_subject(guard: Guard, awaited: bool) -> None:
    """`check=` is asked before anything is looked up, and leaves nothing behind."""

    def exists(event: dict[str, str]) -> bool:
        return event["run_id"] == "run-7"

    async def exists_async(event: dict[str, str]) -> bool:
        return exists(event)

    found = receipts(guard, source="jobs", check=exists_async if awaited else exists)

    def handle_sync(event: dict[str, str]) -> None:
        with found.handling(event):
            pass

    async def handle_async(event: dict[str, str]) -> None:
        async with found.handling(event):
            pass

    unknown = {**EVENT, "run_id": "run-8"}
    with pytest.raises(SubjectUnknown) as refused:
        asyncio.run(handle_async(unknown)) if awaited else handle_sync(unknown)
    assert (refused.value.code, refused.value.status) == ("subject-unknown", 404)
    assert found.list("run-8") == []
    asyncio.run(handle_async(EVENT))
    if awaited:
        with pytest.raises(ConfigurationError, match="asynchronous"):
            handle_sync(EVENT)


def test_in_progress_may_be_acknowledged(guard: Guard) -> None:
    """As the original did; what is not being handled any more is handled again all the same."""
    found = receipts(guard, source="jobs", in_progress="acknowledge")
    with found.handling(EVENT):
        with pytest.raises(AlreadyHandled), found.handling(EVENT):
            raise AssertionError("it is being handled")
        with pytest.raises(KeyReused), found.handling({**EVENT, "status": "failed"}):
            raise AssertionError("it is another payload")


# --- policies


def test_effects_outside_are_held(guard: Guard, clock: Clock) -> None:
    """Who cannot do it twice gets no second attempt: the outcome is unknown, and waits for an operator."""
    found = receipts(guard, source="jobs", effects="outside")
    Context().run(found.handling(EVENT).__enter__)
    clock.now += 31
    with pytest.raises(OutcomeUnknown), found.handling(EVENT):
        raise AssertionError("it is held")
    with pytest.raises(ValueError, match="none"), found.handling({**EVENT, "callback_id": "c-2"}):
        raise ValueError("none")
    with pytest.raises(PreviouslyFailed), found.handling({**EVENT, "callback_id": "c-2"}):
        raise AssertionError("it failed")


def test_waiting_for_the_first(guard: Guard) -> None:
    """`in_flight="wait"` waits for the delivery that is being handled, and then says that it was."""
    found = receipts(guard, source="jobs", in_flight="wait", wait_for=30)
    entered, leave = Event(), Event()

    def first() -> None:
        with found.handling(EVENT):
            entered.set()
            assert leave.wait(30)

    thread = Thread(target=first)
    thread.start()
    assert entered.wait(30)
    leave.set()
    with pytest.raises(AlreadyHandled), found.handling(EVENT):
        raise AssertionError("it was handled")
    thread.join()


def test_the_store_is_down(
    guard: Guard, finished: Receipts[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the claim nothing runs; at the end what was done is not acknowledged, and is handled again."""

    def down(*_: object) -> None:
        raise StoreUnavailable("down")

    store = guard.store
    with monkeypatch.context() as patched:
        patched.setattr(store, "reserve", down)
        with pytest.raises(Unavailable), finished.handling(EVENT):
            raise AssertionError("it cannot be claimed")
    short = receipts(guard, source="short", lease=0.2)
    with pytest.raises(Unavailable, match="could not be stored"), short.handling(EVENT):
        monkeypatch.setattr(store, "finish", down)


def test_drained(guard: Guard, finished: Receipts[dict[str, str]]) -> None:
    """A process that shuts down claims nothing; what was handled is still said to be."""
    handle(finished, EVENT, [])
    guard.drain(0)
    with pytest.raises(Unavailable), finished.handling({**EVENT, "callback_id": "c-2"}):
        raise AssertionError("nothing is claimed")
    with pytest.raises(AlreadyHandled), finished.handling(EVENT):
        raise AssertionError("it was handled")
    guard.resume()


def test_75_hours_later(finished: Receipts[dict[str, str]], clock: Clock) -> None:
    """The end of the longest schedule of a sender; and after 30 days the receipt is gone."""
    handle(finished, EVENT, [])
    clock.now += 75 * 3600
    with pytest.raises(AlreadyHandled):
        handle(finished, EVENT, [])
    clock.now += 27 * 86400
    handle(finished, EVENT, [])


# --- in the database


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Guard]:
    path = tmp_path / "runs.db"
    with closing(driver.connect(path)) as database, database:
        database.execute("CREATE TABLE findings (run TEXT)")
    guard = Guard(f"sqlite:///{path}", profile="job-callbacks", effects="database")
    yield guard
    guard.close()


def findings(guard: Guard) -> int:
    with sqlite3.connection(guard) as database:
        [(found,)] = database.execute("SELECT count(*) FROM findings").fetchall()
    assert isinstance(found, int)
    return found


def add_finding(guard: Guard) -> None:
    with sqlite3.connection(guard) as database:
        database.execute("INSERT INTO findings VALUES ('run-7')")


def test_what_is_written_and_the_receipt_are_one(shop: Guard) -> None:
    """The guard's `effects="database"` holds for receipts."""
    found = receipts(shop, source="jobs")
    assert found.rules.policy.effects == "database"

    def fail() -> None:
        add_finding(shop)
        raise RuntimeError("too late")

    with pytest.raises(RuntimeError), found.handling(EVENT):
        fail()
    assert findings(shop) == 0
    receipt = found.find("c-1")
    assert receipt is not None
    assert (receipt.state, receipt.details["error"]) == ("failed", "RuntimeError: too late")
    for _ in range(2):
        with suppress(AlreadyHandled), found.handling(EVENT):
            add_finding(shop)
    assert findings(shop) == 1


def test_what_the_database_refuses_is_not_acknowledged(database: str) -> None:
    """A constraint that PostgreSQL checks at the commit: nothing is left, and the receipt says so."""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id text PRIMARY KEY)"))
        connection.execute(
            text("CREATE TABLE steps (run text REFERENCES runs (id) DEFERRABLE INITIALLY DEFERRED)")
        )
    guard = Guard(stores.from_engine(engine), profile="job-callbacks", effects="database")
    sessions = sessionmaker(guard)
    found = receipts(guard, source="jobs")

    def write() -> None:
        with sessions() as session:
            session.execute(text("INSERT INTO steps VALUES ('run-7')"))
            session.commit()

    with pytest.raises(Undone), found.handling(EVENT):
        write()
    receipt = found.find("c-1")
    assert receipt is not None
    assert receipt.state == "failed"
    assert "violates foreign key constraint" in receipt.details["error"]
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO runs VALUES ('run-7')"))
    with found.handling(EVENT) as handling:
        write()
    assert handling.attempt == 2
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM steps")).scalar() == 1
    guard.close()
    engine.dispose()


def test_a_worker_that_lost_its_lease_changes_nothing(shop: Guard) -> None:
    """It is overtaken while it works: its effects are rolled back, and it is told who handled the event."""
    found = receipts(shop, source="jobs", lease=0.05)
    shop.runtime.leases.hold = lambda attempt: None  # type: ignore[method-assign]  # its keeper is dead

    def overtake() -> None:
        while True:
            with suppress(InFlight), found.handling(EVENT):
                return add_finding(shop)

    with found.handling(EVENT) as slow:
        Context().run(overtake)
        add_finding(shop)
    assert slow.handled().duplicate
    assert findings(shop) == 1


def test_not_inside_of_another_guarded_call(shop: Guard) -> None:
    """Its receipt could not be committed with the transaction around it."""
    found = receipts(shop, source="jobs")
    with found.handling(EVENT):
        add_finding(shop)
        another = found.handling({**EVENT, "callback_id": "c-2"})
        with pytest.raises(NotJoined, match="outside of that call"), another:
            raise AssertionError("it is refused")
    assert findings(shop) == 1


# --- functions


def test_a_registered_handler(finished: Receipts[dict[str, str]]) -> None:
    """`handle` calls it, and says what was a duplicate; the function itself stays as it is."""
    handled: list[str] = []

    @finished.handler
    def store(event: dict[str, str]) -> None:
        handled.append(event["callback_id"])

    first, second = finished.handle(EVENT), finished.handle(EVENT)
    assert (first.duplicate, first.stored, first.receipt) == (False, False, None)
    assert second.duplicate
    assert second.receipt is not None
    store(EVENT)
    assert handled == ["c-1", "c-1"]


def test_a_registered_coroutine_function(finished: Receipts[dict[str, str]]) -> None:
    handled: list[str] = []

    @finished.handler
    async def store(event: dict[str, str]) -> None:
        handled.append(event["callback_id"])

    async def twice() -> list[bool]:
        return [(await finished.handle_async(EVENT)).duplicate for _ in range(2)]

    assert asyncio.run(twice()) == [False, True]
    assert handled == ["c-1"]
    with pytest.raises(ConfigurationError, match="handle_async"):
        finished.handle(EVENT)


@pytest.mark.parametrize("wrong", [5, dict])
def test_what_is_no_handler(finished: Receipts[dict[str, str]], wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a function of the event"):
        finished.handler(wrong)


def test_generators_are_no_handlers(finished: Receipts[dict[str, str]]) -> None:
    """Nothing of them runs when they are called, and the event would be acknowledged."""

    def parts(event: dict[str, str]) -> Iterator[int]:
        yield 1

    async def parts_async(event: dict[str, str]) -> AsyncIterator[int]:
        yield 1

    for function in (parts, parts_async):
        with pytest.raises(ConfigurationError, match="is a generator"):
            finished.handler(function)


def test_what_a_handler_raises(finished: Receipts[dict[str, str]]) -> None:
    @finished.handler
    def fail(event: dict[str, str]) -> None:
        raise LookupError(event["run_id"])

    for attempt in (1, 2):
        with pytest.raises(LookupError):
            finished.handle(EVENT)
        receipt = finished.find("c-1")
        assert receipt is not None
        assert receipt.attempt == attempt


# --- events of several kinds


@dataclass
class Done:
    run_id: str
    callback_id: str
    status: str = "success"


def test_dataclasses(guard: Guard) -> None:
    found: Receipts[Done] = receipts(guard, source="jobs")
    with found.handling(Done("run-7", "c-1")):
        pass
    with pytest.raises(AlreadyHandled), found.handling(Done("run-7", "c-1")):
        raise AssertionError
    with pytest.raises(KeyReused), found.handling(Done("run-7", "c-1", "failed")):
        raise AssertionError


def test_models_are_compared_as_data(guard: Guard) -> None:
    """A class that is renamed between two deliveries, or gets a field with a default, changes nothing."""
    pydantic = pytest.importorskip("pydantic")
    old = pydantic.create_model("Old", run_id=(str, ...), callback_id=(str, ...), status=(str, ...))
    new = pydantic.create_model("New", __base__=old, progress=(int, 0))
    found = receipts(guard, source="jobs")
    with found.handling(old(**{k: v for k, v in EVENT.items() if k != "result_uri"})):
        pass
    said = {k: v for k, v in EVENT.items() if k != "result_uri"}
    with pytest.raises(AlreadyHandled), found.handling(new(**said)):
        raise AssertionError
    with pytest.raises(KeyReused), found.handling(new(**said, progress=5)):
        raise AssertionError


@pytest.mark.parametrize(
    ("compare", "same"),
    [
        ("all", False),
        (("run_id",), True),
        (("status",), False),
        (("run_id", "status"), False),
        (("status", "run_id"), False),
        (("data.size",), True),
        (None, True),
        (lambda event: event["run_id"], True),
        (lambda event: event["status"], False),
    ],
)
def test_what_is_compared(guard: Guard, compare: object, same: bool) -> None:
    found = receipts(guard, source="jobs", compare=compare)  # type: ignore[arg-type]  # each of its kinds
    with found.handling({**EVENT, "data": {"size": 1}}):
        pass
    with (
        pytest.raises(AlreadyHandled if same else KeyReused),
        found.handling({**EVENT, "data": {"size": 1}, "status": "other"}),
    ):
        raise AssertionError


def test_a_missing_part_is_not_an_empty_one(guard: Guard) -> None:
    found = receipts(guard, source="jobs", compare=("note",))
    with found.handling(EVENT):
        pass
    with pytest.raises(KeyReused), found.handling({**EVENT, "note": None}):
        raise AssertionError


def test_what_cannot_be_compared(guard: Guard) -> None:
    """The message says which argument would say what to compare."""
    found = receipts(guard, source="jobs", id=lambda _: "c")
    with pytest.raises(TypeError, match="compare="), found.handling(object()):
        raise AssertionError

    class Odd(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        x: object = None

    with pytest.raises(TypeError, match="compare="), found.handling(Odd(x=object())):
        raise AssertionError
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    for sent in (deep, {"\ud800": 1}):
        with pytest.raises(PayloadRefused, match="cannot be compared"), found.handling(Odd(x=sent)):
            raise AssertionError


def test_raw_payloads(guard: Guard) -> None:
    found: Receipts[Payload] = receipts(guard, source="jobs", id=lambda event: event.json()["id"])
    with found.handling(Payload(b'{"id": "a"}')):
        pass
    with pytest.raises(AlreadyHandled), found.handling(Payload(b'{"id": "a"}')):
        raise AssertionError


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def signed(body: bytes, secret: str = SECRET) -> Payload:
    return Payload(body, webhooks.sign(secret, "msg_1", time.time(), body))


@pytest.mark.parametrize("how", ["block", "async block", "function", "inbox", "async inbox"])
def test_a_forged_delivery_plants_nothing(guard: Guard, how: str) -> None:
    """Outside of HTTP as there: it is refused before anything is asked, and the genuine one is handled."""
    asked: list[object] = []

    def check(event: Payload) -> bool:
        asked.append(event)
        return True

    found: Receipts[Payload] = receipts(
        guard, webhook=webhooks.standard(SECRET), inbox="inbox" in how, check=check
    )
    handled: list[bytes] = []

    @found.handler
    def take(event: Payload) -> None:
        handled.append(event.body)

    async def handle_async(event: Payload) -> None:
        if "inbox" in how:
            await found.handle_async(event)
            return
        async with found.handling(event):
            take(event)

    def deliver(event: Payload) -> None:
        if "async" in how:
            asyncio.run(handle_async(event))
        elif how == "block":
            with found.handling(event):
                take(event)
        else:
            found.handle(event)

    for forged in (
        Payload(b"{}", {**signed(b"{}").headers, "webhook-signature": "v1,AAAA"}),
        signed(b"{}", "whsec_" + "A" * 32),
        Payload(b"{}"),
    ):
        with pytest.raises(PayloadRefused) as refused:
            deliver(forged)
        assert refused.value.code == "signature-invalid"
    assert (found.find("msg_1"), handled, asked) == (None, [], [])
    deliver(signed(b'{"paid": 1}'))
    assert found.find("msg_1") is not None
    assert handled == ([] if "inbox" in how else [b'{"paid": 1}'])


def test_what_the_application_has_read_is_not_verified(guard: Guard) -> None:
    """It has no signature: where its sender's ids are in the body, it is handled as it is."""
    found: Receipts[dict[str, object]] = receipts(guard, webhook=webhooks.stripe(SECRET))
    with found.handling({"id": "evt_1", "type": "charge.succeeded"}):
        pass
    assert found.find("evt_1") is not None


# --- receipts


def test_a_runs_receipts(guard: Guard, finished: Receipts[dict[str, str]], clock: Clock) -> None:
    """Several callbacks of one run are all handled; they are listed with the youngest first."""
    for number in range(3):
        handle(finished, {**EVENT, "callback_id": f"c-{number}"}, [])
        clock.now += 10
    handle(finished, {**EVENT, "callback_id": "other", "run_id": "run-8"}, [])
    handle(receipts(guard, source="another"), EVENT, [])
    assert [receipt.id for receipt in finished.list("run-7")] == ["c-2", "c-1", "c-0"]
    assert [receipt.id for receipt in finished.list("run-7", limit=1)]
    receipt = finished.find("c-1")
    assert receipt is not None
    assert (receipt.status, receipt.result_uri) == ("success", "file:///7")
    assert receipt.received_at.timestamp() == receipt.completed_at.timestamp()  # type: ignore[union-attr]
    assert receipt.expires_at.timestamp() - receipt.received_at.timestamp() == 30 * 86400
    assert receipt.received_at.isoformat().endswith("+00:00")


def test_the_status_is_a_placeholder_until_it_was_handled(finished: Receipts[dict[str, str]]) -> None:
    with finished.handling(EVENT):
        receipt = finished.find("c-1")
        assert receipt is not None
        assert (receipt.status, receipt.result_uri) == ("processing", "file:///7")


def test_details(guard: Guard) -> None:
    """By names, or by a function; the correlation id beside them."""
    event = {**EVENT, "correlation_id": "trace-1", "worker": "w1", "data": {"size": 5}}
    by_name = receipts(guard, source="a", details=("worker", "data.size", "nothing"))
    by_function = receipts(guard, source="b", details=lambda event: {"worker": event["worker"], "none": None})
    for found, expected in ((by_name, {"worker": "w1", "data.size": "5"}), (by_function, {"worker": "w1"})):
        with found.handling(event):
            pass
        receipt = found.find("c-1")
        assert receipt is not None
        assert (receipt.details, receipt.status, receipt.correlation_id) == (expected, "handled", "trace-1")


def test_details_that_are_too_long(guard: Guard) -> None:
    """They are for people: the event is handled, and the end of them left out.  An unusable correlation id is
    left out as well."""
    event = {**EVENT, "result_uri": "x" * 5000, "status": "y" * 4096, "correlation_id": "a\r\nb"}
    for found in (receipts(guard, source="a"), receipts(guard, source="b", details=lambda event: event)):
        with found.handling(event):
            pass
        receipt = found.find("c-1")
        assert receipt is not None
        assert receipt.result_uri == "x" * 4095 + "…"
        assert (receipt.status, receipt.correlation_id) == ("y" * 4096, None)


def test_deliveries_are_counted(guard: Guard, finished: Receipts[dict[str, str]]) -> None:
    """Every delivery of an event, and when; and events say from where."""
    handle(finished, EVENT, [])
    for _ in range(2):
        with suppress(AlreadyHandled):
            handle(finished, EVENT, [])
    guard.runtime.leases.close()  # stores what was counted
    receipt = finished.find("c-1")
    assert receipt is not None
    assert (receipt.deliveries, len(receipt.delivered_at)) == (3, 2)


def test_events_say_source_and_time() -> None:
    seen: list[tuple[object, ...]] = []

    def note(event: retrysafe.Event) -> None:
        assert event.seconds is not None
        seen.append((event.door, event.verdict, event.source, event.action, event.target))

    guard = Guard("memory:", profile="job-callbacks", on_event=note)
    found = receipts(guard, source="jobs")
    for _ in range(2):
        with suppress(AlreadyHandled):
            handle(found, EVENT, [])
    assert seen == [
        ("callback", "completed", "jobs", "jobs", "run-7"),
        ("callback", "replayed", "jobs", "jobs", "run-7"),
    ]
    guard.close()


def test_no_digest_tells_the_id() -> None:
    """With `keep_key=False` the id is not stored, and the event is still known."""
    guard = Guard("memory:", profile="job-callbacks", keep_key=False, secret="0123456789abcdef")
    found = receipts(guard, source="jobs")
    handle(found, EVENT, [])
    with pytest.raises(AlreadyHandled):
        handle(found, EVENT, [])
    [receipt] = found.list("run-7")
    assert receipt.id is None
    assert found.find("c-1") == receipt
    assert found.find("c-2") is None
    guard.close()


def test_a_claim_and_a_final_are_what_stores_expect(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the handler's response only the status is stored, and no payload unless it is asked for."""
    claims: list[Claim] = []
    finals: list[Final] = []
    store = guard.store
    reserve, finish = store.reserve, store.finish

    def note_claim(claim: Claim) -> Reservation:
        claims.append(claim)
        return reserve(claim)

    def note_final(claim: Claim, final: Final) -> bool:
        finals.append(final)
        return finish(claim, final)

    monkeypatch.setattr(store, "reserve", note_claim)
    monkeypatch.setattr(store, "finish", note_final)
    handle(receipts(guard, source="jobs"), EVENT, [])
    [claim], [final] = claims, finals
    assert (claim.door, claim.action, claim.target, claim.inbox) == ("callback", "jobs", "run-7", None)
    assert (final.response.headers, final.response.body, final.due_in) == ((), b"", None)
