"""What an address says: where the servers are, how to get in, and what the store does there.

    redis://user:password@host:6379/0           one server; rediss: with TLS; valkey:, valkeys: the same
    redis+cluster://:password@a:6379,b:6379     a cluster, by some of its nodes; rediss+cluster: with TLS
    redis+unix:///run/redis.sock?db=0           a socket of this machine

No message repeats an address: it has a password in it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from retrysafe.errors import ConfigurationError

PREFIX = "retrysafe"
_PORT = 6379

EXPECTED = "redis://user:password@host:6379/0, with special characters percent-encoded"


class Node(NamedTuple):
    """A server."""

    host: str
    """Or the path of a socket, and then there is no port."""
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


class Address(NamedTuple):
    nodes: tuple[Node, ...]
    """Several of a cluster: the first that responds knows the others."""
    is_cluster: bool
    has_tls: bool
    user: str | None
    password: str | None
    database: int
    prefix: str = PREFIX
    """What the names of all keys begin with, so that several services can share a server."""
    wait: int = 0
    """How many replicas must have what a caller is told."""
    wait_timeout: float | None = None
    """Seconds for which they are waited for; half the deadline, if it is not said."""
    accepts_eviction: bool = False
    creates: bool = False
    """Arm the store if it is new, as far as that can be known.  For development and tests."""
    tls: Mapping[str, Any] = {}
    """Options of redis-py's `SSLConnection`."""

    def __repr__(self) -> str:
        return f"<Address {', '.join(map(str, self.nodes))}>"

    @classmethod
    def parse(cls, url: str) -> "Address":
        scheme, _, rest = url.partition(":")
        flavour, _, kind = scheme.partition("+")
        has_tls = flavour in ("rediss", "valkeys")
        if "#" in rest:
            raise ConfigurationError("the address of Redis has a # in it: write %23 where a password has one")
        try:
            rest.encode()  # a password that cannot be sent would be quoted in the error's message
            parts = urlsplit(f"redis:{rest}")
            said = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            options = dict(said)
            authority = parts.netloc
            account, _, hosts = authority.rpartition("@")
            user, _, password = account.partition(":")
            if kind == "unix":
                if hosts or not parts.path.strip("/"):
                    raise ConfigurationError(
                        "the address of a socket has a path and no host: expected redis+unix:///path/of/socket"
                    )
                nodes: tuple[Node, ...] = (Node(unquote(parts.path), 0),)
                path = ""
            else:
                nodes = tuple(_node(host) for host in hosts.split(","))
                path = parts.path.strip("/")
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(f"this is not a valid address of Redis: expected {EXPECTED}") from None
        is_cluster = kind == "cluster"
        if len(nodes) > 1 and not is_cluster:
            raise ConfigurationError(
                "several hosts are the address of a cluster: write redis+cluster:// for one, else one host"
            )
        if len(options) < len(said) or (path and "db" in options):
            raise ConfigurationError("the address of Redis says an option twice: leave one of them out")
        database = _database(options.pop("db", path) or "0")
        if is_cluster and database:
            raise ConfigurationError("a cluster has no databases: leave out the number at the address's end")
        tls = {name: _TLS[name](name, options.pop(name)) for name in list(options) if name in _TLS}
        if tls and not has_tls:
            raise ConfigurationError(
                f"{', '.join(sorted(tls))} is for an address with TLS: write rediss:// or valkeys://"
            )
        known = {
            field: read(name, options.pop(name))
            for name, (field, read) in _OPTIONS.items()
            if name in options
        }
        if options:
            raise ConfigurationError(
                f"{', '.join(map(repr, sorted(options)))} is not an option of a Redis address: "
                f"expected {', '.join(sorted([*_OPTIONS, *_TLS, 'db']))}"
            )
        if known.get("wait_timeout") is not None and not known.get("wait"):
            raise ConfigurationError("wait_timeout has no meaning without wait: add wait=1, or leave it out")
        return cls(
            nodes,
            is_cluster,
            has_tls,
            unquote(user) or None,
            unquote(password) or None,
            database,
            tls=tls,
            **known,
        )


def _node(text: str) -> Node:
    parts = urlsplit(f"//{text}")
    port = _PORT if parts.port is None else parts.port
    if not port:
        raise ValueError("there is no port 0")
    return Node(unquote(parts.hostname or "localhost"), port)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError("the database of a Redis address is not a number: expected one such as /0")
    return int(text)


def _text(name: str, value: str) -> str:
    if not value:
        raise ConfigurationError(f"{name} is empty: write a value, or leave it out")
    return value


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ConfigurationError(f"{name} must be a whole number such as 1")
    return int(value)


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds greater than 0, such as 0.5")
    return seconds


def _flag(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise ConfigurationError(f"{name} must be 0 or 1")
    return value == "1"


def _eviction(name: str, value: str) -> bool:
    if value not in ("accept", "refuse"):
        raise ConfigurationError(f"{name} must be accept or refuse")
    return value == "accept"


def _requirement(name: str, value: str) -> str:
    if value not in ("none", "optional", "required"):
        raise ConfigurationError(f"{name} must be none, optional or required")
    return value


_OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "prefix": ("prefix", _text),
    "wait": ("wait", _number),
    "wait_timeout": ("wait_timeout", _seconds),
    "eviction": ("accepts_eviction", _eviction),
    "create": ("creates", _flag),
}

_TLS: dict[str, Callable[[str, str], object]] = {
    "ssl_ca_certs": _text,
    "ssl_ca_path": _text,
    "ssl_certfile": _text,
    "ssl_keyfile": _text,
    "ssl_password": _text,
    "ssl_cert_reqs": _requirement,
    "ssl_check_hostname": _flag,
}
