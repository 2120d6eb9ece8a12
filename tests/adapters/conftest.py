"""Keeps the tests of a suite in one process: its servers are started once, and not in every one."""

import pytest

from retrysafe.testing.adapters import Suite


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and issubclass(item.cls, Suite):
            item.add_marker(pytest.mark.xdist_group(f"{item.cls.__module__}.{item.cls.__name__}"))
