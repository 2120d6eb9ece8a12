"""Three requests with one key, in every order, with a crash or a lost reply and a lapse of the leases.

No schedule breaks a promise.  That the check could fail is shown in `test_planted_bugs.py`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.protocol.stepping import Setting, World, explore
from tests.protocol.witness import transactional

TWO_ALIKE = (b"same", b"same", b"other")


class Case(NamedTuple):
    """A setting, how many schedules it has at least, and what must have occurred in some of them."""

    setting: Setting
    schedules: int
    occurs: str


# Schedules in which requests that are alike merely swap their numbers count once.
CASES = {
    "hold": Case(
        Setting("hold"),
        400,
        "completed replayed in-flight outcome-unknown unstored later:replayed later:outcome-unknown",
    ),
    "retry": Case(
        Setting("retry"),
        14_000,
        "completed replayed in-flight unstored store-unavailable fenced twice later:replayed later:completed",
    ),
    "hold, a failure is replayed": Case(
        Setting("hold", "replay", "fails"),
        400,
        "failed replayed in-flight outcome-unknown unstored later:replayed later:outcome-unknown",
    ),
    "hold, a failure is retried": Case(
        Setting("hold", "retry", "recovers"),
        3_500,
        "failed completed replayed in-flight outcome-unknown unstored twice later:replayed later:completed",
    ),
    "hold, a failure is a conflict": Case(
        Setting("hold", "conflict", "fails"),
        400,
        "failed previously-failed in-flight outcome-unknown later:previously-failed later:outcome-unknown",
    ),
    "retry, a failure is replayed": Case(
        Setting("retry", "replay", "fails"),
        14_000,
        "failed replayed in-flight fenced twice later:replayed later:failed",
    ),
    "retry, a failure is retried": Case(
        Setting("retry", "retry", "recovers"),
        50_000,
        "failed completed replayed in-flight outcome-unknown fenced twice later:replayed later:completed",
    ),
    "retry, a failure is a conflict": Case(
        Setting("retry", "conflict", "fails"),
        14_000,
        "failed previously-failed in-flight fenced twice later:previously-failed later:failed",
    ),
    "hold, nothing was done at first": Case(
        Setting("hold", "replay", "declines"),
        700,
        "released completed replayed in-flight outcome-unknown twice later:completed later:replayed",
    ),
    "retry, nothing was done at first": Case(
        Setting("retry", "retry", "declines"),
        10_000,
        "released completed replayed in-flight outcome-unknown twice later:completed later:replayed",
    ),
    "hold, one asks for something else": Case(
        Setting("hold", fingerprints=TWO_ALIKE),
        1_000,
        "completed replayed key-reused in-flight outcome-unknown later:key-reused later:replayed",
    ),
    "retry, one asks for something else": Case(
        Setting("retry", fingerprints=TWO_ALIKE),
        7_000,
        "completed replayed key-reused in-flight fenced twice later:key-reused later:completed",
    ),
    "hold, the store is not reached": Case(
        Setting("hold", lost_requests=True),
        700,
        "completed replayed in-flight outcome-unknown unstored later:replayed later:outcome-unknown",
    ),
    "retry, the store is not reached": Case(
        Setting("retry", lost_requests=True),
        25_000,
        "completed replayed in-flight unstored store-unavailable fenced twice later:replayed later:completed",
    ),
    "tx": Case(
        transactional(),
        15_000,
        "completed replayed in-flight store-unavailable fenced twice later:replayed later:completed",
    ),
    "tx, a failure is rolled back": Case(
        transactional("recovers"),
        10_000,
        "released completed replayed in-flight fenced twice later:replayed later:completed",
    ),
    "tx, every attempt fails": Case(transactional("fails"), 8_000, "released in-flight twice later:released"),
    "tx, nothing was done at first": Case(
        transactional("declines"),
        10_000,
        "released completed replayed in-flight fenced twice later:replayed later:completed",
    ),
    "tx, one asks for something else": Case(
        transactional(fingerprints=TWO_ALIKE),
        7_000,
        "completed replayed key-reused in-flight fenced twice later:key-reused later:completed",
    ),
    "tx, the store is not reached": Case(
        transactional(lost_requests=True),
        30_000,
        "completed replayed in-flight store-unavailable fenced twice later:replayed later:completed",
    ),
    "tx, a lease is lost in the store": Case(
        transactional(damage=True, lapses=0),
        400,
        "completed replayed in-flight later:replayed later:in-flight",
    ),
    "hold, a lease is lost in the store": Case(
        Setting("hold", damage=True, lapses=0),
        400,
        "completed replayed in-flight later:replayed later:in-flight",
    ),
    "retry, a lease is lost in the store": Case(
        Setting("retry", damage=True, lapses=0),
        400,
        "completed replayed in-flight later:replayed later:in-flight",
    ),
}


@dataclass
class Observed:
    """What occurred in the worlds that schedules ended in."""

    seen: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, world: World) -> None:
        self.seen.update(client.answer.verdict for client in world.clients if client.answer is not None)
        self.seen["fenced"] += world.fenced
        self.seen["twice"] += len(world.executions) > 1
        self.seen.update(f"later:{answer.verdict}" for answer in world.aftermath())


@pytest.mark.parametrize("name", CASES)
def test_no_schedule_breaks_a_promise(name: str, record_property: Callable[[str, object], None]) -> None:
    """One outcome, no more executions than the policy allows, no live lease taken away, no stuck key.

    And not because nothing happened: the number of schedules and the verdicts among them are asserted.
    """
    case = CASES[name]
    observed = Observed()
    explored = explore(case.setting, observed)
    record_property("schedules", explored.schedules)
    record_property("states", explored.states)
    assert explored.schedules >= case.schedules
    assert [verdict for verdict in case.occurs.split() if not observed.seen[verdict]] == []


def test_every_single_fault_is_there() -> None:
    """The enumeration contains each kind of trouble at each kind of step, and schedules without any."""
    traces: list[str] = []

    def at_the_end(world: World) -> None:
        traces.append(", ".join(map(str, world.trace)))

    explore(Setting("hold"), at_the_end)
    for kind in ("crash 0", "crash after 0", "lose reply 0", "lose reply 2", "lapse"):
        assert any(kind in trace for trace in traces), kind
    assert any("crash" not in trace and "lose" not in trace and "lapse" not in trace for trace in traces)


def test_without_faults_and_lapses_one_executes() -> None:
    """In a quiet world there is one execution, and everybody else gets its answer or a 409."""

    def at_the_end(world: World) -> None:
        assert len(world.executions) == 1
        verdicts = Counter(client.answer.verdict for client in world.clients if client.answer is not None)
        assert verdicts.total() == 3
        assert verdicts["completed"] == 1
        assert set(verdicts) <= {"completed", "in-flight", "replayed"}

    # One request of three turns (reserve, run, finish) and two of one turn each, which begin after it and in
    # the order of their numbers: the ways to place two turns among the last four.
    assert explore(Setting("hold", faults=0, lapses=0), at_the_end).schedules == 6


def test_two_lapses() -> None:
    """An attempt that took over may be taken over in its turn."""
    observed = Observed()

    def at_the_end(world: World) -> None:
        observed.seen["three times"] += len(world.executions) > 2
        observed(world)

    explored = explore(Setting("retry", faults=0, lapses=2), at_the_end)
    assert explored.schedules >= 25_000
    assert observed.seen["three times"] > 0


def test_two_faults() -> None:
    """A reply may be lost and its request crash, or two requests crash, and the promises still hold."""
    observed = Observed()
    explored = explore(Setting("hold", faults=2), observed)
    assert explored.schedules >= 3_000
    assert observed.seen["outcome-unknown"] > 0
