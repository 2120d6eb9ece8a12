"""What holds for every test, and what most of them need."""

import gc
import os

import pytest

from tests.servers import database, postgres

__all__ = ["database", "postgres"]

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
"""Whether this is `make test-all`, or as thorough."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `full`, unless there is time for it: it is counted as deselected, not skipped.

    A test or a case of one may be marked if it differs from another one, which is not, by nothing but the
    store, the driver or the server: `docs/decisions/README.md` has the rule.
    """
    if LONG:
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what was made by now: thousands of tests, and their modules.

    None of it will ever be garbage, and to look through it takes half a second, which every test that counts
    what it has left behind would wait for.
    """
    gc.collect()
    gc.freeze()
