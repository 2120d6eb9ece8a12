"""Opens connections: redis-py connects, encrypts and logs in; then it is looked at what kind of server it is.

redis-py's own timeouts, 10 s and 5 s by default, and its retries are replaced: how long anything may take is
the store's to say.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache
from time import monotonic
from typing import Any, Protocol, cast

from redis import RedisError
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.errors import RedisTrouble, trouble_of
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.redis.scripts import Scripts, pack
from retrysafe.stores.redis.session import Session

_log = logging.getLogger("retrysafe.store")

INFO = pack("INFO")


def open_session(address: Address, node: Node, scripts: Scripts, deadline: float) -> Session:
    """A connection that may be used, to a primary that was looked at and has the scripts."""
    session = connect(address, node, deadline)
    try:
        until = monotonic() + deadline
        info, *loaded = session.exchange(INFO + scripts.load, 1 + scripts.number, until)
        _check_server(address, node, info)
        for reply in loaded:
            if isinstance(reply, Refusal):
                trouble = trouble_of(reply)
                raise trouble.as_error() if isinstance(trouble, RedisTrouble) else trouble
    except BaseException:
        session.close()
        raise
    return session


def connect(address: Address, node: Node, deadline: float) -> Session:
    """Connect, and log in.  It blocks, for two deadlines at most."""
    connection = _made(address, node, deadline)
    try:
        connection.connect()
    except (RedisError, OSError) as error:
        raise unreachable(node, error) from None
    # From here on the socket is ours: redis-py has no part in what is sent, and does not close it.
    fields = vars(connection)
    connected, fields["_sock"] = fields["_sock"], None
    return Session(connected)


class _Connection(Protocol):
    """What is used of redis-py's connections."""

    def connect(self) -> object: ...


_tcp = cast("Callable[..., _Connection]", Connection)
_tls = cast("Callable[..., _Connection]", SSLConnection)
_unix = cast("Callable[..., _Connection]", UnixDomainSocketConnection)


def _made(address: Address, node: Node, deadline: float) -> "_Connection":
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.user,
        "password": address.password,
        "socket_timeout": deadline,
        "socket_connect_timeout": deadline,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "client_name": "retrysafe",
        "protocol": 2,
    }
    if not node.port:
        return _unix(path=node.host, **options)
    options |= {"host": node.host, "port": node.port, "socket_keepalive": True}
    return _tls(**options, **address.tls) if address.has_tls else _tcp(**options)


def unreachable(node: Node, error: Exception) -> StoreUnavailable:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return StoreUnavailable(f"cannot connect to Redis at {node}: {said}")


def read_info(reply: object) -> Mapping[str, str]:
    """What INFO says."""
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _check_server(address: Address, node: Node, reply: object) -> None:
    if isinstance(reply, Refusal):
        trouble = trouble_of(reply)
        if reply.code != "NOPERM":
            raise trouble.as_error() if isinstance(trouble, RedisTrouble) else trouble
        _warn_unchecked()
        return
    info = read_info(reply)
    if info.get("role") == "slave" and not address.is_cluster:  # one of a cluster says who the primary is
        raise StoreUnavailable(f"Redis at {node} is a replica: retrysafe needs the primary")
    if info.get("loading") == "1":
        raise StoreUnavailable(f"Redis at {node} is loading its data after a start")
    _note_restart(node, info.get("run_id", ""))
    if address.is_cluster and info.get("cluster_enabled") == "0":
        raise StoreUnavailable(f"Redis at {node} is not a node of a cluster: write redis:// for one server")
    if not address.is_cluster and info.get("cluster_enabled") == "1":
        raise StoreUnavailable(f"Redis at {node} is a node of a cluster: write redis+cluster:// for it")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not address.accepts_eviction:
        raise StoreUnavailable(
            f"Redis at {node} may evict records (maxmemory-policy is {policy}), and with them the memory of "
            "what was done: set it to noeviction, or write ?eviction=accept if keys may be executed twice"
        )
    if info.get("aof_enabled") == "0":
        _warn_of_loss(node)


_lives: dict[Node, str] = {}
"""The number that each server has given itself at its last start, as far as this process has seen."""


def _note_restart(node: Node, life: str) -> None:
    before = _lives.get(node, life)
    _lives[node] = life
    if before != life:
        _log.warning(
            "Redis at %s was restarted, or another server took its place: the last moments may be lost",
            node,
        )


@cache
def _warn_unchecked() -> None:
    """Once per process."""
    _log.warning("it could not be checked whether Redis evicts or loses records: this user may not run INFO")


@cache
def _warn_of_loss(node: Node) -> None:
    """Once per process."""
    _log.warning("Redis at %s keeps no append-only file: best effort, because a restart loses records", node)
