"""Every planted bug is hunted once per process, however many tests ask what gave it away."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from retrysafe.testing.simulate.promises import Promise, Violation
from tools.planted.bug import Planted
from tools.planted.hunt import Caught, hunt


class Site(NamedTuple):
    """Where a promise was said to be broken."""

    file: str
    line: int


@contextmanager
def noting() -> Generator[set[Site]]:
    """While this is open, it is noted which checks have failed."""
    failed = set[Site]()
    make = Violation.__init__

    def noted(self: Violation, promise: Promise, text: str) -> None:
        check = sys._getframe(2)  # whoever called `broken`, which has made this one
        failed.add(Site(Path(check.f_code.co_filename).name, check.f_lineno))
        make(self, promise, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Violation, "__init__", noted)
        yield failed


class Hunted(NamedTuple):
    caught: Caught | None
    by: frozenset[Site]
    """Which check has failed."""


@cache
def hunted(planted: Planted) -> Hunted:
    with noting() as failed:
        caught = hunt(planted)
    return Hunted(caught, frozenset(failed))
