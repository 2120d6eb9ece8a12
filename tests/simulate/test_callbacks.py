"""Callbacks in simulated worlds: senders that repeat, and workers."""

import pytest

from retrysafe.testing.simulate.__main__ import main
from retrysafe.testing.simulate.callbacks import (
    CALLBACKS,
    CallbackBroken,
    CallbackSimulation,
    CallbackStage,
    CallbackWalk,
)
from retrysafe.testing.simulate.callbacks.setting import Kept
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.sqlite import emptied

_FULL = pytest.mark.full

SCHEDULES = 100
"""Of each setting; `make test-all` has twenty times as many, with other seeds."""


def _simulated(simulation: CallbackSimulation, first: int, schedules: int) -> CallbackSimulation:
    for seed in range(first, first + schedules * len(CALLBACKS)):
        simulation.run(seed)
    return simulation


@pytest.mark.parametrize(
    ("first", "schedules"), [(0, SCHEDULES), pytest.param(100_000, 20 * SCHEDULES, marks=_FULL)]
)
def test_schedules_on_the_model(first: int, schedules: int) -> None:
    """No promise is broken, and not because nothing happened."""
    seen = _simulated(CallbackSimulation(), first, schedules).seen
    assert {one.schedules for one in seen.values()} == {schedules}
    assert seen.not_exercised == []
    verdicts = {verdict for one in seen.values() for verdict in one.verdicts}
    assert verdicts == {
        "accepted", "completed", "draining", "failed", "in-flight", "key-reused", "outcome-unknown",
        "released", "replayed", "store-unavailable", "unstored", "waiting",
    }  # fmt: skip
    work = {verdict for one in seen.values() for verdict in one.work}
    assert {"completed", "failed", "in-flight", "store-unavailable", "unstored"} <= work


@pytest.mark.parametrize("schedules", [10, pytest.param(300, marks=_FULL)])
def test_schedules_on_sqlite(schedules: int) -> None:
    """The same with the real statements."""
    seen = _simulated(CallbackSimulation(emptied), 1_000_000, schedules).seen
    assert {one.schedules for one in seen.values()} == {schedules}


@pytest.mark.parametrize("kept", ["inline", "payload", "inbox"])
def test_the_same_seed_gives_the_same_run(kept: Kept) -> None:
    """On the model and on SQLite alike."""
    setting = next(one for one in CALLBACKS if one.kept == kept and one.handler == "raises")
    runs: list[object] = []
    for store in (ModelStore, emptied, ModelStore):
        walk = CallbackWalk(CallbackStage(setting._replace(store=store)))
        walk.go(11)
        runs.append((walk.taken, walk.world.said))
    assert runs[0] == runs[1] == runs[2]


def test_a_violation_is_told_as_a_story() -> None:
    """With its seed, and what happened until then."""

    class Broken(ModelStore):
        def finish(self, claim: object, final: object) -> bool:
            return False

    simulation = CallbackSimulation(Broken, CALLBACKS[:1])
    with pytest.raises(CallbackBroken, match=r"seed 0 .*I3, .*its outcome was refused\n  ") as raised:
        simulation.run(0)
    assert (raised.value.seed, raised.value.promise) == (0, "I3")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--door", "callback", "--schedules", str(len(CALLBACKS))]) == 0
    assert f"{len(CALLBACKS)} schedules" in capsys.readouterr().out
    assert main(["--door", "callback", "--setting", "inbox, tx", "--schedules", "3"]) == 0
    capsys.readouterr()
    assert main(["--door", "callback", "--setting", "inbox, tx", "--show", "3"]) == 0
    assert "its sender is told 202" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--door", "callback", "--search"])
    assert "it has random schedules only" in capsys.readouterr().err
