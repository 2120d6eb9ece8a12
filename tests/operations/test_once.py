"""One function, called with a key: what is done, what is stored, what a retry gets."""

import asyncio
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from retrysafe import ConfigurationError, Guard, NotDone, current, scopes
from retrysafe.events import Event
from retrysafe.operations import (
    Done,
    InFlight,
    KeyRefused,
    KeyReused,
    OutcomeUnknown,
    PreviouslyFailed,
    Refused,
    Unavailable,
    ValueOmitted,
    once,
    operation,
)
from retrysafe.stores.memory import MemoryStore


@dataclass(frozen=True)
class Receipt:
    order: str
    amount: Decimal


class CardDeclined(Exception):
    pass


def test_a_retry_gets_the_value_and_the_effect_happens_once(guard: Guard) -> None:
    """The value comes back as what it was, on every store."""
    charged: list[str] = []

    @operation(guard, action="charge", target="order")
    def charge(order: str, amount: Decimal) -> Receipt:
        charged.append(order)
        return Receipt(order, amount)

    first = charge.once("o-1", Decimal("9.90"), key="k")
    second = charge.once("o-1", Decimal("9.90"), key="k")
    assert first == Done(Receipt("o-1", Decimal("9.90")), replayed=False)
    assert second == Done(Receipt("o-1", Decimal("9.90")), replayed=True)
    assert charged == ["o-1"]
    found = guard.store.look(_identity(guard, "k"))
    assert found is not None
    record = found.record
    assert (record.door, record.action, record.target) == ("operation", "charge", "o-1")
    assert (record.scope, record.key) == ((("service", "billing"),), "k")


def _identity(guard: Guard, key: str) -> bytes:
    from retrysafe._core.keys import digest

    scope = scopes.of_service(guard.rules.request.scope)
    assert scope is not None
    return digest("operation", scope.parts, key)


def test_a_coroutine_function(guard: Guard) -> None:
    """The same for async code, which is awaited."""
    charged: list[str] = []

    @operation(guard, action="charge", target="order")
    async def charge(order: str) -> Receipt:
        await asyncio.sleep(0)
        charged.append(order)
        return Receipt(order, Decimal(1))

    async def main() -> list[Done[Receipt]]:
        return [await charge.once("o-1", key="k"), await charge.keyed("k")("o-1")]

    assert asyncio.run(main()) == [
        Done(Receipt("o-1", Decimal(1)), replayed=False),
        Done(Receipt("o-1", Decimal(1)), replayed=True),
    ]
    assert charged == ["o-1"]


def test_without_a_key_it_is_the_function(memory: Guard) -> None:
    """Nothing is looked up, and no record is made."""

    @operation(memory)
    def charge(order: str) -> str:
        """Charge an order."""
        return order

    assert [charge("o-1"), charge("o-1")] == ["o-1", "o-1"]
    assert (charge.__name__, charge.__doc__, charge.action) == ("charge", "Charge an order.", "charge")
    assert memory.counts() == {}


@pytest.mark.parametrize("again", [("o-1", 6), ("o-2", 5)], ids=["amount", "target"])
def test_other_arguments_with_the_same_key_are_refused(memory: Guard, again: tuple[str, int]) -> None:
    """It is not a retry, and the record of the first call is as it was."""

    @operation(memory, target="order")
    def charge(order: str, amount: int) -> int:
        return amount

    charge.once("o-1", 5, key="k")
    with pytest.raises(KeyReused, match=r"with other arguments\. Use a new key") as refused:
        charge.once(*again, key="k")
    assert (refused.value.code, refused.value.status, refused.value.retry) == ("key-reused", 422, False)
    assert charge.once("o-1", 5, key="k").replayed


def test_another_action_with_the_same_key_is_refused(memory: Guard) -> None:
    """Resuming is not cancelling, though both are about the same workflow."""

    @operation(memory, target="workflow")
    def cancel(workflow: str) -> None: ...

    @operation(memory, target="workflow")
    def resume(workflow: str) -> None: ...

    cancel.once("w", key="k")
    with pytest.raises(KeyReused):
        resume.once("w", key="k")


