"""What is checked when a function is decorated, and how its arguments are compared."""

import copy
import io
import pickle
import random
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from retrysafe import ConfigurationError, Guard
from retrysafe.operations import Done, KeyReused, once, operation

if TYPE_CHECKING:
    from collections import Counter


class Session:
    """Not a value."""


def test_an_argument_is_the_same_however_it_is_passed(memory: Guard) -> None:
    """By position, by name, or left to its default; and a default that is added later changes nothing."""

    @operation(memory, action="charge")
    def charge(order: str, amount: int = 5) -> None: ...

    @operation(memory, action="charge")
    def newer(order: str, amount: int = 5, currency: str = "EUR", *more: str, **rest: str) -> None: ...

    charge.once("o", key="k")
    assert charge.once(order="o", key="k").replayed
    assert charge.once("o", 5, key="k").replayed
    assert newer.once("o", key="k").replayed
    for other in ({"currency": "USD"}, {"note": "x"}):
        with pytest.raises(KeyReused):
            newer.once("o", key="k", **other)
    with pytest.raises(KeyReused):
        newer.once("o", 5, "EUR", "more", key="k")


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, "1"), (1, True), (1, Decimal(1)), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), (None, ""), ("a", b"a")],
)
def test_values_that_differ_are_another_call(memory: Guard, first: Any, second: Any) -> None:
    """By their type, too."""

    @operation(memory)
    def charge(amount: Any) -> None: ...

    charge.once(first, key="k")
    assert charge.once(first, key="k").replayed
    with pytest.raises(KeyReused):
        charge.once(second, key="k")


def test_the_order_of_members_does_not_matter(memory: Guard) -> None:
    """Dictionaries and sets have none."""

    @operation(memory)
    def charge(amount: Any) -> None: ...

    charge.once({"a": {1, 2, 30}, "b": 2}, key="k")
    assert charge.once({"b": 2, "a": {30, 2, 1}}, key="k").replayed


def test_what_cannot_be_compared_is_refused_when_decorated(memory: Guard) -> None:
    """If its annotation shows it."""
    with pytest.raises(ConfigurationError, match=r"session is a Session.*ignore=\('session',\)"):

        @operation(memory)
        def charge(session: Session, order: str) -> None: ...


def test_or_when_called_and_before_anything_is_done(memory: Guard) -> None:
    """If only its value shows it."""

    @operation(memory)
    def charge(session: Any) -> None:
        raise AssertionError("not reached")

    with pytest.raises(TypeError, match=r"session.*ignore=\('session',\)"):
        charge.once(io.StringIO(), key="k")
    assert memory.counts() == {}


UNSET: Any = object()


def test_a_default_that_only_marks_what_was_not_passed(memory: Guard) -> None:
    """It has no value to compare, and is not there where it is not passed."""

    @operation(memory)
    def charge(amount: int, note: str = UNSET) -> None: ...

    charge.once(5, key="k")
    assert charge.once(5, key="k").replayed
    with pytest.raises(KeyReused):
        charge.once(5, "thanks", key="k")


def test_what_is_ignored_is_not_compared(memory: Guard) -> None:
    """It is passed on all the same."""

    @operation(memory, ignore=("session",))
    def charge(session: Session, order: str) -> str:
        assert isinstance(session, Session)
        return order

    charge.once(Session(), "o", key="k")
    assert charge.once(Session(), "o", key="k").replayed


def test_the_target_may_be_a_part_of_what_cannot_be_compared(memory: Guard) -> None:
    """It stands for the whole."""

    class Account:
        def __init__(self, id: int) -> None:
            self.id = id

    @operation(memory, target="account.id")
    def charge(account: Account) -> None: ...

    @operation(memory, target=lambda account: account.id, ignore=("account",), action="charge")
    def by_function(account: Account) -> None: ...

    charge.once(Account(1), key="k")
    assert charge.once(Account(1), key="k").replayed
    assert by_function.once(Account(1), key="k").replayed
    with pytest.raises(KeyReused):
        charge.once(Account(2), key="k")
    with pytest.raises(TypeError, match="its target is None: expected the id"):
        charge.once(Account(None), key="k")  # type: ignore[arg-type]


