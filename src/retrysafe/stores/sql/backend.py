"""What differs by database where its statements go through drivers that are not ours to choose.

An SQLAlchemy engine or a function of the application's opens the connections, so a store runs its batches by
`execute` alone.  `sqlalchemy/` has the connections and executors, and a value of this kind says the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from retrysafe.stores.admin import Admin
from retrysafe.stores.queue import Batch, Outcome, Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.join import Joint


class Execute(Protocol):
    """Runs statements on one connection."""

    largest: int
    """Bytes of SQL that the server accepts at most, where that was asked."""

    def __call__(self, sql: str, arguments: Mapping[str, object], /) -> Sequence[Row]:
        """Run SQL with `:named` arguments and give all rows; none, where the statement has none."""
        ...

    def together(self, texts: Sequence[str], /) -> list[Sequence[Row]]:
        """Run statements that have their values in them, in one round trip if the driver can.

        Gives the rows of each.
        """
        ...


class Runner(Protocol):
    """Runs the calls of a batch on connections of one executor."""

    def run(self, execute: Execute, calls: Batch, patience: float) -> Sequence[Outcome]: ...


class AdminConnection(Protocol):
    """An operator's connection, on which every statement commits by itself unless a BEGIN came before it."""

    @property
    def process(self) -> int | None:
        """The server's process or thread, as the connection was told when it began; `None` where the driver
        keeps no note of it."""
        ...

    @property
    def usable(self) -> bool:
        """Whether it lives, as far as can be seen while nothing is under way on it."""
        ...

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        """Run a statement of ours by its name, and give all rows.

        What goes wrong is a `StoreError`.  After `within` seconds without an answer the connection is cut.
        """
        ...

    def command(self, sql: str, within: float) -> None:
        """Run SQL that has neither arguments nor rows."""
        ...

    def close(self) -> None: ...


def nothing_to_begin(execute: Execute) -> None:
    """What a session begins with whose settings statements carry themselves."""


class Check(Protocol):
    def __call__(self, execute: Execute, *, prepared: bool, migrated_by: str | None = None) -> None:
        """Refuse a server that cannot hold a store; create and check its tables, unless they are known.

        `migrated_by` is the command that creates them, where a service does not.
        """
        ...


class Backend(NamedTuple):
    title: str
    """For messages."""
    joint: Joint
    runner: Callable[[], Runner]
    begin: Callable[[Execute], None]
    """What a session of ours begins with."""
    check: Check
    """Of a new connection for the service."""
    query: Callable[[Execute, str, Mapping[str, object]], Sequence[Row]]
    """Run one statement of ours by its name."""
    trouble: Callable[[BaseException], Trouble]
    """What an error of a driver's means."""
    explained: Callable[[], AbstractContextManager[None]]
    """Makes trouble errors for an operator."""
    admin: Callable[[Callable[[], AdminConnection], float], Admin]
    """The operator's end, by connections that are opened like this, and its deadline."""

    @property
    def timed_out(self) -> str:
        return f"timed out waiting for {self.title}"

    @property
    def connect_timed_out(self) -> str:
        return f"timed out connecting to {self.title}; nothing was done"


def said_by(error: BaseException, drivers: frozenset[str]) -> str:
    """The first line of what an error says, where it is of one of these packages; else its name alone."""
    name = type(error).__name__
    if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in drivers:
        return name
    words = str(error)
    if words.startswith("<class '"):  # so SQLAlchemy begins what asyncpg says
        words = words.partition(">: ")[2]
    return next((line.strip() for line in words.splitlines() if line.strip()), name)
