"""Return values come back from the store equal and of the same type, or were refused before."""

import functools
import io
import json
import math
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from inspect import Signature
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import (
    IO,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    LiteralString,
    NewType,
    NoReturn,
    Optional,
    Protocol,
    Self,
    TypeVar,
    Union,
)
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from sqlmodel import Field as SqlField
from sqlmodel import SQLModel
from typing_extensions import TypeAliasType

from retrysafe.errors import ConfigurationError, UnreadableRecord
from retrysafe.operations.values.codec import Codec, NotEncodable, codec
from tests.operations.shapes import Address, ForTypeCheckers, Numbers, Options, Page, Point, Tree

T = TypeVar("T")


class Colour(Enum):
    RED = 1
    ALSO_RED = 1  # noqa: PIE796 (an alias)
    GREEN = "green"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Bits(Flag):
    A = 1
    B = 2


class IntBits(IntFlag):
    A = 1
    B = 2


@dataclass
class Line:
    sku: str
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    id: int
    lines: tuple[Line, ...]
    at: datetime | None = None
    total: Decimal = field(init=False, default=Decimal(0))

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum((line.amount for line in self.lines), Decimal(0)))


@dataclass
class Refund:
    id: int
    lines: tuple[Line, ...]
    at: datetime | None = None


@dataclass
class Box(Generic[T]):
    content: T


@attrs.define
class Slotted:
    id: int
    tags: list[str] = attrs.field(factory=list)
    _private: str | None = None


@attrs.frozen
class Frozen:
    id: int


class Item(pydantic.BaseModel):
    sku: str
    price: Decimal
    at: datetime | None = None


class Basket(pydantic.BaseModel, Generic[T]):
    model_config = pydantic.ConfigDict(strict=True, frozen=True)
    content: T
    by_day: dict[date, int] = {}
    renamed: int = pydantic.Field(default=0, validation_alias="in", serialization_alias="out")


class Names(pydantic.RootModel[list[str]]):
    pass


@pydantic.dataclasses.dataclass
class Validated:
    id: int
    name: Annotated[str, pydantic.Field(max_length=10)] = ""


UserId = NewType("UserId", int)
Alias = TypeAliasType("Alias", int | list[int])
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))


