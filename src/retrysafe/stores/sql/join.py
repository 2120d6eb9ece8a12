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

Dialect = Literal["sqlite", "postgresql", "mysql"]


NotCommitted = CommitRefused | StoreUnavailable
"""Refused, and everything was rolled back; or it is not known whether it was committed."""


class Joint(NamedTuple):
    """How a store's statements are run on the caller's connection."""

    dialect: Dialect
    not_committed: Callable[[Exception], NotCommitted]
    """What an error of a driver's at the end of a transaction means, if the connection is not lost."""
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


def connection_lost(error: Exception) -> StoreUnavailable:
    """What it means at the end of a transaction that the connection is gone."""
    return StoreUnavailable(
        f"the connection was lost during the commit of a guarded call: {first_line(error)}"
    )


def refused(error: Exception, *, passing: bool) -> CommitRefused:
    """What it means there that the server gave its reason."""
    return CommitRefused(f"the database refused the commit: {first_line(error)}", passing=passing)


def first_line(error: Exception) -> str:
    """Without the detail, which quotes values."""
    return str(error).partition("\n")[0] or type(error).__name__
