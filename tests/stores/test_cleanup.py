"""Cleanup by services, in every database: processes take turns, at an interval that can be set."""

import logging
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier

import pytest
import redis

from retrysafe import stores
from retrysafe._core.model import Purged
from retrysafe._core.times import Duration
from retrysafe.stores.contract import Renewer, Store
from retrysafe.stores.options import CLEANUP_INTERVAL
from retrysafe.stores.queue import Operation
from retrysafe.stores.redis.operations import Operations
from retrysafe.stores.sql import cleanup, operations
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended
from tests.stores.engines import engine_for
from tests.stores.redis_clock import Keys
from tests.stores.rows import PATIENT, Rows

POSTGRESQL = ["postgresql", "asyncpg", "pg8000"]


class Service:
    """A process: a store of its own, and the connection of its lease keeper."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.keeper: Renewer = store.open_keeper()

    def count(self) -> None:
        """What the lease keeper does every 10 s while there is traffic."""
        self.keeper.count(ended({"completed": 1}))

    def close(self) -> None:
        self.keeper.close()
        self.store.close()


class Place:
    """A table, the services that use it, and their time."""

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits
        self.now = 1000.0
        """That of the processes; the store's goes with it."""
        self._keys = 0

    def service(self, cleanup_interval: Duration | None = CLEANUP_INTERVAL) -> Service:
        return self._exits.enter_context(closing(Service(self.open(cleanup_interval))))

    def add_expired(self, store: Store, number: int = 1) -> None:
        for _ in range(number):
            self._keys += 1
            claim = a_claim(f"{self._keys}")
            store.reserve(claim)
            store.finish(claim, an_outcome())
        self.expire()

    def elapse(self, seconds: float) -> None:
        self.now += seconds

    def open(self, cleanup_interval: Duration | None) -> Store:
        raise NotImplementedError

    def expire(self) -> None:
        raise NotImplementedError

    def records(self) -> int:
        raise NotImplementedError

    def set_next_round(self, seconds: float) -> None:
        """By a process that has another clock, or has ended."""
        raise NotImplementedError

    def damage_next_round(self) -> None:
        raise NotImplementedError


class SQLitePlace(Place):
    def __init__(self, exits: ExitStack, path: Path) -> None:
        super().__init__(exits)
        self._path = path
        self._clock = ManualClock()

    def open(self, cleanup_interval: Duration | None) -> Store:
        return SQLiteStore(self._path, deadline=PATIENT, cleanup_interval=cleanup_interval, clock=self._clock)

    def elapse(self, seconds: float) -> None:
        super().elapse(seconds)
        self._clock.elapse(seconds)

    def _execute(self, sql: str, *arguments: object) -> list[tuple[int]]:
        with closing(sqlite3.connect(self._path, timeout=PATIENT, isolation_level=None)) as connection:
            return connection.execute(sql, arguments).fetchall()

    def expire(self) -> None:
        self._execute("UPDATE retrysafe_records SET expires_at = 0.0")

    def records(self) -> int:
        return self._execute("SELECT count(*) FROM retrysafe_records")[0][0]

    def set_next_round(self, seconds: float) -> None:
        self._execute("REPLACE INTO retrysafe_meta VALUES ('cleanup', ?)", self._clock() + seconds)

    def damage_next_round(self) -> None:
        self._execute("REPLACE INTO retrysafe_meta VALUES ('cleanup', 'soon')")


class PostgreSQLPlace(Place):
    def __init__(self, exits: ExitStack, url: str, driver: str) -> None:
        super().__init__(exits)
        self.url = url
        self._driver = driver
        self.rows = exits.enter_context(closing(Rows(url)))

    def open(self, cleanup_interval: Duration | None) -> Store:
        if self._driver == "postgresql":
            return stores.open(self.url, deadline=PATIENT, cleanup_interval=cleanup_interval)
        engine = engine_for(self.url, self._driver)
        return stores.from_engine(engine, deadline=PATIENT, cleanup_interval=cleanup_interval)

    def elapse(self, seconds: float) -> None:
        super().elapse(seconds)
        self.rows.elapse(seconds)

    def expire(self) -> None:
        self.rows.execute("UPDATE retrysafe_records SET expires_at = 'epoch'")

    def records(self) -> int:
        [(number,)] = self.rows.execute("SELECT count(*) FROM retrysafe_records")
        assert isinstance(number, int)
        return number

    def _set(self, value: str) -> None:
        self.rows.execute(
            "INSERT INTO retrysafe_meta VALUES ('cleanup', " + value + ")"
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )

    def set_next_round(self, seconds: float) -> None:
        self._set(f"(SELECT (date_part('epoch', now) + {seconds})::text FROM clock)")

    def damage_next_round(self) -> None:
        self._set("'soon'")


