"""A simulator: the real flows and a store of your own, in worlds where every kind of fault occurs.

    from retrysafe.testing.simulate import simulate

    def test_my_store() -> None:
        simulate(MyStore, schedules=2_000)

`MyStore` is given a clock, a function that returns the time, and makes an empty store that uses it.  Each
schedule is chosen by a seed: requests arrive and step through the protocol one at a time, replies are lost
and delayed, of single calls and of batches, workers crash, freeze and are cancelled, leases end, clocks are
wrong, records expire and are purged.  The promises are checked on what really happened, which is tracked
beside the store.  A broken promise is an exception with its seed, the shortened schedule, and what happened
step by step; the same seed gives the same run.  `settings=OPERATIONS` has the worlds in which calls are
operations, beside requests, and as a part of another call's transaction.

    setting.py      what a world is like: policies, and how handlers behave
    stage.py        one setting, compiled, and the claims of the requests that may arrive
    world.py        requests, workers, handlers and the store, one step at a time
    request.py      a request on its way, and the worker that serves it
    batches.py      the real queue before a store, with batches that stay in flight until an action decides
    actions.py      what can happen to them: steps, faults, operators, time
    promises.py     the promises, and the exception that says which one was broken
    keystate.py     what is true of each key, tracked beside the store
    monitor.py      checks of what the store and handlers do; `responses.py`: of what clients receive
    recovery.py     faults stop, and every key is served
    walk.py         random schedules, by seed; `search.py`: every schedule within a bound
    run.py          many schedules, and what was seen in them
    story.py        a violation: its schedule, shortened, and what happens in it
    histories.py    what clients saw, for the checker of `retrysafe.testing.linearize`
    model.py        the store of most worlds, and the methods by which a store can be tested further
    sqlite.py       the real SQLite store as part of a world

`python -m retrysafe.testing.simulate --help` is the command.
"""

from retrysafe.testing.simulate.model import Database, Fragile, Nesting
from retrysafe.testing.simulate.run import Broken, Result, Seen, Simulation, simulate
from retrysafe.testing.simulate.search import Bound, Refuted, search
from retrysafe.testing.simulate.setting import OPERATIONS, SETTINGS, Setting
from retrysafe.testing.simulate.stage import Stage

__all__ = [
    "OPERATIONS",
    "SETTINGS",
    "Bound",
    "Broken",
    "Database",
    "Fragile",
    "Nesting",
    "Refuted",
    "Result",
    "Seen",
    "Setting",
    "Simulation",
    "Stage",
    "search",
    "simulate",
]
