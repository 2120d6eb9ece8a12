"""A Valkey primary and its replicas: to be cut off, killed and promoted.

with ValkeyReplication() as servers:
    store = stores.open(servers.primary.new_database())
    servers.fail_over()
    store = stores.open(servers.primary.url(0))
"""

import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

import redis

from retrysafe.testing.ports import free_port
from retrysafe.testing.valkey import PATIENCE, ValkeyServer


class ValkeyReplication:
    """The password is the same on all.  Settings are those of `ValkeyServer`, for each of them."""

    def __init__(self, replicas: int = 1, **settings: str) -> None:
        password = secrets.token_hex(16)
        settings = {
            "requirepass": password,
            "masterauth": password,
            "repl_diskless_sync_delay": "0",
            **settings,
        }
        self._servers: list[ValkeyServer] = []
        try:
            for _ in range(1 + replicas):
                self._servers.append(ValkeyServer(**settings))
            self.primary = self._servers[0]
            for replica in self.replicas:
                self.follow(replica)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    @property
    def replicas(self) -> list[ValkeyServer]:
        return [server for server in self._servers if server is not self.primary]

    def follow(self, replica: ValkeyServer) -> None:
        """Let it copy what the primary has, and receive what comes."""
        ask(replica, "REPLICAOF", "127.0.0.1", str(self.primary.port))
        wait(replica, is_following)

    def catch_up(self) -> None:
        """Wait until all replicas have received what the primary has written."""
        position = int(ask(self.primary, "INFO", "replication")["master_repl_offset"])
        for replica in self.replicas:
            wait(replica, lambda one: _received(one) >= position)

    def cut(self, *replicas: ValkeyServer) -> None:
        """Let these replicas, or all, receive nothing more; what they have they keep."""
        chosen = replicas or self.replicas
        left = len(self.replicas) - len(chosen)
        for replica in chosen:
            ask(replica, "REPLICAOF", "127.0.0.1", str(free_port()))  # where no server listens
        wait(self.primary, lambda primary: ask(primary, "INFO", "replication")["connected_slaves"] == left)

    def repair(self) -> None:
        """Let the replicas receive again, and catch up."""
        for replica in self.replicas:
            self.follow(replica)

    def promote(self, replica: ValkeyServer | None = None) -> ValkeyServer:
        """Make it the primary, which the others follow; without one, that which has received most.

        The primary so far is removed.
        """
        self.primary, previous = replica or max(self.replicas, key=_received), self.primary
        self._servers.remove(previous)
        previous.close()
        ask(self.primary, "REPLICAOF", "NO", "ONE")
        for other in self.replicas:
            self.follow(other)
        return self.primary

    def fail_over(self) -> ValkeyServer:
        """Kill the primary, then promote a replica, which is returned."""
        self.primary.kill()
        return self.promote()


def ask(server: ValkeyServer, *command: str) -> Any:  # noqa: ANN401 - as various as redis-py's own
    """What a server responds to a command of operators."""
    with client(server, decode_responses=True) as connection:
        return connection.execute_command(*command)


def client(server: ValkeyServer, **options: bool) -> Any:  # noqa: ANN401 - redis-py's types are incomplete
    return cast("Any", redis.Redis).from_url(server.url(0), socket_timeout=PATIENCE, **options)


def is_following(replica: ValkeyServer) -> bool:
    """Whether it has copied what its primary had, and receives what comes."""
    return bool(ask(replica, "INFO", "replication")["master_link_status"] == "up")


def _received(replica: ValkeyServer) -> int:
    return int(ask(replica, "INFO", "replication")["slave_repl_offset"])


def wait(server: ValkeyServer, condition: Callable[[ValkeyServer], bool]) -> None:
    """Until a server gets to what it was asked for."""
    until = time.monotonic() + PATIENCE
    while not condition(server):
        if time.monotonic() > until:
            raise RuntimeError(f"Valkey did not get there within {PATIENCE:g} s:\n{server.log}")
        time.sleep(0.01)
