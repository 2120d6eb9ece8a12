"""Marks what of a suite runs in `make test-all` only."""

import pytest

from retrysafe.testing.adapters import Suite
from tests.adapters.sampling import is_in_sample


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or item.cls is None or not issubclass(item.cls, Suite):
            continue
        if not is_in_sample(item.cls, item.originalname):
            item.add_marker(pytest.mark.full)
