"""The WSGI adapter as it is set up: what it needs, and what it refuses."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrysafe import Guard, scopes
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Wire
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import Site, a_guard, created

__all__ = ["a_guard"]

MakeGuard = Callable[..., Guard]


def test_no_event_loop_anywhere(tmp_path: Path) -> None:
    """`asyncio` is not even imported, by the adapter, either store, a replay, a stream or the keeper."""
    code = f"""
import sys, time
from retrysafe import Guard, scopes
from retrysafe.wsgi import Middleware
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    yield b"one"
for store in ("memory:", "sqlite:///{tmp_path}/keys.db"):
    guard = Guard(store, scope=scopes.public(), lease=0.1)
    guard.check()
    for _ in range(2):
        environ = {{"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.url_scheme": "http",
                   "HTTP_IDEMPOTENCY_KEY": "sixteen-characters"}}
        list(Middleware(app, guard)(environ, lambda *_: print))
    guard.drain()
    guard.close()
print("asyncio" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == "False"


async def _later(request: object) -> str:
    return "acme"


class _Callable:
    async def __call__(self, request: object) -> str:
        return "acme"


@pytest.mark.parametrize("scope", [_later, _Callable()])
def test_asynchronous_functions_are_refused(a_guard: MakeGuard, scope: Any) -> None:
    """There is nobody to await them; said when it is built, for the guard and for a single route."""
    with pytest.raises(ConfigurationError, match="there is no event loop"):
        Middleware(created, a_guard(scope=scope))
    with pytest.raises(ConfigurationError, match="there is no event loop"):
        Middleware(created, a_guard(), routes={"/pay": {"scope": scope}})
    with pytest.raises(ConfigurationError, match="reauthorise"):
        Middleware(created, a_guard(reauthorise=scope))


@pytest.mark.parametrize("option", ["scope", "reauthorise"])
def test_asynchronous_answers_are_refused(a_guard: MakeGuard, option: str) -> None:
    """A plain function that answers something to await is found out at its first request; nothing has run."""
    site = Site(created, a_guard(**{option: lambda request: _later(request)}))
    if option == "reauthorise":
        assert site().status == 201
    found = site()
    assert isinstance(found.error, ConfigurationError)
    assert site.runs == (1 if option == "reauthorise" else 0)


def test_what_cannot_be_told_apart_is_refused(a_guard: MakeGuard) -> None:
    """A header name with an underscore would never be found, and its requests would run unprotected."""
    with pytest.raises(ConfigurationError, match="underscore"):
        Middleware(created, a_guard(wire=Wire(key_header="Idempotency_Key")))


def test_no_guard_is_refused() -> None:
    """A store is not a guard."""
    with pytest.raises(ConfigurationError, match="is not a Guard"):
        Middleware(created, "memory:")  # type: ignore[arg-type]


def test_the_user_of_the_server(a_guard: MakeGuard) -> None:
    """`REMOTE_USER` is whom the server has authenticated; nobody is nobody."""
    site = Site(created, a_guard(scope=scopes.user))
    assert site(REMOTE_USER="alice").status == 201
    assert site(REMOTE_USER="alice").replayed
    assert site(REMOTE_USER="bob").replayed is False
    for nobody in (None, ""):
        assert site(REMOTE_USER=nobody).status == 400
    assert site.runs == 2