def alike(one: Any, other: Any) -> bool:
    """Equal, and of the same type all the way down; NaN is NaN, and zero has a sign."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and bool(one == other or math.isnan(one))
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == other.as_tuple())
    if isinstance(one, datetime | time):
        return (one.isoformat(), one.fold, str(one.tzinfo)) == (
            other.isoformat(),
            other.fold,
            str(other.tzinfo),
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return alike(list(one.items()), list(other.items()))
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and all(any(alike(a, b) for b in other) for a in one)
    if is_dataclass(one):
        return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def round_trip(annotation: object, value: object) -> bytes:
    """What was stored, after it was read again by a codec of its own, as another process would."""
    data = codec(annotation, name="f").encode(value)
    again = codec(annotation, name="f").decode(data)
    assert alike(again, value), f"{again!r} is not {value!r}"
    json.loads(data)  # others can read it, too
    return data


BERLIN = ZoneInfo("Europe/Berlin")
REPEATED = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)

VALUES: list[tuple[object, object]] = [
    (None, None),
    (type(None), None),
    (bool, True),
    (int, 10**5000),
    (int, -(2**2001)),
    (float, math.nan),
    (float, -math.inf),
    (float, -0.0),
    (float, 1e16),
    # PEP 484: where `float` is annotated, an `int` may be returned.
    (float, 5),
    (float | None, 2**3000),
    (str, "\x00 \ud800 ü 😀"),
    (str, "\udc00\ud800"),
    (LiteralString, "x"),
    (bytes, bytes(range(256))),
    (Decimal, Decimal("1.00")),
    (Decimal, Decimal("-NaN123")),
    (Decimal, Decimal("1E+999999")),
    (Decimal, Decimal("-0E-5")),
    (Fraction, Fraction(-(10**5000), 7)),
    (datetime, datetime(1, 1, 1)),  # noqa: DTZ001 (naive ones come back, too)
    (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=timezone(timedelta(hours=-3, microseconds=7)))),
    (datetime, REPEATED),
    (datetime, REPEATED.replace(fold=1)),
    (datetime, datetime(2026, 1, 1, fold=1)),  # noqa: DTZ001
    (date, date(9999, 12, 31)),
    (time, time(23, 59, 59, 999999, fold=1)),
    (time, time(1, 2, tzinfo=BERLIN)),
    (time, time(1, 2, tzinfo=timezone(timedelta(minutes=90)))),
    (timedelta, timedelta.max),
    (timedelta, timedelta.min),
    (UUID, UUID(int=7)),
    (Path, Path("/a/\udcff")),
    (PurePath, PurePath("a")),
    (PurePosixPath, PurePosixPath("a/b")),
    (PureWindowsPath, PureWindowsPath("c:\\a")),
    (Colour, Colour.ALSO_RED),
    (Colour, Colour.GREEN),
    (Level, Level.LOW),
    (Word, Word.YES),
    (Bits, Bits.A),
    (Bits, Bits.A | Bits.B),
    (Bits, Bits(0)),
    (IntBits, IntBits.B),
    (IntBits, IntBits(16)),
    (Literal["a", 1, None, True, b"x", Colour.RED], 1),
    (Literal["a", 1, None, True, b"x", Colour.RED], True),
    (Literal["a", 1, None, True, b"x", Colour.RED], None),
    (Literal["a", 1, None, True, b"x", Colour.RED], Colour.RED),
    (Literal["a", 1, None, True, b"x", Colour.RED], b"x"),
    (list[int], [1, 2]),
    (list, [1, "a", None, {"a": [1.5]}]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (tuple, (1, "a")),
    (set[date], {date(2026, 1, 1)}),
    (frozenset[tuple[int, str]], frozenset({(1, "a")})),
    (dict[str, Decimal], {"a": Decimal("1.0"), "": Decimal(2)}),
    (dict[UUID, list[int]], {UUID(int=1): [1]}),
    (dict[tuple[int, int], None], {(1, 2): None}),
    (dict, {"a": {"b": 1}}),
    (dict[Any, Any], {"a": 1}),
    (Sequence[int], [1]),
    (Sequence[int], (1,)),
    (MutableSequence[int], [1]),
    (Collection[int], frozenset({1})),
    (Set[int], {1}),
    (MutableSet[int], {1}),
    (Mapping[str, int], {"a": 1}),
    (MutableMapping[int, int], {1: 1}),
    (Point, Point(1, 2)),
    (Options, {"id": 1}),
    (Options, {"id": 1, "fixed": "x"}),
    (Address, {"street": "a"}),
    (Address, {"door": 1, "street": "a"}),
    (Receipt, Receipt(id=1, lines=(Line("a", Decimal("1.10")),), at=datetime(2026, 1, 1, tzinfo=UTC))),
    (Receipt | Refund, Refund(1, ())),
    (Receipt | Refund, Receipt(id=1, lines=())),
    (Receipt | None, None),
    (Tree, Tree("a", [Tree("b", [Tree("c")])], Tree("d"))),
    (Page[Receipt], Page([Receipt(id=1, lines=())], Page([]))),
    (Numbers, Numbers([1, 2], total=3)),
    (Box[list[Box[int] | None]], Box([Box(1), None])),
    (Slotted, Slotted(1, ["a"], "p")),
    (Slotted | Frozen | None, Frozen(1)),
    (Item, Item(sku="a", price=Decimal("1.00"), at=datetime(2026, 1, 1, tzinfo=UTC))),
    (Item | None, None),
    (Item | Names | Refund, Names(["a"])),
    (list[Item], [Item(sku="a", price=Decimal(1))]),
    (Basket[Item], Basket[Item](content=Item(sku="ü", price=Decimal(1)), by_day={date(2026, 1, 1): 1})),
    (Basket[int], Basket[int].model_validate({"content": 1, "in": 7})),
    (Names, Names(["a"])),
    (Validated, Validated(1, "a")),
    (UserId, 5),
    (Annotated[int, "unhashable", []], 5),
    (Annotated[list[Annotated[str, []]] | None, []], ["a"]),
    (Page[list[Annotated[int, []]]], Page([[1]], Page([[2]]))),
    (Final[int], 5),
    (Alias, [1, 2]),
    (Pair[Decimal], (Decimal("1.0"), Decimal(2))),
    (Alias | None, None),
    (int | float | str | None, 1),
    (int | float | str | None, 1.0),
    (str | datetime | Decimal | bytes | UUID | date, date(2026, 1, 1)),
    (str | datetime | Decimal | bytes | UUID | date, "2026-01-01"),
    (bool | int, True),
    (bool | int, 1),
    (list[int] | list[str] | dict[str, int] | dict[int, int], ["a"]),
    (list[int] | list[str] | dict[str, int] | dict[int, int], {1: 1}),
    (Literal["a"] | str, "b"),
    (Optional[Any], {"a": None}),  # noqa: UP045
    (Union[None, list[Any], Level], Level.LOW),  # noqa: UP007
    (Any, {"a": [1, 1.5, "x", None, True]}),
    (object, [[]]),
    (Signature.empty, "x"),
]


# Named by the annotation: some values are longer than Python writes.
@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[str(one)[:40] for one, _ in VALUES])
def test_a_value_comes_back_as_it_was(annotation: object, value: object) -> None:
    """Every kind of value that is supported, with what is awkward about it."""
    round_trip(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (Receipt | None, Receipt(id=1, lines=()), '{"id":1,"lines":[],"at":null,"total":"0"}'),
        (str | int | None, "ü", '"ü"'),
        (str | datetime, "x", '["str","x"]'),
        (Sequence[int], (1,), '["tuple",[1]]'),
        (dict[int, str], {1: "a"}, '[[1,"a"]]'),
        (Colour, Colour.RED, '"RED"'),
        (datetime, REPEATED.replace(fold=1), '"2026-10-25T02:30:00+01:00[Europe/Berlin][_fold=1]"'),
        (Item, Item(sku="a", price=Decimal("1.0")), '{"sku":"a","price":"1.0","at":null}'),
    ],
)
def test_what_is_stored_can_be_read_by_people(annotation: object, value: object, stored: str) -> None:
    """Compact JSON with a tag only where it is needed; records that exist are read by later releases."""
    assert round_trip(annotation, value).decode() == stored


# Annotations with values for them.
_ZONES: Any = st.sampled_from(
    [None, UTC, BERLIN, timezone(timedelta(hours=-7, seconds=-30)), ZoneInfo("Asia/Kolkata")]
)
_TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\ud800\udbff"), max_size=5)
_HASHABLE: list[tuple[object, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, st.integers() | st.integers(2**1990, 2**2010)),
    (str, _TEXT),
    (bytes, st.binary(max_size=5)),
    (Decimal, st.decimals(allow_nan=False)),
    (Fraction, st.fractions()),
    (datetime, st.datetimes(timezones=_ZONES, min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1))),  # noqa: DTZ001
    (date, st.dates()),
    (time, st.times(timezones=_ZONES)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (PurePosixPath, st.from_regex(r"/?[a-z]{1,3}(/[a-z]{1,3})?", fullmatch=True).map(PurePosixPath)),
    (Colour, st.sampled_from(Colour)),
    (Bits, st.integers(0, 3).map(Bits)),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Point, st.builds(Point, st.integers(), st.integers())),
]
_LEAVES: list[tuple[object, st.SearchStrategy[Any]]] = [
    *_HASHABLE,
    (float, st.floats()),
    (
        Any,
        st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda one: st.lists(one, max_size=3)),
    ),
    (Line, st.builds(Line, _TEXT, st.decimals())),
    (Options, st.fixed_dictionaries({"id": st.integers()}, optional={"name": _TEXT})),
    (Tree, st.builds(Tree, _TEXT, st.lists(st.builds(Tree, _TEXT), max_size=2))),
    (Frozen, st.builds(Frozen, st.integers())),
    (
        Item,
        st.builds(Item, sku=st.text(max_size=3), price=st.decimals(allow_nan=False, allow_infinity=False)),
    ),
]

_Pair = tuple[Any, st.SearchStrategy[Any]]


def of(generic: Any, *arguments: object) -> Any:
    return generic[arguments]


def _wrap(inner: st.SearchStrategy[_Pair]) -> st.SearchStrategy[_Pair]:
    hashable = st.sampled_from(_HASHABLE)
    several = st.lists(inner, max_size=3)
    return st.one_of(
        inner.map(lambda one: (of(list, one[0]), st.lists(one[1], max_size=3))),
        inner.map(lambda one: (of(tuple, one[0], ...), st.lists(one[1], max_size=3).map(tuple))),
        several.map(lambda all: (of(tuple, *(one for one, _ in all)), st.tuples(*(one for _, one in all)))),
        inner.map(lambda one: (of(dict, str, one[0]), st.dictionaries(_TEXT, one[1], max_size=3))),
        st.tuples(hashable, inner).map(
            lambda both: (
                of(dict, both[0][0], both[1][0]),
                st.dictionaries(both[0][1], both[1][1], max_size=3),
            )
        ),
        hashable.map(lambda one: (of(frozenset, one[0]), st.frozensets(one[1], max_size=3))),
        inner.map(lambda one: (of(Box, one[0]), st.builds(Box, one[1]))),
        inner.map(lambda one: (of(Page, one[0]), st.builds(Page, st.lists(one[1], max_size=2)))),
        several.filter(bool).map(
            lambda all: (of(Union, *(one for one, _ in all)), st.one_of([one for _, one in all]))
        ),
    )


ANNOTATED = st.recursive(st.sampled_from(_LEAVES), _wrap, max_leaves=6)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
def test_any_value_of_any_annotation_comes_back(data: st.DataObject) -> None:
    """Annotations nested in each other at random, and values that are as they say."""
    annotation, values = data.draw(ANNOTATED)
    round_trip(annotation, data.draw(values))


def all_codecs() -> list[Codec]:
    found: dict[str, Codec] = {}
    for annotation, _ in VALUES:
        found.setdefault(repr(annotation), codec(annotation, name="f"))
    return list(found.values())


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(
        ["nan", "../../etc/passwd", "2026-01-01[America]", "1e999999999", "tuple", "RED", "hex"]
    ),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.sampled_from(["hex", "id", "x", "name"]), one),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=20) | _JSON.map(lambda tree: json.dumps(tree).encode()))
def test_foreign_bytes_are_read_or_unreadable(data: bytes) -> None:
    """Whatever a store holds, no decoder raises anything but `UnreadableRecord`."""
    for one in ALL:
        with suppress(UnreadableRecord):
            one.decode(data)


ALL = all_codecs()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VALUES), st.data())
def test_damaged_bytes_are_read_or_unreadable(pair: tuple[object, object], data: st.DataObject) -> None:
    """Bytes of a real record with one changed, removed or put in."""
    one = codec(pair[0], name="f")
    stored = bytearray(one.encode(pair[1]))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    with suppress(UnreadableRecord):
        one.decode(bytes(stored))


HOSTILE = [
    b"",
    b"\xff",
    b"\xef\xbb\xbf1",
    b"NaN",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5000,
    b"-",
    b'"\\ud800',
    b'"2026-01-01T00:00:00[../../../etc/passwd]"',
    b'"2026-01-01T00:00:00[/etc/passwd]"',
    b'"2026-01-01T00:00:00[Europe]"',
    b'"2026-01-01T00:00:00[No/Such_Zone]"',
    b'"00:00[Europe]"',
    b'{"hex":"zz"}',
    b'{"hex":1}',
    b'{"hex":"1","x":1}',
    b'["nan","nan"]',
    b"[1,0]",
    b"1e999",
    b'["os.system","true"]',
    b"[[[],1]]",
    b"[[1,1],[1,2]]",
    b"[1,1]",
    b'{"id":1,"lines":[],"at":null,"total":"0","more":1}',
    b'{"__class__":"x"}',
    b"999999999999999999999999999999",
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: repr(data[:30]))
def test_hostile_bytes_are_read_or_unreadable(data: bytes) -> None:
    """Bytes made to lead a decoder astray: out of the time zones' folder, out of memory, out of the stack."""
    read = 0
    for one in ALL:
        with suppress(UnreadableRecord):
            one.decode(data)
            read += 1
    assert read < len(ALL)


