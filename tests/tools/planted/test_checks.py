"""Every check can fail: a planted bug makes it, or, where another check always comes first, a test here does.

A check that cannot fail would not be noticed otherwise.
"""

from collections.abc import Callable, Sequence
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
from retrysafe.testing.simulate.responses import Received
from retrysafe.testing.simulate.setting import TX
from retrysafe.testing.simulate.world import World
from tests.tools.planted.hunted import Hunts, checks_in, noting
from tools.planted.bug import HOLD
from tools.planted.catalogue import CATALOGUE

MONITORS: tuple[ModuleType, ...] = (responses, monitor, recovery, worlds, actions)
ANOTHER = Response(200, (), b"something else")


def responded(setting: Setting = HOLD) -> World:
    """A world in which request 0 received its response, and request 1 has just arrived with the same key."""
    world = World(Stage(setting))
    perform(world, Action("arrive", 0, (0, 0, 0)))
    for _ in range(3):
        perform(world, Action("step", 0))
    perform(world, Action("arrive", 1, (0, 0, 0)))
    return world


def an_outcome_is_replaced_under_the_same_token() -> None:
    world = responded()
    world.monitor.stored(world.requests[0], Final("completed", ANOTHER), world.clock.now)


def a_request_runs_when_the_response_was_known() -> None:
    world = responded()
    later = world.requests[1]
    later.window = later.key.window
    later.key.allowed[later.window] += 1
    world.monitor.begins(later, leased=True)


def an_effect_is_there_that_was_not_committed() -> None:
    World(Stage(TX)).monitor.balance([b"an effect"])


def clients_received_two_different_responses() -> None:
    world = responded()
    world.keys[0].definitive = ANOTHER
    perform(world, Action("step", 1))


def a_different_request_receives_that_it_may_not_see_the_response() -> None:
    world = responded()
    another = world.arrive(2, 0, 1, 0)
    refusal = Result("replay-forbidden", Problem("replay-forbidden", ""))
    responses.check(Received(another, refusal, world.clock.now, world.setting, world.keys, {0: 0}))


def the_response_is_not_replayed_after_faults_have_stopped() -> None:
    bug = next(one for one in CATALOGUE if one.name == "a replay is refused as a conflict")
    world = responded()
    with bug.plant(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "check", _checks_nothing)
        recovery.recover(world)


def _checks_nothing(_received: Received) -> None:
    """What clients receive is not checked."""


def a_flow_makes_a_step_of_another_flow() -> None:
    world = responded()
    world.requests[1].step = READ_BODY
    world.turn(world.requests[1])


class Stubborn(ModelStore):
    """Has a keeper that never releases anything."""

    def open_keeper(self) -> MemoryRenewer:
        return StubbornKeeper(self)


class StubbornKeeper(MemoryRenewer):
    def release(self, claims: Sequence[Claim]) -> None:
        raise StoreUnavailable("come back later")


def what_was_forgotten_is_never_released() -> None:
    world = responded(Setting(store=Stubborn))
    world.workers[0].forgotten.append(world.requests[0])
    recovery.recover(world)


def a_different_request_is_given_the_key() -> None:
    world = responded()
    world.monitor.granted(world.arrive(2, 0, 1, 0), 2, world.clock.now)


def a_key_is_held_by_a_request_that_received_that_it_is_free() -> None:
    world = responded()
    first = world.requests[0]
    first.result = Result("released", Problem("not-done", ""))
    first.key.standing = "running"
    recovery._is_released(world, first.key)


class Case(NamedTuple):
    breaks: Callable[[], None]
    promise: Promise
    says: str


CASES = (
    Case(an_outcome_is_replaced_under_the_same_token, "I1", "replaced the outcome that was stored"),
    Case(a_request_runs_when_the_response_was_known, "I6", "ran, although the response was known"),
    Case(an_effect_is_there_that_was_not_committed, "I14", r"the database has the effects \[b'an effect'\]"),
    Case(clients_received_two_different_responses, "I5", "clients received b'something else' and"),
    Case(
        a_different_request_receives_that_it_may_not_see_the_response, "I7", "the response to another request"
    ),
    Case(
        the_response_is_not_replayed_after_faults_have_stopped,
        "I11",
        "the key was final, and .* received in-flight",
    ),
    Case(a_flow_makes_a_step_of_another_flow, "I11", "makes a step of another flow"),
    Case(a_different_request_is_given_the_key, "I7", "asks for something else, and was given the key"),
    Case(a_key_is_held_by_a_request_that_received_that_it_is_free, "I11", "its key is free, and it is not"),
    Case(
        what_was_forgotten_is_never_released, "I11", "cannot release the claims that it was given to forget"
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[case.breaks.__name__ for case in CASES])
def test_a_check_that_others_shield_fails_by_itself(case: Case) -> None:
    with pytest.raises(Violation, match=case.says) as raised:
        case.breaks()
    assert raised.value.promise == case.promise


def test_nothing_is_wrong_with_the_world_that_these_begin_in() -> None:
    """They fail because of what is done to it."""
    for setting in (HOLD, TX):
        world = responded(setting)
        recovery.recover(world)
        recovery.expire(world)


@pytest.mark.timeout(600)
def test_every_check_is_seen_to_fail(hunts: Hunts) -> None:
    """By a planted bug, or by a case above."""
    failed = {site for found in hunts.of_all(CATALOGUE) for site in found.by}
    with noting() as noted:
        for case in CASES:
            with pytest.raises(Violation):
                case.breaks()
    failed |= noted
    checks = [check for module in MONITORS for check in checks_in(module)]
    assert len(checks) > 60
    assert [text for text, lines in checks if not lines & failed] == []