def test_arguments_that_the_function_does_not_take(memory: Guard) -> None:
    """As Python says it, and nothing is done."""

    @operation(memory)
    def charge(order: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        charge.once(key="k")
    assert memory.counts() == {}


def generator() -> Iterator[int]:
    yield 1


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 1


def with_key(key: str) -> None: ...


def unresolved() -> "Counter[str]": ...  # type: ignore[empty-body]


def not_storable() -> Session: ...  # type: ignore[empty-body]


def nothing(order: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        (generator, {}, "is a generator"),
        (asynchronous_generator, {}, "is a generator"),
        (with_key, {}, "a parameter 'key', which is an argument of once"),
        (unresolved, {}, "not known when it is decorated"),
        (not_storable, {}, "Session"),
        (nothing, {"action": ""}, "must be a word"),
        (nothing, {"target": "orders"}, "has no parameter 'orders'"),
        (nothing, {"target": "order id"}, "is not the name of a parameter"),
        (nothing, {"target": 7}, "is neither the name of a parameter"),
        (nothing, {"ignore": ("x",)}, "has no parameter 'x'"),
        (nothing, {"ignore": "order"}, "must be a tuple of parameters"),
        (nothing, {"required": True}, "required is not an option of operations"),
        (nothing, {"effects": "somewhere"}, "is not a choice"),
        (nothing, {"effects": "database"}, "in the database of the records|database of the records"),
        (nothing, {"scope": ["ann"]}, "expected a string"),
        (7, {}, "expected a function or a method"),
        (staticmethod(nothing), {}, "expected a function or a method"),
    ],
)
def test_what_cannot_work_is_refused_when_decorated(
    memory: Guard, function: Any, options: Any, reason: str
) -> None:
    """And not at its first call."""
    with pytest.raises(ConfigurationError, match=reason):
        operation(memory, **options)(function)


def test_a_guard_is_needed() -> None:
    """And not the address of a store."""
    with pytest.raises(ConfigurationError, match="is not a Guard"):
        operation("sqlite:///keys.db")  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [0, -1, "soon", float("nan")])
def test_how_long_to_wait_is_checked(memory: Guard, wait: Any) -> None:
    """It is a duration as everywhere."""

    @operation(memory)
    def charge() -> None: ...

    with pytest.raises(ConfigurationError, match="wait="):
        charge.once(key="k", wait=wait)


@pytest.mark.parametrize("target", ["x" * 1025, "é" * 513], ids=["letters", "bytes"])
def test_a_target_is_an_id_and_no_text(guard: Guard, target: str) -> None:
    """Databases index it, and refuse what is too long for that, as if they could not be reached."""

    @operation(guard, target="order")
    def charge(order: str) -> str:
        return order

    with pytest.raises(TypeError, match=r"charge: its target has 102\d bytes: expected the id"):
        charge.once(target, key="k")
    longest = random.Random(1).randbytes(512).hex()  # does not compress
    assert charge.once(longest, key="k").value == longest


@pytest.mark.parametrize("scope", ["", " ", "None", {}, {"tenant": None}])
def test_nothing_is_not_an_owner(memory: Guard, scope: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"charge: scope=.* is not an owner"):
        operation(memory, scope=scope)(charge)


def charge() -> None:
    """As plain as a function can be."""


@pytest.mark.parametrize("function", [max, int], ids=["function", "class"])
def test_a_function_that_does_not_say_its_parameters(memory: Guard, function: Any) -> None:
    for call in (operation(memory, returns=int), once(memory, key="k", action="a", returns=int).call):
        with pytest.raises(ConfigurationError, match="call it in a function of your own"):
            call(function)


def test_annotations_that_are_no_types(memory: Guard) -> None:
    """Notes to the reader, as they were written before annotations were types."""

    def charge(order: str, amount: int) -> None: ...

    charge.__annotations__ = {"order": "the id of an order", "amount": "5", "return": "the id"}
    with pytest.raises(ConfigurationError, match="return annotation 'the id' is not a type"):
        operation(memory)(charge)
    assert operation(memory, returns=None)(charge).once("o", 5, key="k") == Done(None, replayed=False)


def test_what_returns_any_is_no_coroutine_function(memory: Guard) -> None:
    """For type checkers, to which `Any` may be a coroutine as well."""

    @operation(memory)
    def charge(order: str) -> Any:
        return order

    assert charge.once("o", key="k").value == "o"


class Order:
    def cancel(self, reason: str) -> str:
        return f"cancelled: {reason}"


def test_it_is_pickled_as_a_function_is(memory: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of processes takes `charge.once`, and whoever copies what holds an operation copies no guard."""
    made: Any = operation(memory)(charge)
    cancel: Any = operation(memory, ignore=("self",))(Order.cancel)
    monkeypatch.setitem(globals(), "charge", made)
    monkeypatch.setattr(Order, "cancel", cancel)
    assert pickle.loads(pickle.dumps(made)) is made
    assert copy.deepcopy(made) is made
    assert pickle.loads(pickle.dumps(Order.cancel)) is cancel
    once_bound = cancel.__get__(Order()).once
    for again in (pickle.loads(pickle.dumps(once_bound)), copy.deepcopy(once_bound)):
        assert again("late", key="k").value == "cancelled: late"
    assert pickle.loads(pickle.dumps(made.once))(key="charge") == Done(None, replayed=False)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(operation(memory)(lambda: None))
