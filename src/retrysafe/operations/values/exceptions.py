"""Declared exceptions as JSON: part of what a function may say, stored and raised again by a replay.

An exception has no annotations, so what it holds is written with its types: JSON values as they are, lists as
arrays, and everything else as an object with one member, the type's name:

    {"type":"app:CardDeclined","args":["stolen",{"Decimal":"1.00"}],"state":{"code":51}}

The class is looked up among the declared ones and nowhere else; an instance is made without calling
`__init__`, whose arguments are not known.  `__cause__`, `__context__` and the traceback are not stored.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MemberDescriptorType
from typing import Any, cast

from retrysafe._core.fingerprint.canonical import DEEPEST
from retrysafe.errors import ConfigurationError, UnreadableRecord
from retrysafe.operations.values.annotations import MISSING
from retrysafe.operations.values.codec import dump, parse
from retrysafe.operations.values.scalars import (
    SCALARS,
    Json,
    NotEncodable,
    Unreadable,
    array,
    members,
    text,
    why,
)

__all__ = ["ErrorCodec"]

_HEAP_TYPE = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: set for classes that were made by a class statement."""


class ErrorCodec:
    """Exceptions of exactly the declared classes, to bytes and back."""

    __slots__ = ("_by_name", "_makers")

    def __init__(self, types: tuple[type[Exception], ...]) -> None:
        self._makers: dict[type[BaseException], _Maker] = {}
        self._by_name: dict[str, type[Exception]] = {}
        for cls in dict.fromkeys(types):
            self._makers[cls] = _maker(cls)
            if self._by_name.setdefault(_name(cls), cls) is not cls:
                raise ConfigurationError(
                    f"raises= has two classes that are called {_name(cls)}; rename one of them: a stored "
                    "exception is found by its name"
                )

    def encode(self, error: BaseException) -> bytes | None:
        """None if it is not declared, and `NotEncodable` if it holds what would not come back.

        A subclass of a declared class is not declared: it would come back as another class.
        """
        cls = type(error)
        make = self._makers.get(cls)
        if make is None:
            return None
        try:
            return dump(self._tree(error, make))
        except NotEncodable:
            raise
        except Exception as cause:
            # Of code of the exception's own: the caller has to get the exception itself, and not this one.
            raise NotEncodable(f"of {_name(cls)} cannot be read: {type(cause).__name__}") from cause

    def _tree(self, error: BaseException, make: "_Maker") -> Json:
        cls = type(error)
        tree: dict[str, Json] = {
            "type": _name(cls),
            "args": [_write(part, DEEPEST, f".args[{number}]") for number, part in enumerate(error.args)],
            "state": _write_state(error.__dict__),
        }
        # What was never set stays so: `OSError` shows a second file name that is `None`, but no missing one.
        blank = make((), {}, {})
        slots = {
            name: part
            for name in _members(cls)
            if (part := getattr(error, name, MISSING)) is not getattr(blank, name, MISSING)
        }
        if slots:
            tree["slots"] = _write_state(slots)
        return tree

    def decode(self, data: bytes) -> Exception:
        """The exception, not raised; `UnreadableRecord` for damaged bytes and for undeclared classes."""
        try:
            tree = members(parse(data))
            cls = self._find(text(tree["type"]))
            return self._makers[cls](
                tuple(map(_read, array(tree["args"]))),
                {name: _read(part) for name, part in members(tree["state"]).items()},
                {name: _read(part) for name, part in members(tree.get("slots", {})).items()},
            )
        except Exception as error:  # noqa: BLE001 (whatever damaged bytes lead to: none is swallowed)
            raise UnreadableRecord(
                f"the stored exception cannot be read ({why(error)}): it is damaged, or its class is not in "
                f"raises= any more, which has {', '.join(self._by_name) or 'none'}"
            ) from None

    def _find(self, name: str) -> type[Exception]:
        if (found := self._by_name.get(name)) is not None:
            return found
        # A module may be run as `__main__` by one process and imported by another, or have been moved.
        _, _, qualname = name.partition(":")
        same = [cls for cls in self._by_name.values() if cls.__qualname__ == qualname]
        if len(same) != 1:
            raise Unreadable("its class is not declared")
        return same[0]


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _members(cls: type) -> dict[str, Any]:
    """What instances hold outside of `__dict__` and `args`: slots, and what `OSError` and others have."""
    return {
        name: member
        for base in reversed(cls.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType) and not name.startswith("__")
    }


_Maker = Callable[[tuple[object, ...], Mapping[str, object], Mapping[str, object]], Exception]


def _maker(cls: object) -> _Maker:
    if not isinstance(cls, type) or not issubclass(cls, Exception):
        raise ConfigurationError(f"raises= has {cls!r}, expected classes of exceptions, such as CardDeclined")
    # The class that lays out the instance in memory; only its `__new__` is allowed to make one.
    built_in = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
    new = cast("Callable[[type], Exception]", cast("Any", built_in).__new__)
    try:
        new(cls)
    except TypeError:
        raise ConfigurationError(
            f"raises= has {cls.__name__}, which cannot be stored, because it cannot be made without what it "
            "is about; declare an exception of your own, with texts and numbers in it"
        ) from None
    slots = _members(cls)
    set_args = cast("Any", BaseException.args).__set__  # of a frozen class, too

    def make(args: tuple[object, ...], state: Mapping[str, object], held: Mapping[str, object]) -> Exception:
        error = new(cls)
        set_args(error, args)
        error.__dict__.update(state)
        for name, part in held.items():
            slots[name].__set__(error, part)
        return error

    return make


def _write_state(state: Mapping[str, object]) -> Json:
    return {name: _write(part, DEEPEST, f".{name}") for name, part in state.items()}


_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _write(value: object, levels: int, where: str) -> Json:
    kind = type(value)
    if levels == 0:
        raise NotEncodable(f"is nested deeper than {DEEPEST} levels", where)
    if (scalar := SCALARS.get(kind)) is not None:
        try:
            tree = scalar.write(value)
        except NotEncodable as error:
            raise error.inside(where) from None
        # What JSON itself has is written bare; the rest, and numbers that JSON lacks, with the type.
        return tree if type(tree) is kind else {scalar.tag: tree}
    content: Any = value
    if kind is dict:
        pairs = cast("dict[object, object]", content).items()
        return {"dict": [[_write(part, levels - 1, f"{where}[…]") for part in pair] for pair in pairs]}
    if kind is not list and _COLLECTIONS.get(kind.__name__) is not kind:
        raise _unknown(kind, where)
    items = [_write(part, levels - 1, f"{where}[…]") for part in cast("Iterable[object]", content)]
    return cast("Json", items if kind is list else {kind.__name__: items})


def _unknown(kind: type, where: str) -> NotEncodable:
    return NotEncodable(
        f"is of type {kind.__name__}, which is not stored with an exception; give the exception texts, "
        "numbers, times and collections of these",
        where,
    )


def _read(tree: Json) -> object:
    if type(tree) is list:
        return [_read(part) for part in array(tree)]
    if type(tree) is not dict:
        return tree
    ((tag, content),) = members(tree).items()
    if (scalar := _BY_TAG.get(tag)) is not None:
        return scalar.read(content)
    if tag == "dict":
        return {_read(key): _read(part) for key, part in map(array, array(content))}
    make = cast("Callable[[list[object]], object]", _COLLECTIONS[tag])
    return make([_read(part) for part in array(content)])


_BY_TAG = {scalar.tag: scalar for scalar in SCALARS.values()}