def test_a_failure_is_not_tried_again(guard: Guard) -> None:
    """What it did is not known.  The first caller gets the exception, the next ones its description."""
    calls: list[int] = []

    @operation(guard)
    def charge() -> None:
        calls.append(1)
        raise ConnectionResetError("lost the gateway")

    with pytest.raises(ConnectionResetError, match="lost the gateway"):
        charge.once(key="k")
    with pytest.raises(PreviouslyFailed, match="ConnectionResetError: lost the gateway") as refused:
        charge.once(key="k")
    failure = refused.value.failure
    assert failure is not None
    assert (failure.type, failure.message) == ("ConnectionResetError", "lost the gateway")
    assert failure.at is not None
    assert failure.at.startswith("20")
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("options", "number"),
    [({"failed": "conflict"}, 1), ({"effects": "repeatable"}, 2), ({"retry_on": (OSError,)}, 2)],
    ids=["conflict", "repeatable", "retry_on"],
)
def test_what_follows_a_failure_is_a_choice(memory: Guard, options: Any, number: int) -> None:
    """As on routes: refused with its context, or done again where that does no harm."""
    calls: list[int] = []

    @operation(memory, **options)
    def charge() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionResetError("lost")
        return current().number

    with pytest.raises(ConnectionResetError):
        charge.once(key="k")
    if number == 1:
        with pytest.raises(PreviouslyFailed, match="lost"):
            charge.once(key="k")
    else:
        assert charge.once(key="k").value == (2 if options.get("effects") else 1)
    assert len(calls) == number


def test_a_declared_exception_is_part_of_the_result(guard: Guard) -> None:
    """A declined card is an outcome: the retry is told the same, and the card is not charged again."""
    calls: list[int] = []

    @operation(guard, raises=(CardDeclined,))
    def charge(amount: int) -> int:
        calls.append(amount)
        raise CardDeclined("insufficient funds", amount)

    for _ in range(2):
        with pytest.raises(CardDeclined) as declined:
            charge.once(5, key="k")
        assert declined.value.args == ("insufficient funds", 5)
    assert calls == [5]


def test_nothing_was_done(memory: Guard) -> None:
    """A failure that is known not to have happened does not use up its key."""
    calls: list[int] = []

    @operation(memory)
    def charge() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise NotDone("the gateway is closed")
        return len(calls)

    for _ in range(2):
        with pytest.raises(NotDone, match="the gateway is closed"):
            charge.once(key="k")
    assert charge.once(key="k") == Done(3, replayed=False)


@pytest.mark.parametrize(
    ("key", "code", "reason"),
    [
        (None, "key-missing", "No key was passed"),
        (7, "key-invalid", "it is of type int"),
        ("", "key-invalid", "it is empty"),
        (" \t ", "key-invalid", "it is empty"),
        ("a\nb", "key-invalid", "cannot be printed"),
        ("\ud800", "key-invalid", "cannot be printed"),
        ("ä" * 128, "key-invalid", "it has 256 bytes; pass 1 to 255"),
    ],
)
def test_what_is_not_a_key_is_refused(memory: Guard, key: Any, code: str, reason: str) -> None:
    """Before anything is done."""

    @operation(memory)
    def charge() -> None:
        raise AssertionError("not reached")

    with pytest.raises(KeyRefused, match=reason) as refused:
        charge.once(key=key)
    assert (refused.value.code, refused.value.status) == (code, 400)
    assert isinstance(refused.value, ValueError)


def test_white_space_around_a_key_is_not_part_of_it(memory: Guard) -> None:
    """As in a header; and a key may have any letters."""

    @operation(memory)
    def charge() -> None: ...

    charge.once(key="Öl 1")
    assert charge.once(key=" Öl 1\n").replayed


def test_a_value_that_is_refused_is_an_object(memory: Guard) -> None:
    """For callers who would rather compare than catch."""

    @operation(memory)
    def charge(amount: int) -> int:
        return amount

    match charge.try_once(5, key="k"):
        case Done(value, replayed):
            assert (value, replayed) == (5, False)
        case refused:
            pytest.fail(str(refused))
    assert isinstance(charge.try_once(6, key="k"), KeyReused)


def test_one_that_runs_is_not_begun_again(guard: Guard) -> None:
    """The second call is refused at once, or waits for the first if it is told to."""
    begun, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    @operation(guard)
    def charge() -> int:
        calls.append(1)
        begun.set()
        assert go_on.wait(30)
        return 42

    results: list[object] = []
    first = threading.Thread(target=lambda: results.append(charge.once(key="k")))
    first.start()
    assert begun.wait(30)
    with pytest.raises(InFlight, match="still running") as refused:
        charge.once(key="k")
    assert refused.value.retry
    assert refused.value.retry_after
    waiters = [
        threading.Thread(target=lambda: results.append(charge.once(key="k", wait="30s"))) for _ in range(5)
    ]
    for waiter in waiters:
        waiter.start()
    go_on.set()
    for thread in (first, *waiters):
        thread.join(30)
    assert sorted(str(result) for result in results) == sorted(
        [str(Done(42, replayed=False)), *[str(Done(42, replayed=True))] * 5]
    )
    assert len(calls) == 1


