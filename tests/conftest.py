"""What holds for every test, and what most of them need."""

import gc
import os
from pathlib import Path

import pytest

from retrysafe.testing.adapters import server
from tests import reference_forks, sampling
from tests.any_store import address
from tests.servers import database, mariadb, postgres, valkey

__all__ = ["address", "database", "mariadb", "postgres", "valkey"]

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
"""Whether this is `make test-all`, or as thorough."""


if not LONG:
    server.launch = reference_forks.fork


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `sampling.py` says, unless there is time for it: as deselected, and not as skipped."""
    whole = {Path(one).name for one in config.args} >= set(config.getini("testpaths"))
    if whole and not config.option.keyword and not config.option.markexpr:
        sampling.check_rules(items)
    if LONG:
        return
    items[:], left_out = sampling.leave_out(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


# Of the tests and modules that are collected nothing is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what was made by now: thousands of tests, and their modules.

    None of it will ever be garbage, and to look through it takes half a second, which every test that counts
    what it has left behind would wait for.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
