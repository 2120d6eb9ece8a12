"""Every check of the worlds of callbacks can fail, too: by a planted bug, or by what is done here."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from retrysafe._core.model import Final, Response
from retrysafe.testing.simulate.callbacks import CallbackSetting, CallbackStage, recovery, truth
from retrysafe.testing.simulate.callbacks import world as worlds
from retrysafe.testing.simulate.callbacks.setting import RETENTION, RETRIES
from retrysafe.testing.simulate.callbacks.truth import Event
from retrysafe.testing.simulate.callbacks.world import Task, World
from retrysafe.testing.simulate.promises import Promise, Violation
from tests.tools.planted.hunted import Hunts, checks_in, noting
from tools.planted.callbacks import COMMITTED, KILLING, LEASED, PLANTED

MONITORS: tuple[ModuleType, ...] = (truth, recovery, worlds)


def handled(setting: CallbackSetting = LEASED) -> tuple[World, Event]:
    """A world in which event 0 was delivered, and handled."""
    world = World(CallbackStage(setting))
    recovery.finish(world, world.deliver(0, 0, 0))
    return world, world.events[0]


def what_was_committed_is_stored_as_failed() -> None:
    _, event = handled(COMMITTED)
    event.standing = "running"
    event.finished("work 1", event.token, Final("failed", Response(500)), event.runs[0], stored=True)


def an_effect_is_committed_twice() -> None:
    _, event = handled(COMMITTED)
    event.committed(event.begins("work 1", b"another", granted=True))


def a_second_effect_is_found_in_the_end() -> None:
    world, event = handled(COMMITTED)
    event.begins("work 1", b"another", granted=True).effect = True
    recovery._check(world, event)


def an_operator_redrives_what_is_completed() -> None:
    _, event = handled()
    event.redriven(b"another")


def an_attempt_begins_when_it_has_completed() -> None:
    _, event = handled()
    event.begins("delivery 0", event.token, granted=True)


def a_delivery_never_ends() -> None:
    world, _ = handled()
    task = world.deliver(1, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "turn", _does_nothing)
        recovery.finish(world, task)


def _does_nothing(_: Task) -> None:
    """It stays where it is."""


def an_event_is_handled_again_days_later() -> None:
    world, event = handled()
    world.clock.now += RETENTION + 1
    with pytest.MonkeyPatch.context() as patch:
        for name in ("granted", "finished"):
            patch.setattr(Event, name, _checks_nothing)
        recovery._repeat(world, event)


def _checks_nothing(*_: object, **__: object) -> None:
    """What the store says is not checked."""


def an_event_ends_more_processes_than_are_enough() -> None:
    world = World(CallbackStage(KILLING))
    event = world.events[0]
    for number in range(RETRIES.attempts + 2):
        event.begins(f"work {number}", b"%d" % number, granted=True)
    recovery._check(world, event)


class Case(NamedTuple):
    breaks: Callable[[], None]
    promise: Promise
    says: str


CASES = (
    Case(what_was_committed_is_stored_as_failed, "I14", "whose effect is committed"),
    Case(an_effect_is_committed_twice, "I14", "event 0 has had its effect twice"),
    Case(a_second_effect_is_found_in_the_end, "I14", "event 0 has had its effect 2 times"),
    Case(an_operator_redrives_what_is_completed, "I1", "is to be handled again"),
    Case(an_attempt_begins_when_it_has_completed, "I1", "handles event 0, which is completed"),
    Case(a_delivery_never_ends, "I11", "delivery 1 does not end"),
    Case(an_event_is_handled_again_days_later, "I23", "was handled again after 75 hours"),
    Case(an_event_ends_more_processes_than_are_enough, "I11", "has ended 7 processes, and 6 are enough"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.breaks.__name__ for case in CASES])
def test_a_check_that_others_shield_fails_by_itself(case: Case) -> None:
    with pytest.raises(Violation, match=case.says) as raised:
        case.breaks()
    assert raised.value.promise == case.promise


def test_nothing_is_wrong_with_the_world_that_these_begin_in() -> None:
    """They fail because of what is done to it."""
    for setting in (LEASED, COMMITTED):
        world, event = handled(setting)
        recovery.recover(world)
        recovery._check(world, event)


@pytest.mark.timeout(600)
def test_every_check_is_seen_to_fail(hunts: Hunts) -> None:
    """By a planted bug, or by a case above."""
    failed = {site for found in hunts.of_all(PLANTED) for site in found.by}
    with noting() as noted:
        for case in CASES:
            with pytest.raises(Violation):
                case.breaks()
    failed |= noted
    checks = [check for module in MONITORS for check in checks_in(module)]
    assert len(checks) > 30
    assert [text for text, lines in checks if not lines & failed] == []
