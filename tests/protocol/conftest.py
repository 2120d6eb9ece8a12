"""What holds for all tests of the protocol."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Thousands of worlds expire at the end of their schedules, and each would be logged."""
    logger = logging.getLogger("retrysafe.store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
