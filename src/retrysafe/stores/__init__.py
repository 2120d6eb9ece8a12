"""Where records live: `open(url)` picks a store by its address, `from_engine(engine)` by an engine.

    memory:                     this process only, for tests
    sqlite:///keys.db           a file, relative to the working directory
    sqlite:////var/lib/keys.db  a file, absolute (SQLAlchemy's convention: the fourth slash is the path's)
    postgresql://user@host/db   a PostgreSQL database, as psql and libpq read it; needs retrysafe[postgres]
    mysql://user@host/db        a MySQL or MariaDB database, also as mariadb://; needs retrysafe[mysql]
    redis://host:6379/0         a server of Redis or Valkey; rediss: with TLS, redis+cluster: a cluster,
                                redis+unix: a socket, and the same with valkey; needs retrysafe[redis]

    from_engine(engine)         the database of an SQLAlchemy engine: SQLite, or PostgreSQL with any driver

Opening touches neither disk nor network: the first operation does, in the process that makes it.

A store of your own is anything that implements `contract.Store`, and `Guard` takes it as it is.  To be opened
by address, by the command line too, it has an entry point:

    [project.entry-points."retrysafe.stores"]
    mystore = "my_package.store:open_url"       # the scheme, and an `Opener`
"""

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict, Unpack, cast

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.contract import AsyncStore, Renewer, Store
from retrysafe.stores.options import CLEANUP_INTERVAL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from retrysafe.stores.sql.sqlalchemy import StoreOfEngine

__all__ = ["AsyncStore", "Opener", "Renewer", "Store", "from_engine", "open"]


class Options(TypedDict, total=False):
    """What an opener is given besides, and only where it is not the default."""

    cleanup_interval: Duration | None


class Opener(Protocol):
    """What opens the addresses of one scheme: in this package `open_url`, elsewhere an entry point.

    It is given the whole address, the scheme included, checks it, and touches neither disk nor network.  An
    address that cannot be right is a `ConfigurationError`, whose message does not repeat it.

    One that takes `deadline` alone will do: `cleanup_interval`, seconds or text such as `5m` or `None`, is
    passed to it only if the caller of `open` has set it.
    """

    def __call__(self, url: str, *, deadline: float) -> Store: ...


class _OwnOpener(Protocol):
    def __call__(self, url: str, *, deadline: float, **options: Unpack[Options]) -> Store: ...


def _memory(url: str, *, deadline: float, **options: Unpack[Options]) -> Store:
    from retrysafe.stores import memory

    return memory.open_url(url, deadline=deadline, **options)


def _sqlite(url: str, *, deadline: float, **options: Unpack[Options]) -> Store:
    from retrysafe.stores.sql import sqlite

    return sqlite.open_url(url, deadline=deadline, **options)


def _postgresql(url: str, *, deadline: float, **options: Unpack[Options]) -> Store:
    from retrysafe.stores.sql import postgresql

    return postgresql.open_url(url, deadline=deadline, **options)


def _redis(url: str, *, deadline: float, **options: Unpack[Options]) -> Store:
    from retrysafe.stores import redis

    return redis.open_url(url, deadline=deadline, **options)


def _mysql(url: str, *, deadline: float, **options: Unpack[Options]) -> Store:
    from retrysafe.stores.sql import mysql

    return mysql.open_url(url, deadline=deadline, **options)


class Scheme(NamedTuple):
    """A store of this package."""

    open: _OwnOpener
    """Imports its module when it is called: users of one store need not load the others."""
    syntax: str
    extra: str | None = None
    """What installs the packages that it needs."""


SCHEMES = {
    "memory": Scheme(_memory, "memory:"),
    "sqlite": Scheme(_sqlite, "sqlite:///keys.db"),
    "postgresql": Scheme(_postgresql, "postgresql://user@host/database", "postgres"),
    "postgres": Scheme(_postgresql, "postgresql://user@host/database", "postgres"),
    "mysql": Scheme(_mysql, "mysql://user@host/database", "mysql"),
    "mariadb": Scheme(_mysql, "mariadb://user@host/database", "mysql"),
    **{
        f"{flavour}{tls}{kind}": Scheme(_redis, syntax, "redis")
        for flavour in ("redis", "valkey")
        for tls in ("", "s")
        for kind, syntax in (
            ("", "redis://host:6379/0"),
            ("+cluster", "redis+cluster://host:6379"),
            *([] if tls else [("+unix", "redis+unix:///path/of/socket")]),
        )
    },
}

_GROUP = "retrysafe.stores"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
"""RFC 3986, section 3.1.  What is not one is not repeated in a message: it may be a part of a password."""


