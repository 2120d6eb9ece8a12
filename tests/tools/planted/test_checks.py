"""Every check can fail: a planted bug makes it, or, where another check always comes first, a test here does.

A check that cannot fail keeps no promise, and nobody would notice.
"""

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from retrysafe._core.model import Claim, Final, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import READ_BODY, Result
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.memory import MemoryRenewer
from retrysafe.testing.simulate import Setting, Stage, actions, monitor, recovery, responses
from retrysafe.testing.simulate import world as worlds
from retrysafe.testing.simulate.actions import Action, perform
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.promises import Promise, Violation
from retrysafe.testing.simulate.responses import Told
from retrysafe.testing.simulate.setting import TX
from retrysafe.testing.simulate.world import World
from tests.tools.planted.hunted import Hunts, Site, noting
from tools.planted.bug import HOLD
from tools.planted.catalogue import CATALOGUE

MONITORS: tuple[ModuleType, ...] = (responses, monitor, recovery, worlds, actions)
ANOTHER = Response(200, (), b"something else")


def answered(setting: Setting = HOLD) -> World:
    """A world in which request 0 was told its answer, and request 1 has just arrived with the same key."""
    world = World(Stage(setting))
    perform(world, Action("arrive", 0, (0, 0, 0)))
    for _ in range(3):
        perform(world, Action("step", 0))
    perform(world, Action("arrive", 1, (0, 0, 0)))
    return world


def an_outcome_is_replaced_under_the_same_token() -> None:
    world = answered()
    world.monitor.kept(world.visits[0], Final("completed", ANOTHER), world.clock.now)


def somebody_runs_when_the_answer_was_known() -> None:
    world = answered()
    later = world.visits[1]
    later.window = later.account.window
    later.account.allowed[later.window] += 1
    world.monitor.begins(later, leased=True)


def an_effect_is_there_that_nobody_committed() -> None:
    World(Stage(TX)).monitor.balance([b"an effect"])


def clients_were_told_two_different_answers() -> None:
    world = answered()
    world.accounts[0].definitive = ANOTHER
    perform(world, Action("step", 1))


def a_different_request_is_told_that_it_may_not_see_the_answer() -> None:
    world = answered()
    another = world.arrive(2, 0, 1, 0)
    refusal = Result("replay-forbidden", Problem("replay-forbidden", ""))
    responses.check(Told(another, refusal, world.clock.now, world.setting, world.accounts, {0: 0}))


def the_answer_is_not_replayed_when_all_is_quiet() -> None:
    bug = next(one for one in CATALOGUE if one.name == "a replay is refused as a conflict")
    world = answered()
    with bug.plant(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "check", _hears_nothing)
        recovery.recover(world)


def _hears_nothing(_told: Told) -> None:
    """Nobody listens to what clients are told."""


def a_flow_makes_a_step_of_another_flow() -> None:
    world = answered()
    world.visits[1].step = READ_BODY
    world.turn(world.visits[1])


class Stubborn(ModelStore):
    """Has a keeper that never releases anything."""

    def open_keeper(self) -> MemoryRenewer:
        return StubbornKeeper(self)


class StubbornKeeper(MemoryRenewer):
    def release(self, claims: Sequence[Claim]) -> None:
        raise StoreUnavailable("come back later")


def what_was_forgotten_is_never_released() -> None:
    world = answered(Setting(store=Stubborn))
    world.workers[0].forgotten.append(world.visits[0])
    recovery.recover(world)


class Case(NamedTuple):
    breaks: Callable[[], None]
    promise: Promise
    says: str


CASES = (
    Case(an_outcome_is_replaced_under_the_same_token, "I1", "replaced the outcome that was kept"),
    Case(somebody_runs_when_the_answer_was_known, "I6", "ran, although the answer was known"),
    Case(an_effect_is_there_that_nobody_committed, "I14", r"in the database are \[b'an effect'\]"),
    Case(clients_were_told_two_different_answers, "I5", "clients were told b'something else' and"),
    Case(a_different_request_is_told_that_it_may_not_see_the_answer, "I7", "the answer to another request"),
    Case(the_answer_is_not_replayed_when_all_is_quiet, "I11", "the key was final, and .* told in-flight"),
    Case(a_flow_makes_a_step_of_another_flow, "I11", "makes a step that nobody expected"),
    Case(what_was_forgotten_is_never_released, "I11", "cannot release what it was told to forget"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.breaks.__name__ for case in CASES])
def test_a_check_that_others_shield_fails_by_itself(case: Case) -> None:
    with pytest.raises(Violation, match=case.says) as raised:
        case.breaks()
    assert raised.value.promise == case.promise


def test_nothing_is_wrong_with_the_world_that_these_begin_in() -> None:
    """They fail because of what is done to it."""
    for setting in (HOLD, TX):
        world = answered(setting)
        recovery.recover(world)
        recovery.expire(world)


def test_every_check_is_seen_to_fail(hunts: Hunts) -> None:
    """By a planted bug, or by a case above."""
    failed = {site for found in hunts.of_all(CATALOGUE) for site in found.by}
    with noting() as noted:
        for case in CASES:
            with pytest.raises(Violation):
                case.breaks()
    failed |= noted
    checks = [check for module in MONITORS for check in _checks(module)]
    assert len(checks) > 60
    assert [text for text, lines in checks if not lines & failed] == []


def _checks(module: ModuleType) -> list[tuple[str, set[Site]]]:
    """Every place that says that a promise is broken: its text, and the lines it is written in."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    source = path.read_text()
    return [
        (
            f"{path.name}:{node.lineno}: {ast.get_source_segment(source, node)}",
            {Site(path.name, line) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)},
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "broken"
    ]
