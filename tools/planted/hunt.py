"""Look for a schedule that gives a planted bug away.

Seeds are taken in their order, so a bug that is found is found again, after as many schedules.
"""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe.testing.simulate.callbacks import CallbackSetting, CallbackStage, CallbackWalk
from retrysafe.testing.simulate.promises import Violation
from retrysafe.testing.simulate.setting import Setting
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


def schedules(setting: Setting | CallbackSetting) -> Callable[[int], object]:
    """Goes through the schedule of a seed in this world."""
    if isinstance(setting, CallbackSetting):
        receiving = CallbackStage(setting)
        return lambda seed: CallbackWalk(receiving).go(seed)
    stage = Stage(setting)
    return lambda seed: Walk(stage).go(seed)


def hunt(planted: Planted, limit: int = LIMIT, first: int = 0) -> Caught | None:
    """The first schedule in which a check fails; `None`: none did."""
    with quiet(), planted.plant():
        go = schedules(planted.setting)  # made here: the bug may be in how requests arrive
        for seed in range(first, first + limit):
            try:
                go(seed)
            except Violation as violation:
                return Caught(violation.promise, seed - first + 1, seed, str(violation))
    return None
