"""Many schedules one after the other: what was seen in them, and the story of one that breaks a promise."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from retrysafe.stores.contract import Store
from retrysafe.testing.simulate import histories, story
from retrysafe.testing.simulate.actions import MEANING
from retrysafe.testing.simulate.model import Database, Fragile
from retrysafe.testing.simulate.promises import as_violation
from retrysafe.testing.simulate.setting import SETTINGS, Clock, Setting
from retrysafe.testing.simulate.stage import Stage
from retrysafe.testing.simulate.walk import Walk
from retrysafe.testing.simulate.world import quiet

CHECKED = 4
"""The histories of one schedule in so many are checked for being linearizable."""


class Broken(AssertionError):
    """A schedule broke a promise; the message has its seed, and the story of what happened."""

    def __init__(self, seed: int, setting: Setting, promise: str, text: str) -> None:
        super().__init__(f"seed {seed} ({setting.name}): {text}")
        self.seed = seed
        self.setting = setting
        self.promise = promise


class Seen:
    """What happened in the schedules of one setting."""

    def __init__(self) -> None:
        self.schedules = 0
        self.actions = 0
        self.histories = 0
        self.faults: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        """How operations ended that are a part of another call."""
        self.cannot_show: list[str] = []
        """What was not tested, or was assumed, because the store lacks a method."""

    def __repr__(self) -> str:
        return f"Seen({', '.join(f'{name}={value}' for name, value in self.as_counts().items())})"

    def add(self, walk: Walk) -> None:
        if not self.schedules:
            self.cannot_show = _cannot_show(walk.world.store, walk.world.setting)
        self.schedules += 1
        self.actions += len(walk.taken)
        self.histories += len(walk.histories)
        self.faults.update([action.kind for action in walk.taken])
        self.verdicts.update(
            [request.result.verdict for request in walk.world.requests.values() if request.result is not None]
        )
        parts = [request.part for request in walk.world.requests.values() if request.part is not None]
        self.parts.update([part.result.verdict for part in parts if part.result is not None])

    def as_counts(self) -> dict[str, Any]:
        return {
            "schedules": self.schedules,
            "actions": self.actions,
            "histories": self.histories,
            "faults": dict(sorted(self.faults.items())),
            "verdicts": dict(sorted(self.verdicts.items())),
            "parts": dict(sorted(self.parts.items())),
        }


def _cannot_show(store: object, setting: Setting) -> list[str]:
    """What is not tested on a store, or is assumed, because it lacks a method; and which one."""
    found: list[str] = []
    name = type(store).__name__
    if not isinstance(store, Fragile):
        found.append(f"{MEANING['lose lease']}: {name} has no lose_lease(id)")
    # A store that operations can be nested in says what it has committed.
    if setting.mode == "tx" and setting.door != "nested" and not isinstance(store, Database):
        found.append(
            "whether an effect is committed with its outcome, or neither of them: that is assumed, "
            f"because {name} does not have both commit_with_effect(claim, final, effect) and effects()"
        )
    return found


class Result(dict[str, Seen]):
    """What was seen, by the name of the setting."""

    @property
    def not_exercised(self) -> list[str]:
        """What the store has no method for, and what did not happen in any schedule: a line for each."""
        found = list(dict.fromkeys(line for seen in self.values() for line in seen.cannot_show))
        happened = {kind for seen in self.values() for kind in seen.faults}
        for kind, meaning in MEANING.items():
            if kind not in happened and not any(line.startswith(meaning) for line in found):
                found.append(f"{meaning}: not in these schedules")
        return found

    def __str__(self) -> str:
        schedules, actions, histories = (
            sum(getattr(seen, name) for seen in self.values())
            for name in ("schedules", "actions", "histories")
        )
        lines = [f"{schedules:,} schedules of {actions:,} actions, {histories:,} histories checked"]
        lines += [f"not exercised: {line}" for line in self.not_exercised]
        return "\n".join(lines)


class Simulation:
    """The schedules of some settings, by seed; a seed's setting is the one whose turn it is."""

    def __init__(
        self, store: Callable[[Clock], Store] | None = None, settings: Sequence[Setting] = SETTINGS
    ) -> None:
        if not settings:
            raise ValueError("settings is empty: expected at least one; leave it out to use all")
        chosen = settings if store is None else [setting._replace(store=store) for setting in settings]
        self._stages = [Stage(setting) for setting in chosen]
        twice = [name for name, times in Counter(one.name for one in chosen).items() if times > 1]
        if twice:
            raise ValueError(
                f"more than one of the settings is called {twice[0]!r}: results are listed by name, "
                "so give each its own, as in Setting('mine', ...)"
            )
        self.seen = Result({stage.setting.name: Seen() for stage in self._stages})

    def stage(self, seed: int) -> Stage:
        return self._stages[seed % len(self._stages)]

    def run(self, seed: int) -> None:
        """Run one schedule.  Raises `Broken`."""
        stage = self.stage(seed)
        seen = self.seen[stage.setting.name]
        walk = Walk(stage)
        try:
            walk.go(seed, gather=seed // len(self._stages) % CHECKED == 0)
            histories.judge(walk.histories, stage.setting)
        except Exception as error:  # noqa: BLE001 - a store may raise anything, and the seed is reported
            seen.add(walk)
            violation = as_violation(error)
            text = story.explain(stage, walk.taken, violation)
            text += f"\n\nTo see it again: seed={seed}, schedules=1, with the same store and settings."
            raise Broken(seed, stage.setting, violation.promise, text) from violation.__cause__
        seen.add(walk)


def simulate(
    store: Callable[[Clock], Store] | None = None,
    *,
    schedules: int = 1000,
    seed: int = 0,
    settings: Sequence[Setting] = SETTINGS,
) -> Result:
    """Run schedules, beginning with this seed, and return what was seen.  Raises `Broken`.

    `store` makes an empty store that uses the clock that it is given.  The methods beyond the contract by
    which a store can be tested further are in `model.py`; the result lists those that it lacks.
    """
    if schedules < 1:
        raise ValueError(f"schedules must be 1 or more, got {schedules}")
    simulation = Simulation(store, settings)
    with quiet():
        for number in range(seed, seed + schedules):
            simulation.run(number)
    return simulation.seen
