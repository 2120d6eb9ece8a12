"""Arguments have equal bytes if they are equal, and only then."""

import io
from abc import ABC
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import IO, Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from typing_extensions import TypeAliasType

from retrysafe.operations.values.comparison import NotComparable, fingerprint_value, is_comparable
from tests.operations.shapes import ForTypeCheckers, Page, Point, Tree

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")


class Colour(Enum):
    RED = "any"
    GREEN = "other"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Bits(Flag):
    A = 1
    B = 2


class Pair(NamedTuple):
    a: int
    b: int


@dataclass
class Order:
    id: int
    note: str | None = None
    cache: object = field(default=None, compare=False)


Reordered = make_dataclass(
    "Order", [("note", str | None), ("id", int), ("added", tuple[int, ...], ())], frozen=True
)


@dataclass
class Bank:
    """As `Order`, by its fields alone."""

    id: int
    note: str | None = None


UNSET = object()


@dataclass
class Marked:
    id: int
    note: object = UNSET


@attrs.define
class Slotted:
    id: int
    note: str | None = None
    cache: object = attrs.field(default=None, eq=False)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int
    note: str | None = None
    made: list[int] = pydantic.Field(default_factory=list)


class Text(str):
    pass


class Base(DeclarativeBase):
    pass


class Row(MappedAsDataclass, Base):
    __tablename__ = "row"
    id: Mapped[int] = mapped_column(primary_key=True)


def spell(value: object) -> bytes:
    return fingerprint_value(value, name="x")


EQUAL: list[tuple[object, object]] = [
    (1, 1.0),
    (0, -0.0),
    (2**70, float(2**70)),
    (float("nan"), float("nan")),
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal("0E+5"), Decimal("-0")),
    (Decimal("1E+2"), Decimal(100)),
    (Fraction(1, 2), Fraction(2, 4)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1, 2, 3}, frozenset({3, 2, 1})),
    (b"x", bytearray(b"x")),
    ("yes", Word.YES),
    (1, Level.LOW),
    ("a", Text("a")),
    ((1, 2), Pair(1, 2)),
    ({"a": 1}, OrderedDict(a=1)),
    ({"a": [1]}, defaultdict(list, a=[1])),
    ({"a": 1}, MappingProxyType({"a": 1})),
    ({"a": 2}, Counter("aa")),
    (range(0, 3, 2), range(0, 4, 2)),
    (range(0), range(2, 1)),
    (PurePosixPath("a"), PurePosixPath("a/")),
    (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=BERLIN)),
    (time(12, tzinfo=UTC), time(13, tzinfo=timezone(timedelta(hours=1)))),
    (Order(1, "a", cache=1), Order(1, "a", cache=2)),
    # Fields may be put in another order, and one with a default added.
    (Order(1, "a"), Reordered("a", 1)),
    (Order(1), make_dataclass("Order", [("id", int)])(1)),
    (Slotted(1, "a", cache=1), Slotted(1, "a", cache=2)),
    (Model(id=1, made=[1]), Model(id=1, note=None, made=[1])),
    (Page([1], None), Page([1])),
    (Marked(1), Marked(1, UNSET)),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_arguments_have_equal_bytes(one: object, other: object) -> None:
    """A retry is a retry, whatever order, subclass or spelling its arguments come in."""
    assert spell(one) == spell(other)
    assert spell([one, {"k": other}]) == spell([other, {"k": one}])


DIFFERENT: list[object] = [
    Order(7),
    Bank(7),
    Slotted(7),
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    float("-inf"),
    10**5000,
    10**5000 + 1,
    "",
    "1",
    "True",
    "None",
    "\ud800",
    b"",
    b"1",
    Decimal(1),
    Decimal("1.01"),
    Decimal(-1),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("-Infinity"),
    Fraction(1),
    Fraction(1, 3),
    datetime(2026, 1, 1),  # noqa: DTZ001
    datetime(2026, 1, 1, fold=1),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    date(2026, 1, 1),
    time(1),
    time(1, fold=1),
    time(1, tzinfo=UTC),
    time(1, tzinfo=BERLIN),
    timedelta(1),
    timedelta(microseconds=1),
    UUID(int=1),
    PurePosixPath("a"),
    PureWindowsPath("a"),
    range(3),
    range(1, 3),
    [],
    [[]],
    [1],
    [1, 1],
    [11],
    ["1"],
    (),
    (1,),
    ((1,),),
    deque([1]),
    set[int](),
    {1},
    {"1"},
    {},
    {"a": 1},
    {"a": None},
    {"a": {}},
    {1: "a"},
    {"1": "a"},
    Colour.RED,
    Colour.GREEN,
    Bits.A,
    Bits.A | Bits.B,
    Bits(0),
    Order(1),
    Order(2),
    Order(1, ""),
    Model.model_validate({"id": 1, "extra": 1}),
    {"id": 1},
    [("id", 1)],
]


def test_different_arguments_have_different_bytes() -> None:
    """Each of them against all others: types count, and nothing runs into what follows it."""
    spelled = [spell(value) for value in DIFFERENT]
    assert len(set(spelled)) == len(spelled)
    assert len({spell([value]) for value in DIFFERENT} | set(spelled)) == len(
        set(spelled) | {spell([value]) for value in DIFFERENT}
    )


