"""Leaves out what of a suite runs in `make test-all` only."""

import pytest

from retrysafe.testing.adapters import Suite
from retrysafe.testing.adapters.suite import LONG
from tests.adapters.sampling import is_in_sample


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """Before it is collected: there are thousands, and each process that runs tests would collect them."""
    suite = collector.cls if isinstance(collector, pytest.Class) else None
    left_out = (
        not LONG
        and isinstance(suite, type)
        and issubclass(suite, Suite)
        and name.startswith("test_")
        and not is_in_sample(suite, name)
    )
    return [] if left_out else None
