"""A broken promise is explained: the seed, the shortened schedule, and what happened step by step."""

import re

import pytest

from retrysafe._core.model import Claim, Final
from retrysafe.testing.simulate import Broken, Setting, Stage, simulate
from retrysafe.testing.simulate.actions import Action
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.promises import Violation
from retrysafe.testing.simulate.setting import RETRYING
from retrysafe.testing.simulate.story import shorten, trace
from retrysafe.testing.simulate.walk import Walk, replay


class Unfenced(ModelStore):
    """Stores every outcome, whichever claim holds the key."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        return super().finish(claim if row is None else row.claim, final)


BAD = RETRYING[0]._replace(store=Unfenced)


@pytest.fixture(scope="module")
def broken() -> Broken:
    with pytest.raises(Broken) as raised:
        simulate(Unfenced, schedules=20_000, settings=[BAD])
    return raised.value


def test_the_seed_and_the_promise_are_named(broken: Broken) -> None:
    text = str(broken)
    assert text.startswith(f"seed {broken.seed} (retry): {broken.promise}, ")
    assert broken.promise in ("I1", "I3")


def test_the_story_is_short_and_readable(broken: Broken) -> None:
    """Two requests and a lapse are enough to show a missing fence; the rest was left out."""
    text = str(broken)
    left, of = map(int, re.findall(r"The schedule \((\d+) of (\d+) actions\)", text)[0])
    assert left < of
    assert left <= 12
    assert "asks worker" in text
    assert "seconds have passed" in text
    assert "Finish" in text


def test_the_schedule_can_be_pasted_and_played_again(broken: Broken) -> None:
    """What is printed is code: it makes the same promise break, and on a sound store none."""
    listed = str(broken).partition("actions):\n")[2].partition("\n\n")[0]
    schedule: list[Action] = eval(f"[{listed}]", {"Action": Action})
    found = replay(Stage(BAD), schedule)
    assert found is not None
    assert found.promise == broken.promise
    assert replay(Stage(RETRYING[0]), schedule) is None


def test_nothing_more_can_be_left_out() -> None:
    """Each action of a shortened schedule is needed."""
    stage = Stage(BAD)
    walk, violation = _first_broken(stage)
    shortened = shorten(stage, walk.taken, violation)
    for index in range(len(shortened)):
        found = replay(stage, shortened[:index] + shortened[index + 1 :])
        assert found is None or found.promise != violation.promise


def _first_broken(stage: Stage) -> tuple[Walk, Violation]:
    for seed in range(20_000):
        walk = Walk(stage)
        try:
            walk.go(seed)
        except Violation as violation:
            return walk, violation
    raise AssertionError("an unfenced store survived")


def test_a_schedule_without_violation_is_described_too() -> None:
    schedule = [Action("arrive", 0, (0, 0, 0)), Action("step", 0), Action("step", 0), Action("step", 0)]
    text, violation = trace(Stage(Setting()), schedule)
    assert violation is None
    assert "request 0 of a/bc with key 1k asks worker 0 for POST /orders" in text
    assert "request 0, Finish; it received completed" in text
    assert text.endswith("No promise is broken.")
