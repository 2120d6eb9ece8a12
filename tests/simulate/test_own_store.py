"""A store of one's own: what it raises is reported with its seed, and it is closed when its world ends."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from retrysafe._core.model import Claim, Final, Purged, Reservation
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.memory import MemoryRenewer, MemoryStore
from retrysafe.stores.sql.sqlite.store import SQLiteStore
from retrysafe.testing.simulate import (
    SETTINGS,
    Bound,
    Broken,
    Refuted,
    Setting,
    Stage,
    recovery,
    search,
    simulate,
)
from retrysafe.testing.simulate.actions import Action
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import RETRYING, TX, Clock
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.story import trace
from retrysafe.testing.simulate.walk import Walk
from retrysafe.testing.simulate.world import World


class Mistaken(MemoryStore):
    """Raises what no store may raise, when an outcome is stored for a second time."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        if row is not None and row.attempt > 1:
            raise KeyError("no such page")
        return super().finish(claim, final)


@pytest.fixture(scope="module")
def mistaken() -> Broken:
    with pytest.raises(Broken) as raised:
        simulate(Mistaken, schedules=20_000, settings=RETRYING)
    return raised.value


def test_what_a_store_raises_is_reported_with_the_seed(mistaken: Broken) -> None:
    """And with the exception itself, whose traceback leads to the line in the store."""
    assert isinstance(mistaken.__cause__, KeyError)
    assert mistaken.promise == "contract"
    first, _, rest = str(mistaken).partition("\n")
    assert first.startswith(
        f"seed {mistaken.seed} ({mistaken.setting.name}): Mistaken.finish() raised KeyError: "
    )
    assert "test_own_store.py, line " in first
    assert "asks worker" in rest
    assert f"seed={mistaken.seed}, schedules=1" in rest


def test_a_search_reports_it_with_its_schedule() -> None:
    with pytest.raises(Refuted, match=r"Mistaken.finish\(\) raised KeyError") as refuted:
        search(Stage(RETRYING[0]._replace(store=Mistaken)), Bound(attempts=2))
    assert isinstance(refuted.value.__cause__, KeyError)
    assert refuted.value.schedule[0].kind == "arrive"


def test_its_schedule_is_shortened(mistaken: Broken) -> None:
    stage = Stage(mistaken.setting)
    walk = Walk(stage)
    with pytest.raises(KeyError):
        walk.go(mistaken.seed)
    left = str(mistaken).count("Action(")
    assert 0 < left < len(walk.taken)


class Confused(MemoryStore):
    """Does not do the same thing twice."""

    calls = itertools.count()

    def reserve(self, claim: Claim) -> Reservation:
        if next(self.calls) == 0:
            raise KeyError("only once")
        return super().reserve(claim)


def test_a_store_that_does_not_do_the_same_again_is_reported() -> None:
    """Else the story of a violation would end with the words that there was none."""
    with pytest.raises(Broken, match="does not always do the same"):
        simulate(Confused, schedules=1)


OPERATIONS = ("reserve", "take_over", "look", "checkpoint", "finish", "release", "purge", "renew")


def troubled(monkeypatch: pytest.MonkeyPatch, every: int) -> tuple[type[MemoryStore], Counter[str]]:
    """A store that has trouble now and then, for as long as faults have not stopped; and at what it had."""
    met = Counter[str]()

    class Troubled(MemoryStore):
        calls = 0
        is_quiet = False

        def hiccup(self, name: str) -> None:
            self.calls += 1
            if not self.is_quiet and self.calls % every == 0:
                met[name] += 1
                raise StoreUnavailable("a hiccup")

        def open_keeper(self) -> MemoryRenewer:
            return LeaseKeeper(self)

    class LeaseKeeper(MemoryRenewer):
        def release(self, claims: Sequence[Claim]) -> None:
            """All of them or none."""
            assert isinstance(self._store, Troubled)
            self._store.hiccup("release by the keeper")
            for claim in claims:
                MemoryStore.release(self._store, claim)

    def bad(name: str) -> Callable[..., object]:
        good: Callable[..., object] = getattr(MemoryStore, name)

        def operation(self: Troubled, *arguments: object) -> object:
            self.hiccup(name)
            return good(self, *arguments)

        return operation

    for name in OPERATIONS:
        setattr(Troubled, name, bad(name))
    recover = recovery.recover

    def quietly(world: World) -> None:
        assert isinstance(world.store, Troubled)
        world.store.is_quiet = True
        recover(world)

    monkeypatch.setattr(recovery, "recover", quietly)
    return Troubled, met


