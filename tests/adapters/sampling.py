"""Which part of a suite runs in `make test`, where the suite is tried with one more store, driver or server.

The rule: an adapter runs the whole suite once in each mode, on SQLite under its main server.  With any other
store, driver or server it runs the sections and tests that reach what is different; the rest would take the
same way through the same code.  `make test-all` runs everything everywhere.
"""

from collections.abc import Callable
from typing import TypeVar

from retrysafe.testing.adapters import Suite

One = TypeVar("One", bound=type[Suite])

Part = type[Suite] | Callable[..., object]
"""A section, or a test of one."""


def sample(*parts: Part) -> Callable[[One], One]:
    """Only this of a suite in `make test`; nothing of it, if nothing is said."""

    def mark(suite: One) -> One:
        for part in parts:
            name = part.__name__
            found = part in suite.__mro__ if isinstance(part, type) else getattr(suite, name, None) is part
            assert found, f"{suite.__name__} has no {name} to take a sample of"
        suite.sample = parts  # type: ignore[attr-defined]  # for pytest only, which is told by `conftest.py`
        return suite

    return mark


def is_sampled(suite: type[Suite]) -> bool:
    """Whether `make test` runs a part of it only."""
    return hasattr(suite, "sample")


def is_in_sample(suite: type[Suite], test: str) -> bool:
    """Whether `make test` runs a test of a suite."""
    if not is_sampled(suite):
        return True
    parts: tuple[Part, ...] = suite.sample  # type: ignore[attr-defined]  # see above
    section = next(base for base in suite.__mro__ if test in vars(base))
    return section in parts or vars(section)[test] in parts
