"""Storing an outcome inside a transaction of the caller's own.

The statements are those of the store; the connection is the caller's.  A library that can run a statement on
it and return its rows can join.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Literal, NamedTuple, TypeVar

from retrysafe.errors import CommitRefused, StoreUnavailable
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import statements

T = TypeVar("T")

Dialect = Literal["sqlite", "postgresql", "mysql"]

NotCommitted = CommitRefused | StoreUnavailable
"""Refused, and everything was rolled back; or it is not known whether it was committed."""


Statement = tuple[str, Arguments]
"""SQL, with `:named` arguments."""

Spoken = Generator[Statement, Sequence[Row], Sequence[Row]]
"""What a call is on the caller's connection: yields statements, receives the rows of each, and returns those
of the call."""


class Joint(NamedTuple):
    """How a store's statements are run on the caller's connection."""

    dialect: Dialect
    not_committed: Callable[[Exception], NotCommitted]
    """What an error of a driver's at the end of a transaction means, if the connection is not lost."""
    clock: Callable[[], float] | None = None
    """The store's time, where its server has none of its own."""
    speak: Callable[[str, Arguments], Spoken] | None = None
    """The statements of a call, where it is not the one of its name."""
    mark: str | None = None
    """The first statement of a call's transaction, where the completion has to know that it is still the same
    one."""
    restore: str | None = None
    """What a session needs after such a transaction, where the completion has changed a setting of it."""

    def perform(self, operation: Operation[T], execute: Callable[[str, Arguments], Sequence[Row]]) -> T:
        """Run an operation; `execute` gives all rows, and none where a statement has none."""
        spoken = self._speak(operation)
        try:
            sql, arguments = next(spoken)
            while True:
                sql, arguments = spoken.send(execute(sql, arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result

    async def perform_async(
        self, operation: Operation[T], execute: Callable[[str, Arguments], Awaitable[Sequence[Row]]]
    ) -> T:
        spoken = self._speak(operation)
        try:
            sql, arguments = next(spoken)
            while True:
                sql, arguments = spoken.send(await execute(sql, arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result

    def _speak(self, operation: Operation[T]) -> Generator[Statement, Sequence[Row], T]:
        try:
            name, arguments = next(operation)
            while True:
                if self.speak is not None:
                    rows = yield from self.speak(name, arguments)
                else:
                    timed = arguments if self.clock is None else {**arguments, "now": self.clock()}
                    rows = yield statements.load(self.dialect)[name], timed
                name, arguments = operation.send(rows)
        except StopIteration as answer:
            result: T = answer.value
            return result


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
