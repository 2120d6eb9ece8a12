"""A MariaDB Galera cluster: nodes that all have the same data, and all take writes.

    with GaleraCluster() as cluster:
        database = cluster.new_database()
        store = stores.open(cluster.nodes[0].url(database))
        cluster.nodes[0].kill()

It needs the machine's packages of MariaDB, Galera and rsync (`make services`).  A cluster of three goes on
when one node is gone, which it notices within seconds; one of two does not.
"""

import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pymysql

from retrysafe.testing import mariadb
from retrysafe.testing.mariadb import PATIENCE, MariaDBServer
from retrysafe.testing.ports import free_port

_PLACES = (
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib/libgalera_smm.so",
)

_NOTICED = {
    "evs.inactive_check_period": "PT0.2S",
    "evs.suspect_timeout": "PT3S",
    "evs.inactive_timeout": "PT6S",
    "evs.install_timeout": "PT6S",
}
"""About half of the defaults.  With less, nodes that wait for a processor on a busy machine suspect each
other while another one is gone, and are then left without a majority until an operator helps."""


def is_available() -> bool:
    """Whether the programs and the library of Galera are installed."""
    return mariadb.is_available() and _library() is not None


class GaleraCluster:
    """Settings are those of `MariaDBServer`, for each node."""

    def __init__(self, nodes: int = 3, **settings: str) -> None:
        library = _library()
        if library is None:
            raise RuntimeError("Galera is not installed: run `make services`, or install Debian's galera-4")
        self.nodes: list[MariaDBServer] = []
        password, name = secrets.token_hex(16), secrets.token_hex(8)
        ports = [free_port() for _ in range(nodes)]
        everywhere = "gcomm://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        try:
            for port in ports:
                provider = {
                    "gmcast.listen_addr": f"tcp://127.0.0.1:{port}",
                    "ist.recv_addr": f"127.0.0.1:{free_port()}",
                    "gcache.size": "16M",
                    **_NOTICED,
                }
                said = {
                    "wsrep_on": "ON",
                    "wsrep_provider": library,
                    "wsrep_provider_options": ";".join(f"{key}={value}" for key, value in provider.items()),
                    "wsrep_cluster_name": name,
                    # The first one founds the cluster.
                    "wsrep_cluster_address": everywhere if self.nodes else "gcomm://",
                    "wsrep_node_name": f"node{len(self.nodes)}",
                    "wsrep_node_address": f"127.0.0.1:{port}",
                    "wsrep_sst_receive_address": f"127.0.0.1:{free_port()}",
                    "wsrep_sst_method": "rsync",
                    "binlog_format": "ROW",
                    "innodb_autoinc_lock_mode": "2",
                    "innodb_flush_method": "nosync",
                }
                self.nodes.append(MariaDBServer(password=password, **{**said, **settings}))
            # Should it be started again, it is to join, and not to found another one.
            self.nodes[0].configure(wsrep_cluster_address=everywhere)
            self.wait_until_whole()
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
        for node in self.nodes:
            node.close()

    @property
    def running(self) -> list[MariaDBServer]:
        return [node for node in self.nodes if node.is_running]

    def new_database(self) -> str:
        """The name of an empty database, which all nodes have."""
        name = self.running[0].new_database().rpartition("/")[2]
        for node in self.running[1:]:
            _wait(node, f"SHOW DATABASES LIKE '{name}'", name)
        return name

    def wait_until_whole(self) -> None:
        """Until all nodes that run are members of one cluster, and up to date."""
        for node in self.running:
            _wait(node, _status("wsrep_cluster_size"), str(len(self.running)))
            _wait(node, _status("wsrep_local_state_comment"), "Synced")
            _wait(node, _status("wsrep_ready"), "ON")

    def isolate(self, node: MariaDBServer) -> None:
        """Cut it off from the others: it stays without a majority, and the others go on without it."""
        node.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
        _wait(node, _status("wsrep_cluster_status"), "non-Primary")
        for other in self.running:
            if other is not node:
                _wait(other, _status("wsrep_cluster_size"), str(len(self.running) - 1))

    def rejoin(self, node: MariaDBServer) -> None:
        node.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")
        self.wait_until_whole()


def _library() -> str | None:
    return next((place for place in _PLACES if Path(place).exists()), None)


def _status(name: str) -> str:
    return f"SHOW STATUS LIKE '{name}'"


def _wait(node: MariaDBServer, question: str, wanted: object) -> None:
    until = time.monotonic() + PATIENCE
    while (found := _ask(node, question)) != wanted:
        if time.monotonic() > until:
            raise RuntimeError(f"expected {wanted!r} of {question}, got {found!r}:\n{node.log}")
        time.sleep(0.05)


def _ask(node: MariaDBServer, question: str) -> object:
    try:
        rows = node.execute(question)
    except pymysql.OperationalError as error:
        # A node that is about to join, or has lost the majority, responds to no question about data.
        return str(error)
    return rows[0][-1] if rows else None
