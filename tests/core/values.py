"""What the tests of the core share: a claim, rules, a request, and a guard that leaves no thread behind."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from retrysafe import scopes
from retrysafe._core.model import Claim, Header, Request
from retrysafe._http.routes import Route
from retrysafe.policy import Options, Rules, Wire, compile_rules

PATIENCE = 20.0
"""Seconds after which a condition that should come true will not; the machine may be busy."""


def a_claim(key: str = "key", *, lease: float = 30.0) -> Claim:
    return Claim(
        id=key.encode().ljust(32, b"."),
        token=os.urandom(16),
        fingerprint=b"what was asked",
        lease=lease,
        retention=3600.0,
        hold=0.0,
        door="request",
        scope=(("user", "1"),),
        key=key,
        action="POST",
        target="/orders",
        request_id="request-1",
    )


def the_rules(wire: Wire | None = None, **options: Any) -> Rules:
    said: Options = {"scope": scopes.public(), **options}  # type: ignore[typeddict-item]  # any option
    return compile_rules(said, wire or Wire())


def a_route(rules: Rules | None = None, path: str = "") -> Route:
    return Route(path, lambda _: True, rules or the_rules())


def a_request(*headers: Header, method: str = "POST", path: str = "/orders", **rest: Any) -> Request:
    return Request(method, path, b"", headers, **rest)


def eventually(condition: Callable[[], object]) -> None:
    """Wait until it holds, for as long as a busy machine may need."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "retrysafe-keeper"]


@contextmanager
def no_leaked_threads() -> Generator[None, None, None]:
    before = set(threading.enumerate())
    yield
    eventually(lambda: set(threading.enumerate()) <= before)


def in_a_child(work: Callable[[], object]) -> bytes:
    """Fork, do it in the child, and give what it printed: `repr` of the result, or of the exception."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Since Python 3.12 forking beside threads is warned of, and that is just what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            result: object = work()
        except BaseException as error:  # noqa: BLE001 - the parent is told
            result = error
        os.write(writing, repr(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