@pytest.mark.parametrize(
    ("written", "read", "value"),
    [
        (int, str, 1),
        (str, int, "1"),
        (int, bool, 1),
        (Receipt, Line, Receipt(id=1, lines=())),
        (Page[int], Point, Page([])),
        (Numbers, Page[int], Numbers([1])),
        (Receipt | Refund, Line | Box[int], Refund(1, ())),
        (str | datetime, str, "x"),
        (Colour, Bits, Colour.RED),
        (Literal["a"], Literal["b"], "a"),
        (list[int], set[int], [1, 1]),
        (tuple[int, ...], tuple[int], (1, 2)),
        (Options, Address, {"id": 1}),
        (list[int], Item, [1]),
    ],
)
def test_a_value_of_another_annotation_is_unreadable(written: object, read: object, value: object) -> None:
    """A function whose annotation has changed does not return something that it never did."""
    data = codec(written, name="f").encode(value)
    with pytest.raises(UnreadableRecord, match=r"f cannot be read as .* or was stored when the annotation"):
        codec(read, name="f").decode(data)


def test_a_field_that_was_added_has_its_default() -> None:
    """A deployment in the middle of a retry: what was stored before it lacks the new fields."""
    assert codec(Tree, name="f").decode(b'{"name":"a"}') == Tree("a")
    assert codec(Point, name="f").decode(b'{"x":1}') == Point(1)
    assert codec(Slotted, name="f").decode(b'{"id":1}') == Slotted(1)
    assert codec(Item, name="f").decode(b'{"sku":"a","price":"1"}') == Item(sku="a", price=Decimal(1))