def test_a_cancelled_caller_does_not_cancel_the_function(guard: Guard) -> None:
    """What came of it is stored, and the retry gets it."""

    async def main() -> Done[int]:
        begun, go_on = asyncio.Event(), asyncio.Event()

        @operation(guard)
        async def charge() -> int:
            begun.set()
            await go_on.wait()
            return 42

        caller = asyncio.create_task(charge.once(key="k"))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go_on.set()
        return await charge.once(key="k", wait=30)

    assert asyncio.run(main()) == Done(42, replayed=True)


def test_an_interrupted_call_has_an_unknown_outcome(guard: Guard) -> None:
    """Its key is held for an operator, and not used for a second charge."""

    @operation(guard, lease=0.05)
    def charge() -> None:
        raise KeyboardInterrupt  # as the end of a process, it leaves no outcome

    with pytest.raises(KeyboardInterrupt):
        charge.once(key="k")
    _lapse(guard)
    with pytest.raises(OutcomeUnknown, match="ask the operator") as refused:
        charge.once(key="k")
    assert (refused.value.code, refused.value.retry) == ("outcome-unknown", False)


def _lapse(guard: Guard) -> None:
    """Wait until the lease of the record is over, by the store's own clock."""
    found = guard.store.look(_identity(guard, "k"))
    while (
        found is not None and found.record.lease_until is not None and found.now <= found.record.lease_until
    ):
        found = guard.store.look(_identity(guard, "k"))


def test_an_interrupted_call_that_may_be_repeated_is_repeated(guard: Guard) -> None:
    """A crash blocks its key for as long as a lease, and no longer."""
    calls: list[int] = []

    @operation(guard, lease=0.05, effects="repeatable")
    def cancel() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return current().number

    with pytest.raises(KeyboardInterrupt):
        cancel.once(key="k")
    _lapse(guard)
    assert cancel.once(key="k") == Done(2, replayed=False, attempt=2)


def test_derived_keys_are_the_same_on_every_attempt(memory: Guard) -> None:
    """And other ones for other calls."""
    seen: list[str] = []

    @operation(memory, effects="repeatable")
    def charge(order: str) -> None:
        seen.append(current().derive("gateway"))
        raise OSError("lost")

    for order, key in [("a", "k"), ("a", "k"), ("b", "l")]:
        with pytest.raises(OSError, match="lost"):
            charge.once(order, key=key)
    assert seen[0] == seen[1] != seen[2]


def test_a_large_value_leaves_a_tombstone(memory: Guard) -> None:
    """The first caller has it; a retry learns that it was done, and how to get at values."""

    @operation(memory, max_response=10)
    def export() -> str:
        return "x" * 100

    assert export.once(key="k").value == "x" * 100
    again = export.once(key="k")
    assert (again.replayed, again.omitted) == (True, True)
    with pytest.raises(ValueOmitted, match="raise max_response"):
        _ = again.value


