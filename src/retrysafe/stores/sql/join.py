"""Storing an outcome inside a transaction of the caller's own.

The statements are those of the store; the connection is the caller's.  A library that can run a statement on
it and return its rows can join.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from retrysafe.errors import CommitRefused, StoreUnavailable
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import statements

T = TypeVar("T")

Dialect = Literal["sqlite", "postgresql"]


class Joint(NamedTuple):
    """How a store's statements are run on the caller's connection."""

    dialect: Dialect
    clock: Callable[[], float] | None = None
    """The store's time, where its server has none of its own."""

    def perform(self, operation: Operation[T], execute: Callable[[str, Arguments], Sequence[Row]]) -> T:
        """Run an operation; `execute` is given SQL with `:named` arguments, and gives all rows."""
        known = statements.load(self.dialect)
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(execute(known[name], self._timed(arguments)))
        except StopIteration as answer:
            result: T = answer.value
            return result

    async def perform_async(
        self, operation: Operation[T], execute: Callable[[str, Arguments], Awaitable[Sequence[Row]]]
    ) -> T:
        known = statements.load(self.dialect)
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(await execute(known[name], self._timed(arguments)))
        except StopIteration as answer:
            result: T = answer.value
            return result

    def _timed(self, arguments: Arguments) -> Arguments:
        return arguments if self.clock is None else {**arguments, "now": self.clock()}


_PASSING = frozenset({"40001", "40P01", "55P03", "25P03", "25P04"})
"""Serialization failure, deadlock, a lock that was not to be had, a transaction that took too long: another
time it will work."""

_UNCERTAIN = ("08", "53", "57", "58", "XX")
"""Classes of errors after which the server may not be there any more: the connection, its resources, an
operator who intervened, the system, a bug."""


def not_committed(error: Exception, sqlstate: str | None) -> CommitRefused | StoreUnavailable:
    """What an error at the end of a transaction means.  A server that gives its reasons has not committed."""
    if sqlstate is None or sqlstate.startswith(_UNCERTAIN):
        return StoreUnavailable(
            f"the connection was lost during the commit of a guarded call: {_first(error)}"
        )
    return CommitRefused(f"the database refused the commit: {_first(error)}", passing=sqlstate in _PASSING)


def _first(error: Exception) -> str:
    """Without the detail, which quotes values."""
    return str(error).partition("\n")[0] or type(error).__name__


def sqlstate(error: Exception) -> str | None:
    """The code that a driver's exception carries, each in its own way; nothing if it has none."""
    for name in ("sqlstate", "pgcode"):  # psycopg, asyncpg; psycopg2
        found = getattr(error, name, None)
        if isinstance(found, str):
            return found
    match error.args:
        case ({"C": str(code)}, *_):  # pg8000
            return code
        case _:
            return None
