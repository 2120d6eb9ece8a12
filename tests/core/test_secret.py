"""Keys that are derived without a secret: the log names the option, once per process."""

from collections.abc import Iterable
from typing import Any

import pytest

from retrysafe import current
from retrysafe._runtime import runtime
from tests.core.wsgi_calls import Site, a_guard, created

__all__ = ["a_guard"]


@pytest.fixture(autouse=True)
def a_new_process() -> None:
    runtime._warn_of_missing_secret.cache_clear()  # pyright: ignore[reportPrivateUsage]


def derives(environ: Any, start_response: Any) -> Iterable[bytes]:
    current().derive("charge")
    return created(environ, start_response)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "secret=" in record.getMessage()]


def test_without_a_secret(a_guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whichever guard and route it is."""
    for guard in (a_guard(), a_guard()):
        site = Site(derives, guard)
        assert [site(key=key).status for key in ("first", "second", "first")] == [201, 201, 201]
    assert len(warnings(caplog)) == 1


def test_with_a_secret_or_without_a_derived_key(a_guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert Site(derives, a_guard(secret="s" * 16))().status == 201
    assert Site(created, a_guard())().status == 201
    assert warnings(caplog) == []
