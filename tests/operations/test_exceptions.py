"""Declared exceptions come back as the same class with the same content."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrysafe.errors import ConfigurationError, UnreadableRecord
from retrysafe.operations.values.codec import NotEncodable
from retrysafe.operations.values.exceptions import ErrorCodec


class Declined(Exception):
    """Its `__init__` takes something else than `args` holds."""

    def __init__(self, card: str, *, code: int, at: datetime | None = None) -> None:
        super().__init__(f"{card} was declined")
        self.code = code
        self.at = at


class HarderDeclined(Declined):
    pass


class WithNew(Exception):
    def __new__(cls, needed: int) -> "WithNew":  # pyright: ignore[reportInconsistentConstructor]
        made = super().__new__(cls, needed)
        made.needed = needed
        return made

    needed: int


class Slotted(Exception):
    __slots__ = ("reason", "unset")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.unset: int


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Broken(Exception):
    __slots__ = ("reason",)

    def __getattribute__(self, name: str) -> Any:
        if name == "reason":
            raise ZeroDivisionError
        return super().__getattribute__(name)


@attrs.define
class Attrs(Exception):
    code: int


def content(error: BaseException) -> object:
    return type(error), error.args, error.__dict__, str(error)


def round_trip(error: Exception) -> bytes:
    data = ErrorCodec((type(error),)).encode(error)
    assert data is not None
    again = ErrorCodec((type(error),)).decode(data)
    assert content(again) == content(error)
    json.loads(data)
    return data


def noted() -> Exception:
    error = ValueError("a")
    error.add_note("b")
    return error


@pytest.mark.parametrize(
    "error",
    [
        Declined("visa", code=51, at=datetime(2026, 1, 1, tzinfo=UTC)),
        WithNew(5),
        Slotted("a"),
        Frozen(1),
        Attrs(1),
        noted(),
        KeyError(("a", 1)),
        ValueError(),
        ValueError(Decimal("1.00"), {1: {"a"}}, [None, True, b"x"], frozenset({date(2026, 1, 1)}), 10**1000),
        FileNotFoundError(2, "none", "a.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ImportError("x", name="a"),
        StopIteration(5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_it_was(error: Exception) -> None:
    """Its class, arguments, attributes and slots, however it is built."""
    round_trip(error)


def test_slots_come_back() -> None:
    """Also what built-in exceptions hold outside of `args`, and not what was never set."""
    codec = ErrorCodec((Slotted, FileNotFoundError, Attrs))
    again: Any = codec.decode(codec.encode(Slotted("a")) or b"")
    assert again.reason == "a"
    assert not hasattr(again, "unset")
    again = codec.decode(codec.encode(FileNotFoundError(2, "none", "a.txt")) or b"")
    assert (again.errno, again.filename) == (2, "a.txt")
    again = codec.decode(codec.encode(Attrs(7)) or b"")
    assert again.code == 7


def test_what_is_stored_can_be_read_by_people() -> None:
    """JSON, with types only where JSON lacks them; records that exist are read by later releases."""
    data = round_trip(Declined("visa", code=51))
    name = f"{__name__}:Declined"
    assert json.loads(data) == {
        "type": name,
        "args": ["visa was declined"],
        "state": {"code": 51, "at": None},
    }
    assert b'"args":[{"Decimal":"1.0"},{"tuple":[1]}]' in round_trip(ValueError(Decimal("1.0"), (1,)))


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.just(UTC))
    | st.uuids(),
    lambda one: (
        st.lists(one, max_size=3)
        | st.lists(one, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), one, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_VALUES, max_size=3), st.dictionaries(st.sampled_from("abc"), _VALUES))
def test_any_content_comes_back(args: list[object], state: dict[str, object]) -> None:
    """Arguments and attributes at random."""
    error = RuntimeError(*args)
    error.__dict__.update(state)
    round_trip(error)


def test_nan_comes_back() -> None:
    """It is equal to nothing, so it is looked at."""
    codec = ErrorCodec((ValueError,))
    (again,) = codec.decode(codec.encode(ValueError(math.nan)) or b"").args
    assert math.isnan(again)


def test_only_exactly_declared_classes_are_stored() -> None:
    """A subclass would come back as another class: it is a failure like any other."""
    codec = ErrorCodec((Declined,))
    assert codec.encode(HarderDeclined("visa", code=51)) is None
    assert codec.encode(ValueError()) is None
    assert ErrorCodec(()).encode(Declined("visa", code=1)) is None


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 0


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError(object()), r"value.args\[0\] is of type object, which is not stored with an exception"),
        (ValueError("a", [{1: object()}]), r"value.args\[1\]\[…\]\[…\] is of type object"),
        (Declined("a", code=True, at=ValueError()), "value.at is of type ValueError"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (ValueError(nested(200)), "nested deeper than 100 levels"),
        (Broken(), "Broken cannot be read: ZeroDivisionError"),
        (ValueError(type("set", (frozenset,), {})("a")), r"value.args\[0\] is of type set"),
    ],
    ids=["args", "nested", "state", "deep", "broken", "a class with the name of another"],
)
def test_what_would_not_come_back_is_refused(error: Exception, says: str) -> None:
    """What an exception holds must be readable without an annotation."""
    with pytest.raises(NotEncodable, match=says):
        ErrorCodec((type(error),)).encode(error)


def test_a_class_that_was_moved_is_still_found() -> None:
    """One process may run a module that another imports, as `__main__`."""
    codec = ErrorCodec((Declined,))
    data = codec.encode(Declined("visa", code=1)) or b""
    moved = data.replace(__name__.encode(), b"__main__")
    assert moved != data
    assert type(codec.decode(moved)) is Declined


def test_classes_are_only_looked_for_among_the_declared() -> None:
    """Stored bytes cannot name a class to be made: not one that exists, nor one that was declared once."""
    stored = ErrorCodec((KeyError,)).encode(KeyError("s3cr3t")) or b""
    with pytest.raises(
        UnreadableRecord, match=r"its class is not declared.*not in raises= any more"
    ) as caught:
        ErrorCodec((Declined,)).decode(stored)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b'{"type":"builtins:ValueError"}',
        b'{"type":"builtins:ValueError","args":1,"state":{}}',
        b'{"type":"builtins:ValueError","args":[{}],"state":{}}',
        b'{"type":"builtins:ValueError","args":[{"os":1}],"state":{}}',
        b'{"type":"builtins:ValueError","args":[{"set":[[]]}],"state":{}}',
        b'{"type":"builtins:ValueError","args":[{"dict":[[1]]}],"state":{}}',
        b'{"type":"builtins:ValueError","args":[{"Decimal":"x"}],"state":{}}',
        b'{"type":"builtins:ValueError","args":[],"state":[]}',
        b'{"type":"builtins:ValueError","args":[],"state":{},"slots":{"x":1}}',
        b'{"type":["builtins:ValueError"],"args":[],"state":{}}',
    ],
    ids=lambda data: repr(data[:70]),
)
def test_damaged_bytes_are_unreadable(data: bytes) -> None:
    """No other exception, least of all one that a caller would take for the stored one."""
    with pytest.raises(UnreadableRecord) as caught:
        ErrorCodec((ValueError,)).decode(data)
    assert caught.value.__cause__ is None


def test_a_message_about_stored_bytes_does_not_repeat_them() -> None:
    """What is stored may be secret, and messages are logged."""
    for tag in ("Decimal", "date", "int", "float", "UUID", "s3cr3t"):
        content = {"type": "builtins:ValueError", "args": [{tag: "s3cr3t"}], "state": {}}
        with pytest.raises(UnreadableRecord) as caught:
            ErrorCodec((ValueError,)).decode(json.dumps(content).encode())
        assert "s3cr3t" not in str(caught.value)


def twin() -> type[Exception]:
    class Twin(Exception):
        pass

    return Twin


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ((int,), "raises= has <class 'int'>, expected classes of exceptions"),
        ((KeyboardInterrupt,), "expected classes of exceptions"),
        (("Declined",), "raises= has 'Declined', expected"),
        ((ExceptionGroup,), "raises= has ExceptionGroup, which cannot be stored"),
        ((twin(), twin()), "raises= has two classes that are called .*Twin; rename one"),
    ],
)
def test_what_cannot_be_declared_is_refused_when_built(types: Any, says: str) -> None:
    """What was found, and what to do."""
    with pytest.raises(ConfigurationError, match=says):
        ErrorCodec(types)
