"""Many schedules one after the other: what was seen in them, and the story of one that breaks a promise."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from retrysafe.stores.contract import Store
from retrysafe.testing.simulate.callbacks.setting import CALLBACKS, CallbackSetting, CallbackStage
from retrysafe.testing.simulate.callbacks.walk import KINDS, CallbackWalk
from retrysafe.testing.simulate.promises import Violation, as_violation
from retrysafe.testing.simulate.setting import Clock


class CallbackBroken(AssertionError):
    """A schedule broke a promise; the message has its seed, and the story of what happened."""

    def __init__(self, seed: int, setting: CallbackSetting, promise: str, text: str) -> None:
        super().__init__(f"seed {seed} ({setting.name}): {text}")
        self.seed = seed
        self.promise = promise


class CallbackSeen:
    """What happened in the schedules of one setting."""

    def __init__(self) -> None:
        self.schedules = self.actions = 0
        self.faults: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        """How turns of workers ended."""

    def add(self, walk: CallbackWalk) -> None:
        self.schedules += 1
        self.actions += len(walk.taken)
        self.faults.update(walk.taken)
        for task in walk.world.tasks:
            if task.result is not None:
                (self.verdicts if task.delivers else self.work)[task.result.verdict] += 1

    def as_counts(self) -> dict[str, Any]:
        return {
            "schedules": self.schedules,
            "actions": self.actions,
            "histories": 0,
            "faults": dict(sorted(self.faults.items())),
            "verdicts": dict(sorted(self.verdicts.items())),
            "work": dict(sorted(self.work.items())),
        }


class CallbackResult(dict[str, CallbackSeen]):
    """By setting."""

    @property
    def not_exercised(self) -> list[str]:
        """What did not happen in any schedule: a line for each."""
        happened = {kind for seen in self.values() for kind in seen.faults}
        return [f"{kind}: not in these schedules" for kind in KINDS if kind not in happened]


class CallbackSimulation:
    """The schedules of some settings, by seed; a seed's setting is the one whose turn it is."""

    def __init__(
        self,
        store: Callable[[Clock], Store] | None = None,
        settings: Sequence[CallbackSetting] = CALLBACKS,
    ) -> None:
        chosen = settings if store is None else [setting._replace(store=store) for setting in settings]
        self._stages = [CallbackStage(setting) for setting in chosen]
        self.seen = CallbackResult({stage.setting.name: CallbackSeen() for stage in self._stages})

    def stage(self, seed: int) -> CallbackStage:
        return self._stages[seed % len(self._stages)]

    def run(self, seed: int) -> None:
        """Run one schedule.  Raises `CallbackBroken`."""
        stage = self.stage(seed)
        walk = CallbackWalk(stage)
        violation: Violation | None = None
        try:
            walk.go(seed)
        except Exception as error:  # noqa: BLE001 - a store may raise anything, and the seed is reported
            violation = as_violation(error)
        self.seen[stage.setting.name].add(walk)
        if violation is not None:
            text = "\n  ".join([str(violation), *walk.world.said])
            raise CallbackBroken(seed, stage.setting, violation.promise, text) from violation.__cause__
