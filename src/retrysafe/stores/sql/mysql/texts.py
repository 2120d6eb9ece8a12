"""Statements with their values, written into the SQL as literals.

Many statements have lists in them, whose length is that of a batch: rows with `UNION ALL` between them, and
the values of an IN.  So an argument may be a part of a statement, which is written where its name stands.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from retrysafe.stores.sql import statements
from retrysafe.stores.sql.mysql.retry import MySQLTrouble
from retrysafe.stores.sql.mysql.schema import DIALECT

Put = Callable[[Any], str]
"""Gives what stands for a value."""


class Text:
    """One SQL statement, taken apart at its arguments."""

    __slots__ = ("_names", "_sql", "_texts", "locks")

    def __init__(self, sql: str) -> None:
        sql = " ".join(sql.split())  # what is sent is read by the server, byte by byte
        pieces = re.split(r":(\w+)", sql)
        self._sql = sql
        self._texts = pieces[::2]
        self._names = pieces[1::2]
        self.locks = not sql.startswith("SELECT") or "FOR UPDATE" in sql
        """Whether it writes or locks."""

    def at_once(self) -> "Text":
        """The same, failing where it would have to wait for a lock before it can read."""
        return _at_once(self._sql) if self._sql.endswith("FOR UPDATE") else self

    def written(self, arguments: Mapping[str, object], put: Put) -> str:
        first, *others = self._texts
        parts = [first]
        for name, text in zip(self._names, others, strict=True):
            parts += (put(arguments[name]), text)
        return "".join(parts)


@cache
def _at_once(sql: str) -> Text:
    return Text(f"{sql} NOWAIT")


@cache
def texts(name: str) -> Sequence[Text]:
    """The statements that a call is made of."""
    return [Text(sql.strip()) for sql in statements.load(DIALECT)[name].split(";")]


class Step(NamedTuple):
    """One statement to be executed."""

    text: Text
    arguments: Mapping[str, object]

    def at_once(self) -> "Step":
        return self._replace(text=self.text.at_once())

    def with_literals(self) -> str:
        """For a session whose mode is ours: in UTF-8, where a backslash escapes."""
        return self.text.written(self.arguments, literal)


_TOO_LARGE = 1301
"""The server's number for what exceeds it, and after which it goes on."""


def with_literals(steps: Sequence[Step], largest: int) -> list[str]:
    """As they are sent; refused here, if the server would hang up on it.  0: what it accepts is not known."""
    texts = [step.with_literals() for step in steps]
    if largest and 4 * sum(map(len, texts)) > largest:  # characters, of which none has more bytes
        size = sum(len(text.encode("utf-8", "replace")) + 3 for text in texts)
        if size > largest:
            # Not the session's trouble: alone, a smaller one of them may pass.
            raise MySQLTrouble(
                f"the statement is larger than the server's max_allowed_packet, {largest} bytes", _TOO_LARGE
            )
    return texts


# --- arguments that are parts of a statement


class Part(ABC):
    """Is written where its name stands."""

    @abstractmethod
    def written(self, put: Put) -> str: ...


class Repeated(Part):
    """A statement, once for each of these arguments."""

    def __init__(self, name: str, of: Sequence[Mapping[str, object]], between: str) -> None:
        [self._text] = texts(name)
        self._of = of
        self._between = between

    def written(self, put: Put) -> str:
        return self._between.join(self._text.written(each, put) for each in self._of)


class _Column(Part):
    """Of a table that is written as rows."""

    def __init__(self, name: str) -> None:
        self._name = name

    def written(self, put: Put) -> str:  # noqa: ARG002 - it has no values
        return self._name


class _Rows(Part):
    """A table of what differs."""

    def __init__(self, of: Sequence[Mapping[str, object]], names: Sequence[str]) -> None:
        self._of = of
        self._names = names

    def written(self, put: Put) -> str:
        names = self._names
        first = ", ".join(f"{put(self._of[0][name])} AS `{name}`" for name in names)
        others = (",".join([put(each[name]) for name in names]) for each in self._of[1:])
        return "SELECT " + " UNION ALL SELECT ".join([first, *others])


def table(
    of: Sequence[Mapping[str, object]], identity: Sequence[str], names: Sequence[str]
) -> dict[str, object]:
    """Arguments for a statement that reads `FROM (:rows) AS each`: its rows, and what to write for each
    column.

    Most columns are the same in all rows of a batch: those are written once, as values.  What is written is
    what the server has to parse.
    """
    first = of[0]
    arguments: dict[str, object] = {name: _Column(f"`each`.`{name}`") for name in identity}
    differing = [*identity]
    for name in names:
        value = first[name]
        if all(each[name] == value for each in of):
            arguments[name] = value
        else:
            arguments[name] = _Column(f"`each`.`{name}`")
            differing.append(name)
    arguments["rows"] = _Rows(of, differing)
    return arguments


class Values(Part):
    """The list of an IN."""

    def __init__(self, of: Iterable[object]) -> None:
        self._of = list(of)

    def written(self, put: Put) -> str:
        return ",".join(map(put, self._of))


class Pairs(Part):
    """The list of an IN for two columns."""

    def __init__(self, of: Iterable[tuple[object, object]]) -> None:
        self._of = list(of)

    def written(self, put: Put) -> str:
        return ",".join(f"({put(first)},{put(second)})" for first, second in self._of)


class Always(Part):
    """A condition that is true."""

    def written(self, put: Put) -> str:  # noqa: ARG002 - it has no values
        return "TRUE"


# --- literals


class _Literal(Protocol):
    def __call__(self, value: Any, /) -> str: ...  # noqa: ANN401 - by its type


def literal(value: Any) -> str:  # noqa: ANN401 - whatever an operation has as an argument
    try:
        return _LITERALS[type(value)](value)
    except KeyError:
        if isinstance(value, Part):
            return value.written(literal)
        raise


def _bytes(value: bytes) -> str:
    return f"x'{value.hex()}'"


def _quoted(value: str) -> str:
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    if "'" in value:
        value = value.replace("'", "''")
    return f"'{value}'"


_word = lru_cache(maxsize=1024)(_quoted)

_SHORT = 256
"""Characters of a text that may be the same in many calls, such as a door, a scope or the headers."""


def _text(value: str) -> str:
    return _word(value) if len(value) < _SHORT else _quoted(value)


_LITERALS: Mapping[type, _Literal] = {
    type(None): lambda _: "NULL",
    bytes: _bytes,
    str: _text,
    int: repr,
    float: repr,
    bool: lambda value: repr(int(value)),
}
