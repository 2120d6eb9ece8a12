"""PostgreSQL with a standby: what a fail-over loses, with a synchronous one and with one that was behind."""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pytest

from retrysafe import stores
from retrysafe._core.model import Claim, Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.postgres_replication import PostgresReplication
from retrysafe.testing.stores import a_claim, an_outcome
from tools.failover import postgresql
from tools.failover.traffic import CLIENTS, Outcome

PATIENCE = 30.0
"""Seconds until a fail-over that does not end is given up.  Far more than it takes."""

KEYS = 100
"""Acknowledged before the primary is killed, and again afterwards."""


@pytest.fixture(autouse=True)
def _installed(postgres: PostgresServer) -> None:
    """Only where there is a server."""


def assert_nothing_lost(outcome: Outcome) -> None:
    """Clients have seen results, and refusals while there was no server to ask."""
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)


def test_a_synchronous_standby_is_promoted() -> None:
    """F16: what clients were told is there, no effect happened twice, and all they saw besides was 503."""
    outcome = asyncio.run(postgresql.promoted(KEYS, synchronous=True, fsync="off"))
    assert_nothing_lost(outcome)
    assert not outcome.unexpected


def test_a_synchronous_standby_is_promoted_with_transactions() -> None:
    """F16, I14: as many rows of the application as completed records.  Its own pool may fail meanwhile."""
    outcome = asyncio.run(postgresql.promoted_with_transactions(KEYS, synchronous=True, fsync="off"))
    assert_nothing_lost(outcome)
    assert (outcome.unstored, outcome.unknown) == (0, 0)
    assert set(outcome.unexpected) <= {"handler-failed"}


@pytest.mark.full
def test_an_asynchronous_standby_that_was_behind_under_load() -> None:
    """F17: what it had not received is gone, and executed again.  Nothing else is."""
    outcome = asyncio.run(postgresql.promoted(KEYS, synchronous=False, behind=True, fsync="off"))
    assert outcome.lost >= KEYS
    # Requests that were under way have lost their claims, too, and were repeated before any acknowledgement.
    assert outcome.repeated <= outcome.lost + CLIENTS
    assert outcome.contradicted == 0
    assert not outcome.unexpected


@pytest.mark.full
def test_killed_and_started_again() -> None:
    """F15: what clients were told is there, even where the database is set to commit without the disk."""
    outcome = asyncio.run(postgresql.restarted(KEYS, synchronous_commit="off"))
    assert_nothing_lost(outcome)
    assert not outcome.unexpected


def test_what_an_asynchronous_standby_did_not_receive() -> None:
    """F17: an acknowledged record is gone after the fail-over, and its key is free again."""
    with (
        PostgresReplication(synchronous=False, fsync="off") as servers,
        closing(stores.open(servers.new_database())) as store,
    ):
        kept, lost = a_claim("kept"), a_claim("lost")
        finish(store, kept)
        servers.catch_up()
        servers.cut()
        finish(store, lost)
        assert isinstance(store.reserve(a_claim("lost")), Found)
        servers.fail_over()
        assert isinstance(until_reached(lambda: store.reserve(a_claim("kept"))), Found)
        assert store.reserve(a_claim("lost")) == Reserved(1)


@pytest.mark.full
def test_what_a_synchronous_standby_did_not_receive() -> None:
    """F16: it is not acknowledged, so nothing is while the standby is away; and no client waits for it."""
    with (
        PostgresReplication(synchronous=True, fsync="off") as servers,
        closing(stores.open(servers.new_database(), deadline=0.5)) as store,
    ):
        finish(store, a_claim("kept"))
        servers.cut()
        with pytest.raises(StoreUnavailable):
            store.reserve(a_claim("lost"))
        servers.fail_over()
        assert isinstance(until_reached(lambda: store.reserve(a_claim("kept"))), Found)
        assert until_reached(lambda: store.reserve(a_claim("lost"))) == Reserved(1)


@pytest.mark.full
def test_a_primary_that_restarts_without_its_standby() -> None:
    """A limit of PostgreSQL: after its restart it shows what it had committed and the standby never
    received.  What is replayed then is lost if the standby is promoted."""
    with (
        PostgresReplication(synchronous=True, fsync="off") as servers,
        closing(stores.open(servers.new_database(), deadline=0.5)) as store,
    ):
        claim = a_claim()
        assert store.reserve(claim) == Reserved(1)
        servers.cut()
        with pytest.raises(StoreUnavailable):
            store.finish(claim, an_outcome())
        servers.primary.kill()
        servers.primary.start()
        found = until_reached(lambda: store.look(claim.id))
        assert found is not None
        assert found.record.response == an_outcome().response
        servers.fail_over()
        found = until_reached(lambda: store.look(claim.id))
        assert found is not None
        assert found.record.response is None


def finish(store: Store, claim: Claim) -> None:
    """Reserve and complete: the caller is told that it is stored."""
    assert store.reserve(claim) == Reserved(1)
    assert store.finish(claim, an_outcome()) is True


T = TypeVar("T")


def until_reached(operation: Callable[[], T]) -> T:
    """Its result, once a server responds that takes writes."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return operation()
        except StoreUnavailable:
            assert time.monotonic() < until
            time.sleep(0.05)
