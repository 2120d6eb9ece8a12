"""The time that is left, as it is told."""

import pytest

from tools.evidence.environment import Sources
from tools.evidence.jobs import Job
from tools.evidence.progress import Estimate, duration

NOTHING = Sources(())


def test_duration() -> None:
    """No more than two units, and none that is too fine."""
    assert [duration(seconds) for seconds in (0.4, 59, 61, 599, 600, 3599, 3600, 7_260, 90_000)] == [
        "0 s", "59 s", "1 min 1 s", "9 min 59 s", "10 min", "60 min", "1 h 0 min", "2 h 1 min", "25 h 0 min"
    ]  # fmt: skip


def test_estimate() -> None:
    """What the plan expected, corrected by how it came out in the same part, and shared by the cores."""
    slow = [Job(f"slow-{turn}", (), 100, NOTHING) for turn in range(4)]
    quick = [Job("quick", (), 10, NOTHING)]
    estimate = Estimate({"slow": slow, "quick": quick}, at_once=2)
    assert estimate.seconds() == pytest.approx((4 * 100 + 10) / 2)
    estimate.note(slow[0], 50)
    assert estimate.of(slow[1]) == pytest.approx(50)
    assert estimate.seconds() == pytest.approx((3 * 50 + 10) / 2)
    for job in (*slow, *quick):
        estimate.give_up(job)
    assert estimate.seconds() == 0
    # One job is not shared.
    assert Estimate({"slow": slow[:1]}, at_once=8).seconds() == pytest.approx(100)
