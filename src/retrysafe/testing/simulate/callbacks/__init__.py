"""Deliveries of events in simulated worlds: the real flows of the callback door, and senders that repeat.

    setting.py   what a world is like: what is stored, where effects are, how handlers and senders behave
    truth.py     what is true of each event, tracked beside the store, and the promises about it
    world.py     deliveries, workers, handlers and the store, one step at a time
    recovery.py  faults stop, senders come back, workers run: every event is settled
    walk.py      random schedules, by seed; run.py: many of them

Processes are those of services and of workers alike: any may die, freeze beyond a lease, or lose the store.
"""

from retrysafe.testing.simulate.callbacks.run import CallbackBroken, CallbackSimulation
from retrysafe.testing.simulate.callbacks.setting import CALLBACKS, CallbackSetting, CallbackStage
from retrysafe.testing.simulate.callbacks.walk import CallbackWalk

__all__ = [
    "CALLBACKS",
    "CallbackBroken",
    "CallbackSetting",
    "CallbackSimulation",
    "CallbackStage",
    "CallbackWalk",
]
