"""Valkey Cluster under load: a primary is killed, and slots move."""

import asyncio

import pytest

from retrysafe.testing.valkey import ValkeyServer
from tools.failover import valkey_cluster
from tools.failover.traffic import Outcome

KEYS = 100


@pytest.fixture(autouse=True)
def _installed(valkey: ValkeyServer) -> None:
    """Only where there is a server."""


def assert_one_effect(outcome: Outcome) -> None:
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)
    assert not outcome.unexpected


def test_slots_move() -> None:
    """One effect per key, and no wrong result, while records move between nodes."""
    assert_one_effect(asyncio.run(valkey_cluster.slots_moved(KEYS)))


@pytest.mark.full
def test_a_primary_is_killed() -> None:
    """Requests whose slot no node has get 503, and a result once the replica has taken over.  What the
    replica had not received is lost, and executed again."""
    outcome = asyncio.run(valkey_cluster.node_killed(KEYS))
    assert outcome.acknowledged >= 2 * KEYS
    assert outcome.contradicted == 0
    assert outcome.refused > 0
    assert not outcome.unexpected


@pytest.mark.full
def test_a_primary_is_killed_with_wait() -> None:
    """F16: its replica has what was acknowledged; no other is until the node is back, as a replica."""
    outcome = asyncio.run(valkey_cluster.node_killed(KEYS, wait=True))
    assert_one_effect(outcome)
    assert outcome.refused > 0