@pytest.mark.parametrize("every", [3, 7])
def test_an_error_of_the_store_is_an_outage_at_that_moment(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any call, by any caller: no promise is broken by it."""
    store, met = troubled(monkeypatch, every)
    seen = simulate(store, schedules=40 * len(SETTINGS))
    assert set(met) == {*OPERATIONS, "release by the keeper"}
    assert sum(one.verdicts["unprotected"] for one in seen.values())


def test_an_error_is_part_of_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = [Action("arrive", 0, (0, 0, 0)), *[Action("step", 0)] * 3, Action("purge"), Action("purge")]
    store, _ = troubled(monkeypatch, 2)
    text = trace(Stage(Setting(store=store)), schedule).text
    assert "request 0, Finish; the store raises StoreUnavailable: a hiccup; next is Persist" in text
    assert "expired records are removed; the store raises StoreUnavailable: a hiccup" in text


class NeverPurging(MemoryStore):
    def purge(self, limit: int = 500) -> Purged:
        raise StoreUnavailable("the vacuum is on strike")


class Stubborn(MemoryStore):
    """Its keeper never releases anything."""

    def open_keeper(self) -> MemoryRenewer:
        class LeaseKeeper(MemoryRenewer):
            def release(self, claims: Sequence[Claim]) -> None:
                raise StoreUnavailable("come back later")

        return LeaseKeeper(self)


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (
            NeverPurging,
            r"NeverPurging.purge\(\) raised StoreUnavailable: the vacuum .* after faults had stopped",
        ),
        (Stubborn, "cannot release the claims that it was given to forget"),
    ],
)
def test_an_error_that_does_not_end_with_the_faults_is_reported(
    store: type[MemoryStore], complaint: str
) -> None:
    with pytest.raises(Broken, match=complaint):
        simulate(store, schedules=200)


class Counted(MemoryStore):
    """Counts what is opened and closed."""

    opened: ClassVar = Counter[str]()
    closed: ClassVar = Counter[str]()

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.opened["store"] += 1

    def open_keeper(self) -> MemoryRenewer:
        self.opened["keeper"] += 1
        closed = self.closed

        class LeaseKeeper(MemoryRenewer):
            def close(self) -> None:
                closed["keeper"] += 1

        return LeaseKeeper(self)

    def close(self) -> None:
        self.closed["store"] += 1


class Unfenced(Counted):
    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        return super().finish(claim if row is None else row.claim, final)


@pytest.fixture
def counted() -> type[Counted]:
    Counted.opened.clear()
    Counted.closed.clear()
    return Counted


def test_stores_and_keepers_are_closed(counted: type[Counted]) -> None:
    simulate(counted, schedules=200)
    assert counted.opened["store"] == 200
    assert counted.opened["keeper"] > 0
    assert counted.closed == counted.opened


def test_they_are_closed_when_a_promise_is_broken(counted: type[Counted]) -> None:
    """By each of the many replays of a schedule that is shortened, too."""
    with pytest.raises(Broken):
        simulate(Unfenced, schedules=20_000, settings=RETRYING)
    assert counted.closed == counted.opened


def test_a_search_closes_them(counted: type[Counted]) -> None:
    search(Stage(Setting(store=counted)), Bound(attempts=2))
    assert counted.opened["store"] > 10
    assert counted.closed == counted.opened


def test_a_search_that_is_refuted_closes_them(counted: type[Counted]) -> None:
    with pytest.raises(Refuted):
        search(Stage(RETRYING[0]._replace(store=Unfenced)), Bound(attempts=2))
    assert counted.closed == counted.opened


def test_a_file_for_each_world_leaves_no_descriptor_open(tmp_path: Path) -> None:
    numbers = itertools.count()

    def in_a_file(clock: Clock) -> SQLiteStore:
        store = SQLiteStore(tmp_path / f"{next(numbers)}.db", clock=clock)
        with closing(store.open_admin()) as admin:
            admin.migrate()
        return store

    before = len(os.listdir("/proc/self/fd"))
    simulate(in_a_file, schedules=12)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_what_was_not_exercised_is_listed() -> None:
    """A store with the contract and no more is not damaged, and its transactions are assumed."""
    seen = simulate(MemoryStore, schedules=20 * len(SETTINGS))
    lease, transactions = seen.not_exercised
    assert lease == "a running record's lease is lost in the store: MemoryStore has no lose_lease(id)"
    assert transactions.startswith("whether an effect is committed with its outcome, or neither of them: ")
    assert "not exercised: a running record's lease" in str(seen)
    assert sum(one.faults["lose lease"] for one in seen.values()) == 0


def test_a_store_with_all_of_it_leaves_nothing_out() -> None:
    assert simulate(emptied, schedules=20 * len(SETTINGS)).not_exercised == []


def test_few_schedules_leave_much_out() -> None:
    """What merely did not happen is listed, too."""
    missing = simulate(emptied, schedules=1).not_exercised
    assert "expired records are removed: not in these schedules" in missing


class Careless(ModelStore):
    """Commits effects on their own."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._effects: list[bytes] = []

    def commit_with_effect(self, claim: Claim, final: Final, effect: bytes) -> bool:
        self._effects.append(effect)
        return self.finish(claim, final)

    def effects(self) -> Sequence[bytes]:
        return self._effects


def test_effects_without_their_outcome_are_found() -> None:
    """`balance` has something to balance once a store shows its effects."""
    with pytest.raises(Broken, match="I14") as broken:
        simulate(Careless, schedules=20_000, settings=[TX])
    assert broken.value.promise == "I14"


FORKING = """
import os, sys
from retrysafe.testing.simulate import simulate
from retrysafe.testing.simulate.sqlite import emptied

simulate(emptied, schedules=1)
if (child := os.fork()) == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
simulate(emptied, schedules=1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_ends_leaves_the_simulated_file_alone() -> None:
    """The folder belongs to the process that made it: it is not removed by a child that is forked."""
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)