class RedisPlace(Place):
    def __init__(self, exits: ExitStack, url: str) -> None:
        super().__init__(exits)
        self._keys_of = Keys(url, exits.enter_context(redis.Redis.from_url(url)))

    def open(self, cleanup_interval: Duration | None) -> Store:
        return self._keys_of.store(cleanup_interval)

    def elapse(self, seconds: float) -> None:
        super().elapse(seconds)
        self._keys_of.elapse(seconds)

    def expire(self) -> None:
        self._keys_of.expire()

    def records(self) -> int:
        return self._keys_of.records()

    def set_next_round(self, seconds: float) -> None:
        self._keys_of.set_next_round(repr(self._keys_of.now + seconds))

    def damage_next_round(self) -> None:
        self._keys_of.set_next_round("soon")


@pytest.fixture(params=["sqlite", "redis", *POSTGRESQL])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as exits:
        place: Place
        if request.param == "sqlite":
            place = SQLitePlace(exits, tmp_path / "keys.db")
        elif request.param == "redis":
            place = RedisPlace(exits, request.getfixturevalue("valkey").new_database())
        else:
            place = PostgreSQLPlace(exits, request.getfixturevalue("database"), request.param)
        monkeypatch.setattr(cleanup, "monotonic", lambda: place.now)
        yield place


