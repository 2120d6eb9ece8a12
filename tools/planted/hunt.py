"""Look for a schedule that gives a planted bug away.

Seeds are taken in their order, so a bug that is found is found again, after as many schedules.
"""

from typing import NamedTuple

from retrysafe.testing.simulate.promises import Violation
from retrysafe.testing.simulate.stage import Stage
from retrysafe.testing.simulate.walk import Walk
from retrysafe.testing.simulate.world import quiet
from tools.planted.bug import Planted

LIMIT = 20_000
"""Schedules that a bug may survive.  Most are found in less than a hundred."""


class Caught(NamedTuple):
    promise: str
    """Which promise was seen to be broken."""
    schedules: int
    """How many it took, the last one included."""
    seed: int
    said: str


def hunt(planted: Planted, limit: int = LIMIT, first: int = 0) -> Caught | None:
    """The first schedule in which a check fails; `None`: none did."""
    with quiet(), planted.plant():
        stage = Stage(planted.setting)  # made here: the bug may be in how requests arrive
        for seed in range(first, first + limit):
            try:
                Walk(stage).go(seed)
            except Violation as violation:
                return Caught(violation.promise, seed - first + 1, seed, str(violation))
    return None
