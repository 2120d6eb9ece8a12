"""F8: a worker that is frozen inside its completing transaction holds the row of its record.

Its lease does not help, since whoever takes over has to wait for the row.  So the server must cut it off, and
until then nobody may wait for longer than the store's deadline.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from retrysafe.testing.adapters.client import PATIENCE, Client, Reply, until
from retrysafe.testing.adapters.suite import fresh
from tools.crash.mariadb import MariaDB
from tools.crash.postgresql import PostgreSQL
from tools.crash.targets import Target
from tools.crash.workers import WorkerGroup

LEASE = 1.5

ONE_ANSWER = 8.0
"""Seconds: a bid, and once more, with a deadline of two seconds each, on a machine that is busy."""


class Way(NamedTuple):
    """How workers reach which database."""

    store: str
    driver: str


@pytest.fixture(scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Target]:
    kept: dict[str, Target] = {}

    def started(store: str) -> Target:
        if store not in kept:
            folder = tmp_path_factory.mktemp("shop")
            kept[store] = (
                PostgreSQL(folder, request.getfixturevalue("postgres"))
                if store == "postgresql"
                else MariaDB(folder, request.getfixturevalue("mariadb"))
            )
        return kept[store]

    return started


class Place(NamedTuple):
    shop: Target
    url: str
    group: WorkerGroup


WAYS = [
    Way("postgresql", "psycopg"),
    Way("postgresql", "psycopg async"),
    Way("postgresql", "sqlalchemy async"),
    Way("mariadb", "pymysql"),
    Way("mariadb", "sqlalchemy"),
]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way.store}, {way.driver}")
def place(
    request: pytest.FixtureRequest,
    servers: Callable[[str], Target],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    way: Way = request.param
    shop = servers(way.store)
    url = shop.prepare()
    folder: Path = tmp_path_factory.mktemp("fleet")
    with WorkerGroup(folder, way.store, url, way.driver, "tx", lease=LEASE, workers=3) as group:
        yield Place(shop, url, group)


@pytest.mark.parametrize(
    ("place", "trap"),
    [
        (Way("postgresql", "sqlalchemy async"), "after conclude"),
        (Way("postgresql", "sqlalchemy async"), "before COMMIT"),
        # psycopg sends both together, so its worker is frozen before either.
        (Way("postgresql", "psycopg"), "before COMMIT"),
        (Way("postgresql", "psycopg async"), "before COMMIT"),
        (Way("mariadb", "pymysql"), "after conclude"),
        (Way("mariadb", "pymysql"), "before COMMIT"),
        (Way("mariadb", "sqlalchemy"), "before COMMIT"),
    ],
    indirect=["place"],
    ids=lambda value: f"{value.store}, {value.driver}" if isinstance(value, Way) else str(value),
)
def test_frozen_inside_the_completion(place: Place, trap: str) -> None:
    """Waiters are refused in time, the sleeper's session is cut after a lease, a successor's answer stands,
    and the zombie, when it goes on, tells that answer or none."""
    shop, url, group = place
    client, key = Client(group.port), fresh()

    def send(*fields: tuple[str, str]) -> Reply:
        return client.post("/orders", key=key, user=None, body=b"{}", fields=fields)

    before = len(group.trapped())
    zombie = client.started(lambda: send(("Trap", f"stop {trap}")))
    until(lambda: len(group.trapped()) > before)
    pid, _ = group.trapped()[-1]
    try:
        since = time.monotonic()
        while True:
            began = time.monotonic()
            answer = send()
            assert time.monotonic() - began < ONE_ANSWER
            if answer.status == 201:
                break
            assert (answer.status, answer.code) in {(409, "in-flight"), (503, "store-unavailable")}
            assert answer.header("Retry-After") is not None
            assert time.monotonic() - since < PATIENCE
            time.sleep(0.05)
    finally:
        group.signal(pid, signal.SIGCONT)
    assert not answer.replayed
    definitive = zombie.result(PATIENCE)
    if definitive.status == 201:
        assert (definitive.replayed, definitive.body) == (True, answer.body)
    else:
        assert definitive.status in (409, 500, 503)
        assert definitive.code is not None
    replay = send()
    assert (replay.status, replay.replayed, replay.body) == (201, True, answer.body)
    snapshot = shop.read(url)
    assert snapshot.orders(key) == [json.loads(answer.body)["id"]]
    assert not snapshot.violations()


def test_other_keys_are_served_meanwhile(place: Place) -> None:
    """I17: whoever is frozen stops nobody but its own key."""
    group = place.group
    client, key = Client(group.port), fresh()
    before = len(group.trapped())
    trap = ("Trap", "stop before COMMIT")
    zombie = client.started(lambda: client.post("/orders", key=key, user=None, body=b"{}", fields=[trap]))
    until(lambda: len(group.trapped()) > before)
    pid, _ = group.trapped()[-1]
    try:
        for _ in range(5):
            assert client.post("/orders", key=fresh(), user=None, body=b"{}").status == 201
    finally:
        group.signal(pid, signal.SIGCONT)
    zombie.result(PATIENCE)
