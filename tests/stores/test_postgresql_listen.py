"""Hearing that a record has come to an end."""

import asyncio
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from retrysafe._core.model import Claim
from retrysafe.stores.sql.postgresql import PostgresStore, listen
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.rows import PATIENT


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, deadline=PATIENT)
    yield store
    store.close()


def announced(key: str = "key") -> Claim:
    return a_claim(key)._replace(announced=True)


def listens(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN retrysafe' AND datname = %s",
            [connection.info.dbname],
        ).fetchone()
    return row == (1,)


def listening_to(store: PostgresStore, url: str, id: bytes) -> threading.Event:
    """Subscribed, and past the moment from which on everything is heard."""
    heard = threading.Event()
    store.subscribe(id, heard.set)
    until = time.monotonic() + PATIENT
    while not listens(url):
        assert time.monotonic() < until, "nobody listens"
        time.sleep(0.02)
    return heard


class TestEnds:
    """Whoever subscribed is woken."""

    def test_a_finish_is_heard(self, store: PostgresStore, database: str) -> None:
        """By another store, as it would be in another process."""
        claim = announced()
        heard = listening_to(store, database, claim.id)
        other = PostgresStore(database, deadline=PATIENT)
        other.reserve(claim)
        assert not heard.wait(0.1)
        other.finish(claim, an_outcome())
        assert heard.wait(PATIENT)
        other.close()

    def test_a_release_is_heard(self, store: PostgresStore, database: str) -> None:
        """So that one of those who wait can claim the key."""
        claim = announced()
        heard = listening_to(store, database, claim.id)
        store.reserve(claim)
        store.release(claim)
        assert heard.wait(PATIENT)

    def test_a_keepers_release_is_heard(self, store: PostgresStore, database: str) -> None:
        """As well, and only of the claim that was announced."""
        claim, silent = announced(), a_claim("silent")
        heard, unheard = listening_to(store, database, claim.id), threading.Event()
        store.subscribe(silent.id, unheard.set)
        store.reserve(silent)
        store.reserve(claim)
        keeper = store.open_keeper()
        keeper.release([silent, claim])
        keeper.close()
        assert heard.wait(PATIENT)
        assert not unheard.is_set(), "all of one commit is told together"

    def test_what_is_not_announced_is_not_told(self, store: PostgresStore, database: str) -> None:
        """Nobody waits for it, and a notification makes commits wait for each other."""
        claim, marker = a_claim(), announced("marker")
        heard, later = listening_to(store, database, claim.id), threading.Event()
        store.subscribe(marker.id, later.set)
        for each in (claim, marker):
            store.reserve(each)
            store.finish(each, an_outcome())
        assert later.wait(PATIENT)
        assert not heard.is_set()

    def test_only_a_kept_outcome_is_told(self, store: PostgresStore, database: str) -> None:
        """Whoever was fenced has ended nothing."""
        claim, marker = announced(), announced("marker")
        heard, later = listening_to(store, database, claim.id), threading.Event()
        store.subscribe(marker.id, later.set)
        store.reserve(a_claim())
        assert store.finish(claim, an_outcome()) is False
        store.release(claim)
        store.reserve(marker)
        store.finish(marker, an_outcome())
        assert later.wait(PATIENT)
        assert not heard.is_set()

    def test_whoever_unsubscribed_is_not_woken(self, store: PostgresStore, database: str) -> None:
        """And nothing of it stays in memory."""
        claim = announced()
        heard, gone = listening_to(store, database, claim.id), threading.Event()
        unsubscribe = store.subscribe(claim.id, gone.set)
        unsubscribe()
        unsubscribe()
        store.reserve(claim)
        store.finish(claim, an_outcome())
        assert heard.wait(PATIENT)
        assert not gone.is_set()
        for n in range(100):
            store.subscribe(b"%d" % n, gone.set)()
        assert len(store._postgres._resources.listener._subscribers) == 1


class TestListener:
    """Its thread and its connection."""

    def test_it_is_there_only_while_it_is_needed(
        self, store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It begins with the first who waits, and ends some time after the last; and begins again."""
        monkeypatch.setattr(listen, "_IDLE", 0.1)
        store.reserve(a_claim())
        assert not _threads()
        for _ in range(2):
            stop = store.subscribe(b"id", lambda: None)
            assert len(_threads()) == 1
            stop()
            until = time.monotonic() + PATIENT
            while _threads():
                assert time.monotonic() < until, "it does not end"
                time.sleep(0.02)

    def test_closing_ends_it(self, store: PostgresStore, database: str) -> None:
        """Even while somebody is subscribed."""
        listening_to(store, database, b"id")
        store.close()
        assert not _threads()
        until = time.monotonic() + PATIENT
        while listens(database):  # the server takes its time to notice
            assert time.monotonic() < until
            time.sleep(0.02)

    def test_a_lost_connection_is_opened_anew(
        self, store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody is told of it, and what ends afterwards is heard."""
        monkeypatch.setattr(listen, "_PAUSE", 0.05)
        claim = announced()
        listening_to(store, database, claim.id)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity"
                " WHERE query = 'LISTEN retrysafe' AND datname = current_database()"
            )
        heard = listening_to(store, database, claim.id)
        store.reserve(claim)
        store.finish(claim, an_outcome())
        assert heard.wait(PATIENT)

    def test_where_nobody_can_listen(self, postgres: PostgresServer) -> None:
        """The server is not to be reached: subscribing is no error, and closing waits for nothing."""
        store = PostgresStore(postgres.url("nowhere"))
        stop = store.subscribe(b"id", lambda: None)
        stop()
        store.close()
        assert not _threads()

    def test_somebody_else_on_the_channel(self, store: PostgresStore, database: str) -> None:
        """What is no id is passed over."""
        claim = announced()
        heard = listening_to(store, database, claim.id)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SELECT pg_notify('retrysafe', 'hello'), pg_notify('retrysafe', '')")
        store.reserve(claim)
        store.finish(claim, an_outcome())
        assert heard.wait(PATIENT)

    def test_a_waiter_whose_loop_is_gone(self, store: PostgresStore, database: str) -> None:
        """Waking it fails, and the others are woken all the same."""
        claim = announced()
        loop = asyncio.new_event_loop()
        loop.close()
        store.subscribe(claim.id, lambda: void(loop.call_soon_threadsafe(print)))
        heard = listening_to(store, database, claim.id)
        store.reserve(claim)
        store.finish(claim, an_outcome())
        assert heard.wait(PATIENT)


def void(_: object) -> None:
    """What a lambda gives, for those who must not get it."""


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "retrysafe-listener"]