@pytest.mark.parametrize("data", [b'"s3cr3t"', b'["s3cr3t"]', b'{"s3cr3t":"s3cr3t"}', b'{"hex":"s3cr3t"}'])
def test_a_message_about_stored_bytes_does_not_repeat_them(data: bytes) -> None:
    """What is stored may be secret, and messages are logged.  Python's own texts repeat what they refuse."""
    messages: list[str] = []
    for one in ALL:
        try:
            one.decode(data)
        except UnreadableRecord as error:
            messages.append(f"{error} {error.__cause__}")
    assert len(messages) > len(ALL) / 2
    assert [message for message in messages if "s3cr3t" in message] == []


def test_a_message_about_a_value_does_not_repeat_its_keys() -> None:
    """Keys of a dictionary are data as well."""
    for annotation in (dict[str, int], Any):
        with pytest.raises(NotEncodable, match=r"value\[…\] is of type set") as caught:
            codec(annotation, name="f").encode({"s3cr3t": {1}})
        assert "s3cr3t" not in str(caught.value)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class LineWithMore(Line):
    pass


class ItemWithMore(Item):
    more: int = 1


class Elsewhere(tzinfo):
    """A zone of a class that is not known, with a summer time that begins in October's repeated hour."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else timedelta(hours=2 - dt.fold)

    def dst(self, dt: datetime | None) -> timedelta | None:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return "elsewhere"


class Fixed(Elsewhere):
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return timedelta(hours=2)


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr


class InsideOf(pydantic.BaseModel):
    secrets: list[Secret | None]


class Shown(pydantic.BaseModel):
    """Its secrets are written as they are."""

    one: pydantic.SecretStr
    other: Annotated[pydantic.SecretStr, pydantic.PlainSerializer(lambda one: one.get_secret_value())]
    more: list[Annotated[pydantic.SecretStr, pydantic.PlainSerializer(lambda one: one.get_secret_value())]]

    @pydantic.field_serializer("one")
    def show(self, one: pydantic.SecretStr) -> str:
        return one.get_secret_value()


class ExcludedAndRequired(pydantic.BaseModel):
    hidden: int = pydantic.Field(exclude=True)


class Excluded(pydantic.BaseModel):
    hidden: int = pydantic.Field(default=0, exclude=True)


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    anything: Any = None


class Silent(pydantic.BaseModel):
    one: int = 1

    @pydantic.model_serializer
    def nothing(self) -> None:
        return None


@dataclass
class WithMore:
    id: int

    def remember(self) -> Self:
        self.seen = True
        return self

    @functools.cached_property
    def double(self) -> int:
        return self.id * 2


@dataclass
class Failing:
    id: int

    def __getattribute__(self, name: str) -> Any:
        if name == "id":
            raise ZeroDivisionError
        return super().__getattribute__(name)


@dataclass
class Unset:
    id: int = field(init=False)


def linked(length: int) -> Page[int]:
    page: Page[int] = Page([])
    for _ in range(length):
        page = Page([], page)
    return page


def repr_of_type(parameter: object) -> str | None:
    """Of values, which may be endless, only the type."""
    return None if isinstance(parameter, str) else type(parameter).__name__


CIRCULAR: list[object] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (int, True, "is of type bool, expected exactly int"),
        (int, Whole(1), "is of type Whole, expected exactly int"),
        (float, True, "is of type bool, expected exactly float"),
        (str, Text("a"), "is of type Text, expected exactly str"),
        (str, Word.YES, "is of type Word, expected exactly str"),
        (str, None, "is of type NoneType, expected exactly str"),
        (str, "\ud83d\ude00", "stored as two surrogates"),
        (date, datetime(2026, 1, 1, tzinfo=UTC), "is of type datetime, expected exactly date"),
        (datetime, datetime(2026, 1, 1, tzinfo=Elsewhere()), "is in a time zone of Elsewhere"),
        (time, time(1, tzinfo=Elsewhere()), "is in a time zone of Elsewhere"),
        (Line, LineWithMore("a", Decimal(1)), "is of type LineWithMore, expected exactly Line"),
        (Item, ItemWithMore(sku="a", price=Decimal(1)), "is of type ItemWithMore, expected exactly Item"),
        (
            Basket[Item],
            Basket[Item].model_construct(content=ItemWithMore(sku="a", price=Decimal(1))),
            "value",
        ),
        (Loose, Loose(anything=pydantic.SecretStr("x")), "comes back different"),
        (Excluded, Excluded(hidden=1), "comes back different"),
        (Loose, Loose(anything=Level.LOW), "comes back different"),
        (Loose, Loose(anything=object()), "is not written and read by pydantic"),
        (Loose, Loose.model_validate({"extra": (1,)}), "comes back different"),
        (Silent, Silent(), "value"),
        (Receipt, Receipt(id=1, lines=(Line("a", 1),)), r"value.lines\[0\].amount is of type int, expected"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (dict[str, list[int]], {"a": [1, "x"]}, r"value\[…\]\[1\] is of type str"),
        (dict[str, int], {1: 1}, "has a key of int, expected"),
        (dict[int, int], {"a": 1}, r"value\[0\] is of type str, expected exactly int"),
        (dict[str, int], [], "is of type list, expected exactly dict"),
        (dict[int, int], [], "is of type list, expected exactly dict"),
        (Options, [], "is of type list, expected exactly Options"),
        (Options, {}, "does not have the keys of Options"),
        (Options, {"id": 1, "other": 1}, "does not have the keys of Options"),
        (Options, {"id": "a"}, r"value\['id'\] is of type str"),
        (Sequence[str], "abc", "is of type str, expected exactly one of Sequence"),
        (tuple[int], (1, 2), "is a tuple of 2 elements"),
        (tuple[int], [1], "is of type list, expected exactly tuple"),
        (tuple[int, str], (1, 2), r"value\[1\] is of type int"),
        (set[int], frozenset[int](), "is of type frozenset, expected exactly set"),
        (Point, (1, 2), "is of type tuple, expected exactly Point"),
        (Colour, "RED", "is of type str, expected exactly Colour"),
        (Literal["a"], "b", r"is not one of Literal\['a'\]"),
        (Literal[1], True, "is of type bool"),
        (Receipt | None, Line("a", Decimal(1)), "is of type Line, expected exactly one of Receipt | None"),
        (list[int] | list[str] | None, ["a", 1], r"value\[1\] is of type int"),
        (WithMore, WithMore(1).remember(), "has attributes that are not fields of WithMore.*: seen"),
        (Unset, Unset(), "value.id is not set"),
        (Failing, Failing(1), "cannot be read: ZeroDivisionError"),
        (Any, {"a": [{1}]}, r"value\[…\]\[0\] is of type set, not a value of JSON"),
        (Any, {1: 1}, "has a key of int"),
        (Any, math.inf, "is of type float, not a value of JSON"),
        (Any, 2**3000, "is of type int, not a value of JSON"),
        (Any, (1,), "is of type tuple"),
        (Any, Word.YES, "is of type Word"),
        (Any, CIRCULAR, "nested deeper than 100 levels"),
        (Page[int], linked(100), "nested deeper than 100 levels"),
        (Page[int], linked(100_000), "nested too deeply"),
    ],
    ids=repr_of_type,
)
def test_what_would_not_come_back_is_refused(annotation: object, value: object, says: str) -> None:
    """Not as annotated, of a subclass, or with something that JSON or pydantic would drop."""
    one = codec(annotation, name="charge")
    with pytest.raises(NotEncodable, match=says) as caught:
        one.encode(value)
    assert isinstance(caught.value, ValueError)
    assert "charge" in str(caught.value)


def test_what_is_found_out_again_need_not_be_stored() -> None:
    """A cached property fills an attribute that is not a field, and loses nothing."""
    value = WithMore(2)
    assert value.double == 4
    again = codec(WithMore, name="f").decode(codec(WithMore, name="f").encode(value))
    assert isinstance(again, WithMore)
    assert again.double == 4


def test_a_zone_of_another_library_keeps_its_offset() -> None:
    """pytz, dateutil and pydantic have classes of their own; the moment is the same."""
    value = datetime(2026, 1, 1, tzinfo=Fixed())
    again = codec(datetime, name="f").decode(codec(datetime, name="f").encode(value))
    assert isinstance(again, datetime)
    assert (again, again.utcoffset()) == (value, timedelta(hours=2))


def test_classes_are_not_called_to_make_a_value_again() -> None:
    """`__init__` and `__post_init__` may have effects, and these have happened."""
    calls: list[int] = []

    @dataclass
    class Noisy:
        id: int
        extra: InitVar[int] = 0

        def __post_init__(self, extra: int) -> None:
            calls.append(extra)

    one = codec(Noisy, name="f")
    assert one.decode(one.encode(Noisy(1, 2))) == Noisy(1, 3)
    assert calls == [2, 3]


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@dataclass
class Abstract(Shape):
    id: int


class Closing(Protocol):
    def close(self) -> None: ...


class Base(DeclarativeBase):
    pass


class Row(MappedAsDataclass, Base):
    __tablename__ = "row"
    id: Mapped[int] = mapped_column(primary_key=True)


class Table(SQLModel, table=True):
    id: int = SqlField(primary_key=True)


@dataclass
class Holding:
    session: Session


@dataclass
class Outer:
    parts: dict[str, list[Holding]]


@dataclass
class Keyed(dict[str, int]):
    id: int = 0


@dataclass
class Failed(Exception):
    id: int


class HasSlot:
    __slots__ = ("hidden",)


@dataclass
class WithSlot(HasSlot):
    id: int


@dataclass
class Growing(Generic[T]):
    inner: "Growing[list[T]] | None" = None


class Arbitrary(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    session: Session


def same_name() -> object:
    @dataclass
    class Line:
        id: int

    return Line


REFUSED: list[tuple[object, str]] = [
    (Callable[[int], str], "Callable"),
    (Generator[int, None, None], "Generator"),
    (Iterator[int], "Iterator"),
    (Iterable[int], "Iterable"),
    (AsyncIterator[int], "AsyncIterator"),
    (Awaitable[int], "Awaitable"),
    (IO[str], "IO"),
    (io.BytesIO, "BytesIO"),
    (Session, "Session cannot be stored with its type: it is not known what"),
    (type[int], "type"),
    (type, "type"),
    (T, "T cannot be stored with its type: its values are not known"),
    (list[T], "T cannot"),  # type: ignore[valid-type]
    (Page, "Page.items: T cannot"),
    (Self, "Self cannot"),
    (NoReturn, "NoReturn cannot"),
    ("Receipt", "'Receipt' cannot"),
    (list["Receipt"], "'Receipt' cannot"),
    (Closing, "Closing cannot"),
    (Shape, "Shape cannot"),
    (Abstract, "it is abstract; name the classes"),
    (ValueError, "declare it in raises="),
    (Failed, "declare it in raises="),
    (Row, "belongs to a database session"),
    (Table, "belongs to a database session"),
    (Holding, "Holding.session: Session cannot"),
    (Outer | None, "Outer.parts -> Holding.session: Session cannot"),
    (Keyed, "built on a class that holds something of its own"),
    (WithSlot, "slots that are not fields: hidden"),
    (Growing[int], "grow without end"),
    (Arbitrary, "Arbitrary cannot be stored with its type: pydantic cannot"),
    (ForTypeCheckers, "its annotations name 'Session', which its module does not define"),
    (Line | same_name(), "two of its members are called Line"),  # pyright: ignore[reportOperatorIssue, reportUnknownArgumentType]
    (complex, "complex"),
    (bytearray, "bytearray"),
    (tuple[int, *tuple[str, ...]], "how many elements it has is not known"),
    (Secret, "pydantic hides Secret.password, a SecretStr"),
    (InsideOf | None, "pydantic hides Secret.password, a SecretStr"),
    (ExcludedAndRequired, "pydantic excludes ExcludedAndRequired.hidden"),
]


@pytest.mark.parametrize(("annotation", "says"), REFUSED, ids=lambda one: str(one)[:40])
def test_an_annotation_that_cannot_be_kept_is_refused_when_built(annotation: object, says: str) -> None:
    """With the function, the part of the annotation that is to blame, and what to do about it."""
    with pytest.raises(ConfigurationError) as caught:
        codec(annotation, name="charge")
    message = str(caught.value)
    assert says in message
    assert message.startswith("charge is annotated to return ")
    assert "Supported are None, bool" in message
    assert "pass returns= with such a type" in message


def test_secrets_that_are_written_as_they_are() -> None:
    """By serializers of the model's own."""
    one, other, third = map(pydantic.SecretStr, "abc")
    round_trip(Shown, Shown(one=one, other=other, more=[third]))


