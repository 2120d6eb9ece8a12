"""MariaDB, killed and started again: what `innodb_flush_log_at_trx_commit` is worth."""

import asyncio

import pytest

from retrysafe.testing.mariadb import MariaDBServer
from tools.failover import mariadb as faults
from tools.failover.traffic import Outcome

KEYS = 100


@pytest.fixture(autouse=True)
def _installed(mariadb: MariaDBServer) -> None:
    """Only where there is a server."""


def assert_nothing_lost(outcome: Outcome) -> None:
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)
    assert not outcome.unexpected


def test_the_default() -> None:
    """F15: what clients were told is there after `kill -9`."""
    assert_nothing_lost(asyncio.run(faults.restarted(KEYS)))


@pytest.mark.full
def test_what_the_operating_system_has() -> None:
    """F15: with 2, it is there too, as long as the machine stays up."""
    assert_nothing_lost(asyncio.run(faults.restarted(KEYS, innodb_flush_log_at_trx_commit="2")))


@pytest.mark.full
def test_what_only_the_server_had() -> None:
    """With 0, up to a second is lost with the process, and executed again.  No result is contradicted."""
    outcome = asyncio.run(faults.restarted(KEYS, innodb_flush_log_at_trx_commit="0"))
    assert outcome.lost > 0
    assert outcome.contradicted == 0
    assert not outcome.unexpected
