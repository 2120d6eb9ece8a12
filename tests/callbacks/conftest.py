"""A guard in memory, whose store has a clock that is set by hand."""

from collections.abc import Iterator

import pytest

from retrysafe import Guard
from retrysafe.stores.memory import MemoryStore


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> Iterator[Guard]:
    guard = Guard(MemoryStore(clock), profile="job-callbacks")
    yield guard
    guard.close()
