"""Services that are closed after the test, and an environment without the profiles' variables."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retrysafe import profiles
from tests.profiles.service import Service

Serve = Callable[..., Service]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for profile in profiles.PROFILES.values():
        for name in profile.environment:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a service with a profile and options."""
    started: list[Service] = []

    def start(profile: str, *rest: Any, **said: Any) -> Service:
        started.append(Service(profile, *rest, **said))
        return started[-1]

    yield start
    for service in started:
        service.close()