def open(url: str, *, deadline: float = 2.0, cleanup_interval: Duration | None = CLEANUP_INTERVAL) -> Store:
    """Give the store that `url` names; none of its operations waits longer than `deadline` seconds.

    Two seconds: longer than any healthy disk needs, shorter than a client's patience.  While there is
    traffic, one of the processes that use a table removes expired records from it every `cleanup_interval`;
    with `None` they stay until `retrysafe purge` is run.
    """
    options: Options = {}
    if cleanup_interval != CLEANUP_INTERVAL:
        options["cleanup_interval"] = cleanup_interval
    found = _SCHEME.match(url)
    if found is None:
        raise ConfigurationError(f"the store's address has no scheme: expected {_known(_entry_points())}")
    scheme = found[1]
    if scheme in SCHEMES:
        return _open_own(SCHEMES[scheme], url, deadline, options)
    # Not before it is clear that the scheme is not ours: this reads the metadata of all that is installed.
    installed = _entry_points()
    if scheme in installed.names:
        return _open_installed(scheme, installed.select(name=scheme), url, deadline, options)
    raise ConfigurationError(_refusal(scheme, installed))


def from_engine(
    engine: "Engine | AsyncEngine",
    *,
    deadline: float = 2.0,
    cleanup_interval: Duration | None = CLEANUP_INTERVAL,
) -> "StoreOfEngine":
    """Give a store in the database of an SQLAlchemy engine, of any driver, blocking or not.

    It opens connections of its own, as the engine opens its: `creator`, `connect_args`, listeners and
    certificates are honoured, and the application's pool is left alone.  No operation waits longer than
    `deadline` seconds.  `cleanup_interval` is that of `open`.
    """
    try:
        from retrysafe.stores.sql import sqlalchemy
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"stores.from_engine needs SQLAlchemy ({missing}): pip install 'retrysafe[sqlalchemy]'"
        ) from None
    return sqlalchemy.from_engine(engine, deadline, cleanup_interval)


def _open_own(scheme: Scheme, url: str, deadline: float, options: Options) -> Store:
    try:
        return scheme.open(url, deadline=deadline, **options)
    except ImportError as missing:
        if scheme.extra is None or (missing.name or "").startswith("retrysafe"):
            raise
        raise ConfigurationError(
            f"{scheme.syntax} needs a package that is missing ({missing}): "
            f"pip install 'retrysafe[{scheme.extra}]'"
        ) from None


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # it takes longer to import than this whole library

    return entry_points(group=_GROUP)


def _open_installed(
    scheme: str, offered: "EntryPoints", url: str, deadline: float, options: Options
) -> Store:
    # One distribution can be found twice, as in a checkout that is also installed.
    origins = sorted({_origin(point) for point in offered})
    if len({point.value for point in offered}) > 1:
        raise ConfigurationError(
            f"{scheme}: is a scheme of several distributions, {' and '.join(origins)}: uninstall all but one"
        )
    [point, *_] = offered
    broken = f"{scheme}: cannot be opened, the entry point {point.value} of {origins[0]}"
    try:
        opener = cast("Opener", point.load())
    except Exception as error:
        raise ConfigurationError(
            f"{broken} failed to load ({type(error).__name__}: {error}): install it again, or report it"
        ) from error
    if not callable(opener):
        raise ConfigurationError(f"{broken} is {opener!r}: expected a function of (url, *, deadline)")
    if options and not _takes(opener, options):
        raise ConfigurationError(
            f"{scheme}: takes no {' and no '.join(options)} (entry point {point.value} of {origins[0]}): "
            f"leave it out, and look in the documentation of {origins[0]} for how expired records are removed"
        )
    try:
        store = cast("_OwnOpener", opener)(url, deadline=deadline, **options)
    except ConfigurationError:
        raise
    except Exception as error:
        # Without its text, which may contain the address: that is in the traceback, for those who have one.
        raise ConfigurationError(
            f"{broken} raised {type(error).__name__}: expected a store, or a ConfigurationError"
        ) from error
    missing = [name for name in vars(Store) if not name.startswith("_") and not hasattr(store, name)]
    if missing:
        raise ConfigurationError(
            f"{broken} returned {type(store).__name__}, which is not a store: it has no {', '.join(missing)}"
        )
    return store


def _takes(opener: Opener, options: Options) -> bool:
    from inspect import signature  # only here

    try:
        signature(opener).bind("", deadline=1.0, **options)
    except TypeError:
        return False
    return True


def _refusal(scheme: str, installed: "EntryPoints") -> str:
    base = scheme.partition("+")[0]
    if base != scheme and base in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
        return (
            f"{scheme}: is an address for SQLAlchemy: pass the engine that you made from it to "
            f"stores.from_engine(engine), or write {SCHEMES[base].syntax} to open the store without it"
        )
    from difflib import get_close_matches  # only here

    near = get_close_matches(scheme.lower(), [*SCHEMES, *installed.names], n=1)
    meant = f"did you mean {near[0]}:? Expected" if near else "expected"
    return f"{scheme}: is not a known scheme of stores: {meant} {_known(installed)}"


def _known(installed: "EntryPoints") -> str:
    theirs = sorted({f"{point.name}: of {_origin(point)}" for point in installed})
    *others, last = [*dict.fromkeys(scheme.syntax for scheme in SCHEMES.values()), *theirs]
    return f"{', '.join(others)} or {last}"


def _origin(point: "EntryPoint") -> str:
    return "an unknown distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
