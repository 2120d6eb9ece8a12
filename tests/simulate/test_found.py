"""What the simulator found in retrysafe itself: the shortened schedules, and that they are fixed.

Each is played on the code as it is, where nothing breaks, and on the code as it was, where it still does: a
schedule that no longer fails there would prove nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from retrysafe._core import decisions, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import storable_part
from retrysafe._core.model import Final, Record
from retrysafe._core.steps import Busy, Call, Finish, Flow, Judgement, Outcome, Result, Streamed, ask
from retrysafe.policy import Policy
from retrysafe.testing.simulate import SETTINGS, Stage
from retrysafe.testing.simulate.actions import Action
from retrysafe.testing.simulate.walk import replay

BY_NAME = {setting.name: setting for setting in SETTINGS}


def lost_leases_last_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A record whose lease was lost in the store was in flight for as long as it was held, a month."""
    fixed = decisions._judge_unfinished

    def judge_unfinished(record: Record, now: float, policy: Policy) -> Judgement:
        return Busy(1.0) if record.lease_until is None else fixed(record, now, policy)

    patch.setattr(decisions, "_judge_unfinished", judge_unfinished)


def what_has_left_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A response that had begun to leave when its owner lost the key was counted as stored."""
    fixed = protocol.conclude

    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        result = yield from fixed(call, attempt, outcome)
        return result._replace(stored=True) if attempt.checkpointed else result

    patch.setattr(protocol, "conclude", conclude)


def after_a_take_over_it_finishes_all_the_same(patch: pytest.MonkeyPatch) -> None:
    """A request that lost the key before its large response could leave, and got it back by a bid of its own
    that arrived late, stored the outcome and sent its client nothing at all."""
    fixed = protocol.conclude

    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        if isinstance(outcome, Streamed) and not attempt.checkpointed:
            stored = yield from ask(
                Finish(call.claim, Final("completed", storable_part(outcome.head, call.rules), omitted=True))
            )
            if stored:
                return Result("completed", None, attempt=attempt.number)
        return (yield from fixed(call, attempt, outcome))

    patch.setattr(protocol, "conclude", conclude)


def after_a_take_over_nothing_is_reauthorised(patch: pytest.MonkeyPatch) -> None:
    """A request that was taken over received the stored response, even if it might no longer see it."""
    patch.setattr(protocol, "_replay", _unasked(protocol._replay))


def _unasked(fixed: Callable[[Call, Record], Flow[Result]]) -> Callable[[Call, Record], Flow[Result]]:
    return lambda call, record: fixed(call._replace(reauthorises=False), record)


def streams_are_ended_unstored(patch: pytest.MonkeyPatch) -> None:
    """A response that flowed while the store was away until the lease ended arrived whole and unmarked."""
    fixed = protocol.conclude

    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        return (yield from fixed(call, attempt, outcome))._replace(cut_off=False)

    patch.setattr(protocol, "conclude", conclude)


class Found(NamedTuple):
    seed: int
    """With which it was found, when walks were drawn in another way than they are now."""
    setting: str
    promise: str
    as_it_was: Callable[[pytest.MonkeyPatch], None]
    schedule: tuple[Action, ...]


FOUND = (
    Found(
        100,
        "hold, too large to keep",
        "I5",
        streams_are_ended_unstored,
        (
            Action("arrive", 1, (0, 0, 2)),
            Action("step", 1),
            Action("step", 1),
            Action("step", 1),
            Action("outage", 1),
            Action("step", 1),
            Action("elapse", 0, (31.0,)),
        ),
    ),
    Found(
        586,
        "hold, runs without the store",
        "I11",
        lost_leases_last_for_ever,
        (
            Action("arrive", 0, (0, 0, 1)),
            Action("arrive", 1, (0, 0, 1)),
            Action("step", 1),
            Action("lose lease"),
            Action("elapse", 0, (3601.0,)),
        ),
    ),
    Found(
        1528,
        "retry, too large to keep",
        "I11",
        lost_leases_last_for_ever,
        (
            Action("arrive", 0, (0, 0, 1)),
            Action("step", 0),
            Action("lose lease"),
            Action("cancel after", 0),
            Action("elapse", 0, (3570.0,)),
        ),
    ),
    Found(
        544,
        "retry, too large to keep",
        "I5",
        what_has_left_is_stored,
        (
            Action("arrive", 1, (0, 0, 1)),
            Action("step", 1),
            Action("step", 1),
            Action("elapse", 0, (3601.0,)),
            Action("lose request", 1),
            Action("arrive", 2, (2, 0, 2)),
            Action("lose reply", 2),
        ),
    ),
    Found(
        1067937,
        "hold, asked again who may see it",
        "I9",
        after_a_take_over_nothing_is_reauthorised,
        (
            Action("revoke", 0),
            Action("arrive", 1, (0, 0, 0)),
            Action("step", 1),
            Action("elapse", 0, (31.0,)),
            Action("resolve", 0),
        ),
    ),
    Found(
        7043257,
        "hold, too large to keep",
        "I5",
        after_a_take_over_it_finishes_all_the_same,
        (
            Action("arrive", 3, (2, 0, 1)),
            Action("delay", 3),
            Action("step", 3),
            Action("elapse", 0, (7230.0,)),
            Action("arrive", 4, (4, 0, 2)),
            Action("step", 4),
            Action("step", 3),
            Action("step", 3),
            Action("elapse", 0, (7230.0,)),
        ),
    ),
)


@pytest.mark.parametrize("found", FOUND, ids=[str(found.seed) for found in FOUND])
def test_it_is_fixed(found: Found) -> None:
    assert replay(Stage(BY_NAME[found.setting]), found.schedule) is None


@pytest.mark.parametrize("found", FOUND, ids=[str(found.seed) for found in FOUND])
def test_it_would_be_found_again(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    found.as_it_was(monkeypatch)
    violation = replay(Stage(BY_NAME[found.setting]), found.schedule)
    assert violation is not None
    assert violation.promise == found.promise
