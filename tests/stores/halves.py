"""What tests of troubled servers have in common: both halves of a store, and stores that are closed again."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from retrysafe import stores
from retrysafe.errors import StoreError
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import AwaitedHalf, Half
from tests.stores.rows import PATIENT

DEADLINE = 0.5
SLACK = 10.0
"""Seconds that a busy machine may add before a wait counts as unbounded; a lock is held for ever."""


class Opened(Protocol):
    def __call__(self, url: str, deadline: float = ...) -> Store: ...


Halves = Callable[[Store], Half]
Both = Callable[[Store], tuple[Half, Half]]


@pytest.fixture(params=["blocking", "aio"])
def halves(request: pytest.FixtureRequest) -> Iterator[Halves]:
    """Makes one half of a store, or the other."""
    with asyncio.Runner() as runner:
        yield lambda store: store if request.param == "blocking" else AwaitedHalf(store.aio, runner)


@pytest.fixture
def both() -> Iterator[Both]:
    """Makes both, where the trouble takes longer than to look at it twice."""
    with asyncio.Runner() as runner:
        yield lambda store: (store, AwaitedHalf(store.aio, runner))


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens stores that are closed after the test."""
    made: list[Store] = []

    def open(url: str, deadline: float = PATIENT) -> Store:
        made.append(stores.open(url, deadline=deadline))
        return made[-1]

    yield open
    for store in made:
        store.close()


def patiently(act: Callable[[], Any]) -> Any:
    """Once the trouble is over it works; connections that are still dying may take a moment."""
    until = time.monotonic() + PATIENT
    while True:
        try:
            return act()
        except StoreError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
