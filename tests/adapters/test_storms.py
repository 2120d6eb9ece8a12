"""Many connections at once, to several processes that share a store: none of them gets an error.

A hundred requests with the same key are `Concurrency.test_a_hundred_at_once`, for each store in
`test_asgi.py`.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from retrysafe.testing.adapters import Suite
from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.adapters.mariadb import MariaDB
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import LONG, assert_replay, fresh
from retrysafe.testing.adapters.valkey import Valkey

CONNECTIONS = 256
ROUNDS = 10 if LONG else 1


class _Storm(Suite):
    framework = "asgi"
    workers = 3

    def test_256_connections(self, api: Server) -> None:
        """Each with a key of its own: one effect, and the same response to the retry, from whichever
        process."""
        for _ in range(ROUNDS):
            label = fresh("label")
            for _, first, retry in _all_at_once(api, label):
                assert (first.status, first.replayed) == (201, False)
                assert_replay(first, retry)
            assert api.effects(label) == CONNECTIONS


def _all_at_once(api: Server, label: str) -> list[tuple[str, Reply, Reply]]:
    start = threading.Barrier(CONNECTIONS)

    def send(key: str) -> tuple[str, Reply, Reply]:
        start.wait()
        first = api.post("/charges", key=key, label=label)
        return key, first, api.post("/charges", key=key, label=label)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(send, [fresh("key") for _ in range(CONNECTIONS)]))


class TestSqlite(_Storm):
    """One file, in which one process writes at a time."""


class TestPostgres(_Storm):
    backing = Postgres()


class TestMariaDB(_Storm):
    backing = MariaDB()


class TestValkey(_Storm):
    backing = Valkey()