@pytest.fixture
def slices(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limit of each statement that removes records; it takes a fifth of a second."""
    seen: list[int] = []
    purge, purge_redis = operations.purge, Operations.purge

    def noted(limit: int) -> Operation[Purged]:
        seen.append(limit)
        place.now += 0.2
        return purge(limit)

    def noted_redis(own: Operations, limit: int) -> Operation[Purged]:
        seen.append(limit)
        place.now += 0.2
        return purge_redis(own, limit)

    monkeypatch.setattr(operations, "purge", noted)
    monkeypatch.setattr(Operations, "purge", noted_redis)
    return seen


def test_one_process_does_it_for_all(place: Place, slices: list[int]) -> None:
    """Three that look at the same moment: one of them removes, the others do not even try."""
    services = [place.service() for _ in range(3)]
    place.add_expired(services[0].store)
    start = Barrier(len(services))

    def count(service: Service) -> None:
        start.wait(PATIENT)
        service.count()

    with ThreadPoolExecutor(len(services)) as threads:
        list(threads.map(count, services))
    assert place.records() == 0
    assert len(slices) == 1
    place.add_expired(services[0].store)
    place.elapse(CLEANUP_INTERVAL - 0.5)
    for service in services:
        service.count()
    assert len(slices) == 1, "it is not due yet, whichever process did it"
    place.elapse(1.0)
    for service in services:
        service.count()
    assert place.records() == 0
    assert len(slices) == 2


def test_a_process_that_begins_takes_its_turn(place: Place) -> None:
    """A new one knows nothing of the others' rounds but what the table says."""
    first = place.service()
    first.count()
    first.close()
    second = place.service()
    place.add_expired(second.store)
    second.count()
    assert place.records() == 1
    place.elapse(CLEANUP_INTERVAL + 0.1)
    second.count()
    assert place.records() == 0


@pytest.mark.parametrize("interval", ["5m", 300.0])
def test_the_interval(place: Place, interval: Duration) -> None:
    """It is kept by the process that cleaned up, and by the others."""
    services = [place.service(interval) for _ in range(2)]
    services[0].count()
    place.add_expired(services[0].store)
    place.elapse(299.0)
    for service in services:
        service.count()
    assert place.records() == 1
    place.elapse(2.0)
    services[1].count()
    assert place.records() == 0


def test_a_shorter_interval_counts(place: Place) -> None:
    """A process that cleans up once a day does not hold up one that wants it every few seconds."""
    daily, often = place.service("1d"), place.service()
    daily.count()
    place.add_expired(often.store)
    often.count()
    assert place.records() == 0


def test_never(place: Place) -> None:
    """`None` leaves it to `retrysafe purge`."""
    service = place.service(None)
    place.add_expired(service.store)
    for _ in range(3):
        service.count()
        place.elapse(1e6)
    assert place.records() == 1
    with closing(service.store.open_admin()) as admin:
        assert admin.purge(10).records == 1


def test_a_time_that_cannot_be_right(place: Place) -> None:
    """A clock that was years ahead does not end cleanup, and neither does text that is not a time."""
    service = place.service()
    place.add_expired(service.store)
    place.set_next_round(3e8)
    service.count()
    assert place.records() == 0
    place.elapse(CLEANUP_INTERVAL + 0.1)
    place.add_expired(service.store)
    place.damage_next_round()
    service.count()
    assert place.records() == 0


def test_a_process_that_died_in_its_round(place: Place) -> None:
    """The others wait for it, and not for ever."""
    service = place.service()
    place.add_expired(service.store)
    place.set_next_round(cleanup.TURN)
    service.count()
    assert place.records() == 1
    place.elapse(cleanup.TURN + 0.1)
    service.count()
    assert place.records() == 0


def test_what_is_left_over_is_for_another_process(
    place: Place, slices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose budget is used up leaves the rest: another goes on at once, whatever the interval."""
    monkeypatch.setattr(cleanup, "SLICE", 3)
    first, second = place.service("1h"), place.service("1h")
    place.add_expired(first.store, 12)
    first.count()
    assert place.records() == 6
    second.count()
    assert place.records() == 0
    assert slices == [3] * 4


def test_it_keeps_up(place: Place, slices: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of many commits, while more records expire: rounds come nearer than the interval until it is
    gone, remove twice what is added, and take 5% of the time."""
    monkeypatch.setattr(cleanup, "SLICE", 3)
    service = place.service("1h")
    place.add_expired(service.store, 15)
    began = place.now
    service.count()
    assert (slices, place.records()) == ([3, 3], 9), "what fits into the budget"
    place.elapse(cleanup.BUDGET / cleanup.DUTY - 1.0)
    service.count()
    assert place.records() == 9, "5% of the time"
    left = []
    for _ in range(3):
        place.elapse(10.0)
        place.add_expired(service.store, 3)
        service.count()
        left.append(place.records())
    assert left == [6, 3, 0]
    place.elapse(10.0)
    service.count()
    assert 0.2 * len(slices) <= (place.now - began) * cleanup.DUTY
    slices.clear()
    place.add_expired(service.store)
    place.elapse(10.0)
    service.count()
    assert slices == [], "there was no more, so the interval counts again"


@pytest.mark.parametrize("place", POSTGRESQL, indirect=True)
def test_a_role_that_may_only_read_the_row(
    place: PostgreSQLPlace, slices: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """It cleans up all the same, at its own interval, and asks for its turn once."""
    place.service().store.look(bytes(32))
    role = f"service_{place.url.rpartition('_')[2]}"
    owner = place.rows
    owner.execute(f"CREATE ROLE {role} LOGIN")
    try:
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_records TO {role}")
        owner.execute(f"GRANT SELECT ON retrysafe_meta, clock TO {role}")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE ON retrysafe_verdicts TO {role}")
        place.url = place.url.replace("postgres@", f"{role}@")
        service = place.service()
        place.add_expired(service.store)
        with caplog.at_level(logging.INFO, "retrysafe.store"):
            service.count()
            assert place.records() == 0
            place.add_expired(service.store)
            service.count()
            assert place.records() == 1
            place.elapse(CLEANUP_INTERVAL + 0.1)
            service.count()
            assert place.records() == 0
        assert len(slices) == 2
        told = [record for record in caplog.records if "take turns" in record.getMessage()]
        assert [record.levelname for record in told] == ["INFO"]
        assert "SQLSTATE 42501" in told[0].getMessage()
        assert "could not be removed" not in caplog.text
        service.close()
    finally:
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")
