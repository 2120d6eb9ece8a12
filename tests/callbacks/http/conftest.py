"""The receivers that each scenario is tried with."""

import pytest

from tests.callbacks.http.receiving import FRAMEWORKS, KINDS


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A framework, and whether the handler is a coroutine function."""
    found: str = request.param
    return found