def test_arguments_in_a_row_do_not_run_into_each_other() -> None:
    """The caller joins several: where one ends is not read off its content."""
    assert spell("a") + spell("b1:") != spell("ab1:") + spell("")
    assert spell([1]) + spell([2]) != spell([1, 2]) + spell([])


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.timedeltas()
)
_NESTED = st.recursive(
    _SCALARS,
    lambda one: (
        st.lists(one, max_size=3)
        | st.lists(one, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), one, max_size=3)
    ),
    max_leaves=6,
)


def exact(value: Any) -> object:
    """A value that is equal where we say that arguments are: types told apart, but for 1 and 1.0."""
    match value:
        case list():
            return ("list", tuple(map(exact, value)))
        case tuple():
            return ("tuple", tuple(map(exact, value)))
        case dict():
            return ("dict", frozenset((exact(key), exact(item)) for key, item in value.items()))
        case bool() | None:
            return repr(value)
        case int() | float():
            return ("number", value)
        case _:
            return (type(value).__name__, value)


@settings(max_examples=200, deadline=None)
@given(_NESTED, _NESTED)
def test_bytes_are_equal_if_and_only_if_arguments_are(one: object, other: object) -> None:
    """Nested at random, compared by a second description of what equal means."""
    assert (spell(one) == spell(other)) == (exact(one) == exact(other))


class Money(int):
    currency: str = "EUR"


class Loud(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


@dataclass
class Keyed(dict[str, int]):
    id: int = 0


class Zone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str:
        return "zone"


def dollars() -> Money:
    money = Money(5)
    money.currency = "USD"
    return money


def circular() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "its argument order is of type object, which has no content to compare"),
        (io.BytesIO(), "its argument order is of type BytesIO, which has no content"),
        (spell, "its argument order is of type function"),
        (Order, "its argument order is of type type"),
        (iter([1]), "is of type list_iterator"),
        ([1, {"a": object()}], r"its argument order\[1\]\['a'\] is of type object"),
        ({1: object()}, r"its argument order\[1\] is of type object"),
        ({(1,): object()}, r"its argument order\[…\] is of type object"),
        ({object()}, r"its argument order\[0\] is of type object"),
        (Order(1, object()), "its argument order.note is of type object"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (
            Model.model_validate({"id": 1, "extra": [object()]}),
            r"order.extra\[0\] is of type object",
        ),
        (Row(id=1), "its argument order is of type Row, which belongs to a database session"),
        (dollars(), "its argument order is of type Money, which has more to it than a int"),
        (Loud("a"), "its argument order is of type Loud, which compares in another way than str does"),
        (Keyed(), "Keyed"),
        (pydantic.SecretStr("x"), "is of type SecretStr, which has no content"),
        (time(1, tzinfo=Zone()), "is in a time zone of Zone"),
        (circular(), "is nested deeper than 100 levels"),
        (1j, "is of type complex"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_has_no_content_cannot_be_compared(value: object, says: str) -> None:
    """With the path to it; never taken for equal to something else."""
    with pytest.raises(NotComparable, match=says) as caught:
        fingerprint_value(value, name="order")
    assert isinstance(caught.value, TypeError)
    assert str(caught.value).startswith("its argument order")


def test_a_class_whose_annotations_cannot_be_resolved_is_compared() -> None:
    """A name that is imported for type checkers only says nothing about the value."""
    assert spell(ForTypeCheckers(1)) != spell(ForTypeCheckers(2))


class Options(TypedDict, total=False):
    id: int


class Opening(TypedDict):
    file: IO[str]


class Closing(Protocol):
    def close(self) -> None: ...


class Shape(ABC):  # noqa: B024 (what it is for has no methods)
    pass


class Plain:
    pass


class Ancestor:
    pass


@dataclass
class Descendant(Ancestor):
    id: int


@dataclass
class Holding:
    session: Session


@dataclass
class HoldingAside:
    id: int
    session: Session | None = field(default=None, compare=False)


class Holds(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    session: Session


UserId = NewType("UserId", int)
Alias = TypeAliasType("Alias", int | str)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, True),
        (None, True),
        (str | None, True),
        (Annotated[Decimal, "x"], True),
        (UserId, True),
        (Alias, True),
        (Literal["a"], True),
        (Colour, True),
        (Path, True),
        (range, True),
        (list[int], True),
        (list, True),
        (dict[str, list[datetime]], True),
        (tuple[int, ...], True),
        (Point, True),
        (Order, True),
        (HoldingAside, True),
        (Tree, True),
        (Page[int], True),
        (Model, True),
        (Options, True),
        (Session, False),
        (Row, False),
        (Plain, False),
        (Callable[[], int], False),
        (Iterator[int], False),
        (IO[str], False),
        (io.TextIOWrapper, False),
        (type[int], False),
        (Opening, False),
        (Holding, False),
        (Holds, False),
        (list[Session], False),
        (Sequence[Session], False),
        (Page[Session], False),
        (Loud, False),
        (Any, None),
        (object, None),
        (T, None),
        (Page[T], None),  # type: ignore[valid-type]
        ("Order", None),
        (Closing, None),
        (Shape, None),
        (Ancestor, None),
        (Session | None, None),
        (Iterable[int], None),
        (Sequence[int], None),
        (Mapping[str, int], None),
        (Text, None),
        (ForTypeCheckers, None),
    ],
)
def test_annotations_say_what_can_be_compared(annotation: object, expected: bool | None) -> None:
    """`False` refuses a function when it is decorated: said only where no value could be compared."""
    assert is_comparable(annotation) is expected
