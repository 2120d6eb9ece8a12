"""A simulator: the real flows and a store of your own, in worlds where everything goes wrong.

    from retrysafe.testing.simulate import simulate

    def test_my_store() -> None:
        simulate(MyStore, schedules=2_000)

`MyStore` is given a clock, a function that answers the time, and makes an empty store that goes by it.  Each
schedule is chosen by a seed: requests come in and step through the protocol one at a time, replies are lost
and come late, workers crash, freeze and are cancelled, leases lapse, clocks are wrong, records expire and are
purged.  What is promised is checked on what really happened, beside the store.  A broken promise is told with
its seed, the shortened schedule, and what happened step by step; the same seed gives the same run.

    setting.py      what a world is like: policies, and how handlers behave
    stage.py        who asks for what: claims made by the real arrival of a request
    world.py        requests, workers, handlers and the store, one step at a time
    happenings.py   what can happen to them (`actions.py` names it)
    accounts.py     what is true of each key, kept beside the store
    promises.py     what the store and handlers do, held against that; `answers.py`: what clients hear
    aftermath.py    faults stop, and every key is served
    mishaps.py      what a store raises that no store may raise
    walk.py         a seed chooses what happens; `search.py`: everything happens, within a bound
    story.py        a violation, shortened and told
    histories.py    what clients saw, for the checker of `retrysafe.testing.linearize`
    model.py        the store of most worlds, and what a store may have to be tried further
    sqlite.py       the real SQLite store as part of a world
    planted/        bugs, to see that all this finds them

`python -m retrysafe.testing.simulate --help` is the command.
"""

from retrysafe.testing.simulate.model import Database, Fragile
from retrysafe.testing.simulate.run import Broken, Result, Seen, Simulation, simulate
from retrysafe.testing.simulate.search import Bound, Refuted, search
from retrysafe.testing.simulate.setting import SETTINGS, Setting
from retrysafe.testing.simulate.stage import Stage

__all__ = [
    "SETTINGS",
    "Bound",
    "Broken",
    "Database",
    "Fragile",
    "Refuted",
    "Result",
    "Seen",
    "Setting",
    "Simulation",
    "Stage",
    "search",
    "simulate",
]
