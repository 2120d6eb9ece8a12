"""Operations in simulated worlds: beside requests, and as a part of another call's transaction."""

from collections import Counter

import pytest

from retrysafe.stores.memory import MemoryStore
from retrysafe.testing.simulate import OPERATIONS, Bound, Setting, Stage, search, simulate
from retrysafe.testing.simulate.__main__ import main
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.stage import ASKED, CALLED
from retrysafe.testing.simulate.walk import Walk
from retrysafe.testing.simulate.world import World

BY_NAME = {setting.name: setting for setting in OPERATIONS}
NESTED = BY_NAME["nested"]
_FULL = pytest.mark.full

SCHEDULES = 200
"""Of each setting; `make test-all` has twenty times as many, with other seeds."""


@pytest.mark.parametrize(
    ("first", "schedules"), [(0, SCHEDULES), pytest.param(100_000, 20 * SCHEDULES, marks=_FULL)]
)
def test_schedules_on_the_model(first: int, schedules: int) -> None:
    """No promise is broken, and not because nothing happened."""
    seen = simulate(schedules=schedules * len(OPERATIONS), seed=first, settings=OPERATIONS)
    assert {one.schedules for one in seen.values()} == {schedules}
    verdicts, parts = Counter[str](), Counter[str]()
    for one in seen.values():
        verdicts += one.verdicts
        parts += one.parts
    assert {"completed", "failed", "replayed", "in-flight", "key-reused", "outcome-unknown"} <= set(verdicts)
    assert {"released", "unstored", "store-unavailable", "draining"} <= set(verdicts)
    expected = {"completed", "replayed", "in-flight", "key-reused", "released", "store-unavailable"}
    assert set(parts) == expected


@pytest.mark.parametrize("schedules", [20, pytest.param(400, marks=_FULL)])
def test_schedules_on_sqlite(schedules: int) -> None:
    """The same with the real statements, in real transactions."""
    seen = simulate(emptied, schedules=schedules * len(OPERATIONS), seed=1_000_000, settings=OPERATIONS)
    assert {one.schedules for one in seen.values()} == {schedules}
    assert seen["nested"].parts["replayed"]


@pytest.mark.parametrize("name", BY_NAME)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    """On the model and on SQLite alike."""
    runs: list[tuple[object, object]] = []
    for store in (None, emptied):
        setting = BY_NAME[name]
        walk = Walk(Stage(setting if store is None else setting._replace(store=store)))
        walk.go(11)
        requests = walk.world.requests.values()
        runs.append((walk.taken, [request.result and request.result.verdict for request in requests]))
    assert runs[0] == runs[1]


class Observed:
    """What occurred in the worlds that schedules ended in, and how often the shared part had its effect."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.parts = Counter[str]()

    def __call__(self, world: World) -> None:
        for request in world.requests.values():
            if request.result is not None:
                self.calls[request.result.verdict] += 1
            if request.part is not None and request.part.result is not None:
                self.parts[request.part.result.verdict] += 1
        shared = world.keys.get(4)
        if shared is not None:
            assert sum(done.effect for done in shared.executions) <= 1


@pytest.mark.parametrize(
    ("name", "bound", "schedules", "parts"),
    [
        (
            "nested",
            Bound(2, lost_replies=0, lapses=0, identities=(0, 1)),
            4_000,
            "completed replayed released",
        ),
        pytest.param(
            "nested",
            Bound(lost_replies=0, lapses=0, identities=(0, 1, 0)),
            50_000,
            "completed replayed released",
            marks=_FULL,
        ),
        (
            "nested, at first it raises",
            Bound(2, lost_replies=0, lapses=0, identities=(0, 1)),
            1_000,
            "completed released",
        ),
        # The second calls the operation by itself, which the first calls as its part.
        (
            "nested",
            Bound(2, lost_replies=0, identities=(0, 4)),
            2_000,
            "completed replayed in-flight released",
        ),
        pytest.param(
            "nested",
            Bound(2, crashes=0, lost_replies=0, cancellations=1, identities=(0, 1)),
            70_000,
            "completed replayed released",
            marks=_FULL,
        ),
        pytest.param(
            "nested",
            Bound(2, identities=(0, 1)),
            900_000,
            "completed replayed released store-unavailable",
            marks=_FULL,
        ),
        pytest.param(
            "nested",
            Bound(2, identities=(0, 4)),
            50_000,
            "completed replayed in-flight released store-unavailable",
            marks=_FULL,
        ),
        pytest.param(
            "nested, at first it raises",
            Bound(2, identities=(0, 1)),
            1_000_000,
            "completed released store-unavailable",
            marks=_FULL,
        ),
    ],
)
def test_every_schedule_of_calls_that_share_a_part(
    name: str, bound: Bound, schedules: int, parts: str
) -> None:
    """Its effect happens once, with its record, and only with a call that is committed."""
    observed = Observed()
    assert search(Stage(BY_NAME[name]), bound, observed).schedules >= schedules
    assert set(parts.split()) <= set(observed.parts)
    assert observed.calls["completed"]


def test_the_same_key_of_a_request_and_of_an_operation() -> None:
    """Two records: in every order of three calls, each door executes once."""

    def at_the_end(world: World) -> None:
        assert [len(key.executions) for key in world.keys.values()] == [1, 1]

    quiet = Bound(crashes=0, lost_replies=0, lapses=0, identities=(0, 1, 0))
    search(Stage(BY_NAME["beside requests, hold"]), quiet, at_the_end)


def test_claims_are_those_of_the_door() -> None:
    """The identity of a request and of an operation with the same key differ; so does what is compared."""
    stage = Stage(BY_NAME["beside requests, hold"])
    request, operation = stage.claim(0, 0, 0), stage.claim(1, 0, 0)
    assert (request.door, operation.door) == ("request", "operation")
    assert (request.scope, request.key) == (operation.scope, operation.key)
    assert request.id != operation.id
    assert (operation.action, operation.target) == ("charge", "o-1")
    fingerprints = {stage.claim(1, asked, 0).fingerprint for asked in range(len(CALLED))}
    assert len(fingerprints) == len(CALLED) == len(ASKED)


def test_a_store_without_nested_transactions() -> None:
    """It is told which methods are missing."""
    with pytest.raises(ValueError, match="MemoryStore has no could_store_within and commit_with_parts"):
        simulate(MemoryStore, schedules=1, settings=[NESTED])


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (Setting(door="nested"), r'the mode must be "tx"'),
        (Setting(door="operation", handler="streams"), "does not stream"),
        (Setting(door="both", reauthorise=True), "no one is asked"),
        (Setting(door="window"), r"door='window'\) is not valid"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_makes_no_sense(setting: Setting, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Stage(setting)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Schedules, a search, and one schedule that is shown, all of operations."""
    assert main(["--door", "operation", "--schedules", str(2 * len(OPERATIONS))]) == 0
    assert f"{2 * len(OPERATIONS)} schedules" in capsys.readouterr().out
    assert main(["--door", "operation", "--search", "--setting", "operations, hold"]) == 0
    assert "operations, hold" in capsys.readouterr().out
    assert main(["--door", "operation", "--setting", "nested", "--show", "3"]) == 0
    assert "charge(o-" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--setting", "nested"], "'nested' is not a setting"),
        (["--door", "operation", "--setting", "hold"], "'hold' is not a setting"),
        (["--door", "operation", "--search", "batched"], "expected one of small, full, cancelled"),
    ],
)
def test_what_the_other_door_has(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert complaint in capsys.readouterr().err
