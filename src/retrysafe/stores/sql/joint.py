"""What it takes to keep an outcome inside a transaction of the caller's own.

The statements are those of the store; the connection is the caller's.  Whoever can run a statement on it and
give its rows can carry an outcome with it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from retrysafe.stores.sql import statements
from retrysafe.stores.sql.operations import Arguments, Operation, Row

T = TypeVar("T")

Dialect = Literal["sqlite", "postgresql"]


class Joint(NamedTuple):
    """How a store's statements are run on somebody else's connection."""

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