def test_a_tuple_of_whatever_it_has() -> None:
    """Bare, in both of its spellings; the empty one is something else."""
    round_trip(tuple, (1, "a"))
    round_trip(typing.Tuple, (1, "a"))  # noqa: UP006
    round_trip(tuple[()], ())
    with pytest.raises(NotEncodable, match="is a tuple of 1 elements"):
        codec(tuple[()], name="charge").encode((1,))


def test_a_class_inside_a_function_may_contain_itself() -> None:
    """Its name is in no namespace, but the class is at hand."""

    @dataclass
    class Node:
        next: "Node | None" = None

    round_trip(Node, Node(Node()))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of PEP 695")
def test_aliases_and_classes_of_pep_695() -> None:
    """`type X = …` and `class Box[T]`, also where they refer to themselves."""
    namespace: dict[str, Any] = {}
    source = """
from dataclasses import dataclass
type Itself = Itself | int
type Nested[T] = T | list[Nested[T]]
type Json = dict[str, Json] | list[Json] | str | int | None
@dataclass
class Crate[T]:
    content: T
@dataclass
class Nails(Crate[int]):
    length: int
"""
    exec(source, namespace)
    with pytest.raises(ConfigurationError, match="refers to itself with nothing around it"):
        codec(namespace["Itself"], name="f")
    round_trip(namespace["Json"], {"a": [1, None, {"b": "x"}]})
    round_trip(namespace["Nested"][int], [1, [2, [3]]])
    round_trip(namespace["Crate"][UUID], namespace["Crate"](uuid4()))
    round_trip(namespace["Nails"], namespace["Nails"](1, 2))
