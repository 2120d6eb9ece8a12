"""A simulator that never shouts proves nothing: it catches every bug that is planted, and nothing else."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from retrysafe._core import decisions, fingerprint, headers, keys, protocol
from retrysafe._http import exchange
from retrysafe.callbacks import Receipts
from retrysafe.callbacks.http import exchange as callback_exchange
from retrysafe.operations.arguments import Parameters
from retrysafe.stores import queue_loop
from retrysafe.stores.queue import Pending
from retrysafe.stores.queue_loop import LoopQueue
from retrysafe.stores.sql import codec, schema, statements
from retrysafe.stores.sql.mysql import rows
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.testing.postgres import is_available
from retrysafe.testing.report import read
from retrysafe.testing.simulate import batches
from retrysafe.testing.simulate import stage as stages
from retrysafe.testing.simulate import world as worlds
from retrysafe.testing.simulate.callbacks import CallbackSetting
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import Setting
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.world import quiet
from tests.tools.planted import hunted
from tests.tools.planted.hunted import Hunts
from tools.planted import __main__ as command
from tools.planted import by_tests
from tools.planted.bug import HOLD, REASONED, LeftToTests, Planted
from tools.planted.catalogue import CATALOGUE, TESTED
from tools.planted.hunt import Caught, hunt, schedules

PATCHED: tuple[object, ...] = (
    batches, codec, decisions, exchange, fingerprint, headers, keys, protocol, queue_loop, stages, worlds,
    schema, rows, LoopQueue, Pending, Session, Parameters, Receipts, callback_exchange,
)  # fmt: skip
EVERY: list[Planted | LeftToTests] = [*CATALOGUE, *TESTED]
IN_SQL = [planted for planted in CATALOGUE if planted.setting.store is emptied]


Settings = Setting | CallbackSetting


def healthy(setting: Settings) -> Settings:
    """The same world with a store that has no bug."""
    return setting if setting.store is emptied else setting._replace(store=ModelStore)


SETTINGS: list[Settings] = list(dict.fromkeys(healthy(planted.setting) for planted in CATALOGUE))


def _called(setting: Settings) -> str:
    store = "SQLite" if setting.store is emptied else "memory"
    return f"{setting.name}, {setting.handler}, {setting.in_flight}, {store}"


def walk(setting: Settings, seeds: Iterable[int]) -> None:
    go = schedules(setting)
    with quiet():
        for seed in seeds:
            go(seed)


@pytest.mark.parametrize("planted", CATALOGUE, ids=[planted.name for planted in CATALOGUE])
def test_every_planted_bug_is_caught(planted: Planted, hunts: Hunts) -> None:
    """Some schedule gives it away; and in that schedule, nothing is broken where the bug is not."""
    caught = hunts.of(planted).caught
    assert caught is not None, f"no check failed: {planted.name}"
    walk(healthy(planted.setting), [caught.seed])


@pytest.mark.skipif(not is_available(), reason="PostgreSQL is not installed")
@pytest.mark.parametrize("planted", TESTED, ids=[planted.name for planted in TESTED])
def test_every_bug_that_is_left_to_a_test_is_caught(planted: LeftToTests) -> None:
    """By the test that it names."""
    failed = by_tests.run([planted.test], planted).failed
    assert failed is not None, f"{planted.test} passed"
    assert failed.startswith(planted.test)


@pytest.mark.skipif(not is_available(), reason="PostgreSQL is not installed")
def test_these_tests_pass_where_no_bug_is() -> None:
    assert by_tests.run(list(dict.fromkeys(planted.test for planted in TESTED)), None).failed is None


def test_a_test_that_is_gone_is_missed() -> None:
    """It would catch nothing, and nothing would say so."""
    with pytest.raises(RuntimeError, match="no_such_test"):
        by_tests.run(["tests/stores/test_queue.py::no_such_test"], None)


def test_a_batch_may_be_decided_by_what_was_there_before_it() -> None:
    """As one statement for all of it does: the queue sends no key twice in one batch."""
    from tools.planted.queues import deciding_by_what_was_there

    with deciding_by_what_was_there():
        walk(HOLD, range(2_000))


@pytest.mark.parametrize("setting", SETTINGS, ids=_called)
def test_nothing_is_caught_where_no_bug_is(setting: Setting) -> None:
    """A monitor that always shouts would catch everything."""
    walk(setting, range(50 if setting.store is emptied else 400))


@pytest.mark.parametrize("planted", EVERY, ids=[planted.name for planted in EVERY])
def test_a_bug_is_planted_and_taken_out_again(planted: Planted | LeftToTests) -> None:
    """The code is another one while it is planted, and the same one before and after."""
    before = _code()
    with planted.plant():
        changed = _code() != before
    assert _code() == before
    own_store = isinstance(planted, Planted) and planted.setting.store not in (ModelStore, emptied)
    assert changed or own_store


def _code() -> list[object]:
    """Everything that a bug may be planted in."""
    known = [dict(vars(module)) for module in PATCHED]
    dialects = ("sqlite", "postgresql", "mysql")
    return [*known, *(dict(statements.load(dialect)) for dialect in dialects)]


def test_a_statement_that_was_rewritten_is_missed() -> None:
    """A bug that has nowhere to be planted any more says so, instead of surviving as nothing."""
    from tools.planted.sql import rewriting

    with pytest.raises(LookupError, match="is not in finish"), rewriting("no such text", "", "finish")():
        pytest.fail("it was planted")


def test_a_hunt_is_the_same_every_time() -> None:
    """The same bug is found by the same seed, after as many schedules, in the same words."""
    planted = next(one for one in CATALOGUE if one.name == "a renewal is not fenced")
    first = hunt(planted)
    assert first is not None
    assert first == hunt(planted)
    assert hunt(planted, limit=first.schedules - 1) is None
    assert hunt(planted, limit=1, first=first.seed) == first._replace(schedules=1)


def test_there_are_many_and_most_were_really_seen() -> None:
    """Each has a name of its own, and somebody else's name to it."""
    names = [planted.name for planted in EVERY]
    assert len(set(names)) == len(names) >= 45
    assert sum(planted.seen != REASONED for planted in CATALOGUE) >= 40
    assert all(planted.seen for planted in CATALOGUE)
    assert len(IN_SQL) >= 10


