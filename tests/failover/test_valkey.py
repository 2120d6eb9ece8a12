"""Valkey with replicas: what a fail-over loses, with `?wait=1` and without."""

import asyncio
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe._core.model import Claim, Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.valkey import ValkeyServer
from retrysafe.testing.valkey_replication import ValkeyReplication
from tools.failover import valkey as faults
from tools.failover.traffic import CLIENTS

KEYS = 100
"""Acknowledged before the primary is killed, and again afterwards."""


@pytest.fixture(autouse=True)
def _installed(valkey: ValkeyServer) -> None:
    """Only where there is a server."""


def test_a_replica_that_was_behind_is_promoted() -> None:
    """F17: without `wait`, what it had not received is gone, and executed again.  Nothing else is."""
    outcome = asyncio.run(faults.promoted(KEYS, wait=False, behind=True))
    assert outcome.lost >= KEYS
    # Requests that were under way have lost their claims, too, and were repeated before any acknowledgement.
    assert outcome.repeated <= outcome.lost + CLIENTS
    assert outcome.contradicted == 0
    assert not outcome.unexpected


def test_a_replica_is_promoted_with_wait() -> None:
    """F16: with `wait=1`, nothing is acknowledged while the replicas are behind, and nothing is lost."""
    outcome = asyncio.run(faults.promoted(KEYS, wait=True, behind=True))
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)
    assert outcome.refused > 0
    assert not outcome.unexpected


@pytest.mark.full
def test_killed_and_started_again_with_a_file() -> None:
    """F15: with an append-only file, what clients were told is there."""
    outcome = asyncio.run(faults.restarted(KEYS, appendonly="yes"))
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)
    assert not outcome.unexpected


@pytest.mark.full
def test_killed_and_started_again_without_a_file() -> None:
    """F18: everything is gone, which is noticed: nothing is executed again until an operator says so."""
    outcome = asyncio.run(faults.restarted(KEYS, is_empty=True))
    assert outcome.lost >= KEYS
    assert outcome.refused > 0
    assert not outcome.unexpected


@pytest.mark.parametrize("wait", [False, True])
def test_what_a_replica_did_not_receive(wait: bool) -> None:
    """F17, F16: without `wait` an acknowledged record is gone; with it, it was not acknowledged."""
    query = "?wait=1&wait_timeout=0.2" if wait else ""
    with ValkeyReplication(replicas=2) as servers:
        with closing(faults.armed(servers.primary.url(0) + query)) as store:
            finish(store, a_claim("kept"))
            servers.catch_up()
            servers.cut()
            if wait:
                with pytest.raises(StoreUnavailable):
                    store.reserve(a_claim("lost"))
            else:
                finish(store, a_claim("lost"))
        with closing(stores.open(servers.fail_over().url(0) + query)) as store:
            assert isinstance(store.reserve(a_claim("kept")), Found)
            assert store.reserve(a_claim("lost")) == Reserved(1)


@pytest.mark.full
def test_the_wrong_replica_is_promoted() -> None:
    """A limit of `wait=1` with two replicas: one of them has the record, and the other one is promoted."""
    with ValkeyReplication(replicas=2) as servers:
        behind, _ = servers.replicas
        with closing(faults.armed(servers.primary.url(0) + "?wait=1")) as store:
            finish(store, a_claim("kept"))
            servers.catch_up()
            servers.cut(behind)
            finish(store, a_claim("lost"))
        servers.primary.kill()
        with closing(stores.open(servers.promote(behind).url(0))) as store:
            assert isinstance(store.reserve(a_claim("kept")), Found)
            assert store.reserve(a_claim("lost")) == Reserved(1)


def finish(store: Store, claim: Claim) -> None:
    """Reserve and complete: the caller is told that it is stored."""
    assert store.reserve(claim) == Reserved(1)
    assert store.finish(claim, an_outcome()) is True