def test_a_value_that_is_not_what_was_annotated(memory: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """The effect has happened and is not repeated; its value cannot be stored, and the log says so."""
    calls: list[int] = []

    @operation(memory)
    def charge() -> Receipt:
        calls.append(1)
        return "a receipt"  # type: ignore[return-value]  # the mistake

    first: Done[Any] = charge.once(key="k")
    assert first.value == "a receipt"
    assert "charge: its value is not stored" in caplog.text
    assert charge.once(key="k").omitted
    assert len(calls) == 1


def test_a_record_that_another_release_wrote(memory: Guard) -> None:
    """Its value is not guessed at, and the operation is not done again."""

    @operation(memory, action="charge")
    def charge() -> str:
        return "text"

    @operation(memory, action="charge")
    def newer() -> Receipt:
        raise AssertionError("not reached")

    charge.once(key="k")
    with pytest.raises(Unavailable, match="cannot be read"):
        newer.once(key="k")


def test_methods(memory: Guard) -> None:
    """`self` is an argument as others: what identifies it is named."""

    class Account:
        def __init__(self, id: str) -> None:
            self.id = id

        @operation(memory, target="self.id")
        def charge(self, amount: int) -> str:
            return f"{self.id}: {amount}"

        @operation(memory, target="self.id")
        async def refund(self, amount: int) -> str:
            return f"{self.id}: {-amount}"

    account = Account("a")
    assert account.charge(5) == "a: 5"
    assert account.charge.once(5, key="k") == Done("a: 5", replayed=False)
    assert Account("a").charge.once(5, key="k") == Done("a: 5", replayed=True)
    with pytest.raises(KeyReused):
        Account("b").charge.once(5, key="k")
    assert asyncio.run(account.refund.once(5, key="r")) == Done("a: -5", replayed=False)
    assert account.charge.action == "Account.charge"


def test_a_function_that_cannot_be_decorated(guard: Guard) -> None:
    """Its call is given a key, and all that a decorator would know."""
    call = once(guard, key="k", action="power", target="o-1", scope="user-7")
    assert call.call(pow, 2, 10) == Done(1024, replayed=False)
    assert call.call(pow, 2, 10) == Done(1024, replayed=True)
    with pytest.raises(KeyReused):
        call.call(pow, 2, 11)
    assert call.try_call(pow, 2, 10) == Done(1024, replayed=True)
    assert isinstance(call.try_call(pow, 2, 11), KeyReused)

    async def charge(amount: int) -> int:
        return amount

    async def main() -> list[Done[int] | Refused]:
        asynchronous = once(guard, key="a", action="charge")
        return [
            await asynchronous.call_async(charge, 5),
            await asynchronous.call_async(charge, 5),
            await asynchronous.try_call_async(charge, 6),
        ]

    *done, refused = asyncio.run(main())
    assert done == [Done(5, replayed=False), Done(5, replayed=True)]
    assert isinstance(refused, KeyReused)
    with pytest.raises(ConfigurationError, match="call_async"):
        once(guard, key="a", action="charge").call(charge, 5)


def test_a_refusal_crosses_processes(memory: Guard) -> None:
    """Pools pickle what their workers raise; one that cannot be read would break the pool."""
    import pickle

    @operation(memory)
    def charge(amount: int) -> None:
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        charge.once(1, key="k")
    refused = charge.try_once(1, key="k")
    assert isinstance(refused, PreviouslyFailed)
    again = pickle.loads(pickle.dumps(refused))
    assert (type(again), str(again), again.failure) == (type(refused), str(refused), refused.failure)


def test_a_refusal_takes_no_value_along(memory: Guard) -> None:
    """It is pickled into results of queues and logs, for a caller that the value is not for."""
    import pickle

    @operation(memory)
    def issue(user: str) -> str:
        return f"the token of {user}"

    issue.once("ann", key="a key of hers")
    pickled = pickle.dumps(issue.try_once("bob", key="a key of hers"))
    assert isinstance(pickle.loads(pickled), KeyReused)
    assert b"the token" not in pickled
    assert b"a key of hers" not in pickled


def test_a_value_that_is_not_to_be_stored_may_be_of_any_type(
    memory: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it is written, so there is nothing that could be lost."""

    @operation(memory, no_store=True)
    def connect() -> threading.Event:
        return threading.Event()

    assert isinstance(connect.once(key="k").value, threading.Event)
    assert connect.once(key="k").omitted
    assert not caplog.messages


def test_a_long_one_keeps_its_lease(guard: Guard) -> None:
    """It is in flight for as long as it runs, and not only for as long as a lease."""
    ends: list[float] = []

    @operation(guard, lease=0.3)
    def export() -> int:
        while len(set(ends)) < 3:  # as often as it was renewed
            found = guard.store.look(_identity(guard, "k"))
            assert found is not None
            assert found.record.lease_until is not None
            ends.append(found.record.lease_until)
        assert isinstance(export.try_once(key="k"), InFlight)
        return 1

    assert export.once(key="k").value == 1


def test_observers_are_told(memory: Guard) -> None:
    """The same events as of requests, by action."""
    events: list[Event] = []
    guard = Guard(memory.store, scope=scopes.service("billing"), on_event=events.append)

    @operation(guard, action="charge", target="order")
    def charge(order: str) -> None: ...

    for _ in range(2):
        charge.once("o-1", key="k")
    assert [(event.verdict, event.door, event.action, event.target, event.route) for event in events] == [
        ("completed", "operation", "charge", "o-1", "charge"),
        ("replayed", "operation", "charge", "o-1", "charge"),
    ]
    assert {tuple(counted)[:3]: times for counted, times in guard.counts().items()} == {
        ("completed", "operation", "charge"): 1,
        ("replayed", "operation", "charge"): 1,
    }


def test_a_process_that_shuts_down_begins_nothing(memory: Guard) -> None:
    """Replays go on."""

    @operation(memory)
    def charge() -> int:
        return 1

    charge.once(key="k")
    memory.drain(grace=0)
    assert charge.once(key="k").replayed
    with pytest.raises(Unavailable, match="shutting down") as refused:
        charge.once(key="l")
    assert refused.value.code == "draining"


class Down(MemoryStore):
    def reserve(self, claim: Any) -> Any:
        from retrysafe import StoreUnavailable

        raise StoreUnavailable("it does not respond")


def test_a_store_that_does_not_respond() -> None:
    """Nothing is done, unless the operation is to be done in any case."""
    guard = Guard(Down(), scope=scopes.service("billing"))

    @operation(guard)
    def charge() -> int:
        return 1

    @operation(guard, store_down="run")
    def send() -> int:
        return 2

    with pytest.raises(Unavailable, match="could not be checked") as refused:
        charge.once(key="k")
    assert refused.value.retry
    assert send.once(key="k") == Done(2, replayed=False, stored=False)