def test_the_report_says_what_gave_each_bug_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that survives is a violation."""
    harmless = Planted("nothing is wrong", REASONED, HOLD)
    found = next(one for one in CATALOGUE if one.name == "a mismatch is ignored")
    monkeypatch.setattr(command, "CATALOGUE", (found, harmless))
    monkeypatch.setattr(command, "TESTED", ())
    report = command.hunt_all(lambda items: islice(items, None), limit=20)
    assert report.tool == "planted"
    assert report.counts == {
        "bugs": {found.name: {"seen": found.seen, "caught by": "I7", "how": "walk", "schedules": 2}}
    }
    assert report.violations == ["no check failed in 20 schedules: nothing is wrong"]
    assert not report.passed
    said = capsys.readouterr().out
    assert f"I7         2  {found.name}\n" in said
    assert "SURVIVED      nothing is wrong\n" in said
    assert "1 of 2 bugs were caught.\n" in said


def test_the_report_says_which_test_gave_a_bug_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = TESTED[0]
    harmless = LeftToTests("nothing is wrong", REASONED, "tests/stores/test_queue.py", found.plant)
    monkeypatch.setattr(command, "CATALOGUE", ())
    monkeypatch.setattr(command, "TESTED", (found, harmless))
    monkeypatch.setattr(
        by_tests,
        "run",
        lambda tests, planted: by_tests.Ran(f"{found.test}[a]" if planted is found else None, ""),
    )
    report = command.hunt_all(lambda items: islice(items, None))
    caught = {
        "seen": found.seen,
        "caught by": found.test.rpartition("::")[2],
        "how": "test",
        "schedules": None,
    }
    assert report.counts == {"bugs": {found.name: caught}}
    assert report.violations == ["tests/stores/test_queue.py passed: nothing is wrong"]
    assert f"test          {found.name}\n" in capsys.readouterr().out


def test_a_hunt_that_is_interrupted_leaves_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, and no report that could be taken for a whole one."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "hunt", interrupted)
    assert command.main(["--json", str(tmp_path / "report.json")]) == 130
    assert capsys.readouterr().err == "interrupted before the end, so no report was written\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives is in it, and the exit code says so."""
    found = next(one for one in CATALOGUE if one.name == "a mismatch is ignored")
    monkeypatch.setattr(command, "CATALOGUE", (found,))
    monkeypatch.setattr(command, "TESTED", ())
    assert command.main(["--json", str(tmp_path / "report.json")]) == 0
    assert read(tmp_path / "report.json").counts["bugs"].keys() == {found.name}
    monkeypatch.setattr(command, "hunt", lambda *_: None)
    assert command.main(["--json", str(tmp_path / "report.json")]) == 1
    assert not read(tmp_path / "report.json").passed


def test_each_bug_is_hunted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one process, which the others wait for; and by another, if that has ended without a result."""
    times = Counter[str]()

    def counting(planted: Planted) -> Caught:
        times[planted.name] += 1
        return Caught("I1", 1, 0, "")

    monkeypatch.setattr(hunted, "hunt", counting)
    first, second = CATALOGUE[:2]
    one, other = hunted.Hunts(tmp_path), hunted.Hunts(tmp_path)
    assert one.of(first) == other.of(first)
    assert [found.caught for found in other.of_all([first, second])] == [Caught("I1", 1, 0, "")] * 2
    assert one.of(second) == other.of(first)
    assert times == {first.name: 1, second.name: 1}
    one._path(second, "json").unlink()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    one._path(second, "claim").write_text(str(ended.pid))
    assert one.of(second).caught is not None
    assert times[second.name] == 2
