"""The command line of the simulator."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from retrysafe.testing.linearize.__main__ import main as linearize
from retrysafe.testing.report import read
from retrysafe.testing.simulate import SETTINGS, Broken, simulate
from retrysafe.testing.simulate.__main__ import MAX_VIOLATIONS, main
from retrysafe.testing.simulate.walk import Walk


def test_schedules_and_their_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "--schedules",
                str(10 * len(SETTINGS)),
                "--seed",
                "1000",
                "--json",
                str(tmp_path / "report.json"),
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert f"{10 * len(SETTINGS)} schedules" in said
    assert f"seeds 1000 to {999 + 10 * len(SETTINGS)}" in said
    assert "No promise was broken." in said
    report = read(tmp_path / "report.json")
    assert report.tool == "simulate"
    assert report.passed
    assert report.counts["schedules"] == 10 * len(SETTINGS)
    assert report.counts["settings"]["hold"]["schedules"] == 10
    # The store in memory has no transactions, and says so.
    assert any(
        "ModelStore does not have both commit_with_effect" in line for line in report.counts["not exercised"]
    )
    assert "Not exercised: whether an effect is committed with its outcome" in said


def test_on_sqlite_and_one_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "20", "--store", "sqlite", "--setting", "tx"]) == 0
    assert "20 schedules" in capsys.readouterr().out


def test_a_search_says_how_many_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--search", "--setting", "hold", "--json", str(tmp_path / "report.json")]) == 0
    assert "states" in capsys.readouterr().out
    (bound,) = read(tmp_path / "report.json").counts["bounds"].values()
    assert bound["settings"]["hold"]["schedules"] > 1000


def test_one_schedule_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "7"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 7, ")
    assert "asks worker" in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--setting", "gentle"], "is not a setting: expected one of"),
        (["--schedules", "0"], "expected at least one"),
        (["--schedules", "many"], "'many' is not a number"),
        (["--store", "redis"], "invalid choice"),
        (["--search", "--store", "sqlite"], "got also --store: leave it out"),
        (["--show", "0", "--json", "file"], "--show can be combined with --door, --setting and --store only"),
    ],
)
def test_nonsense_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_violation_is_reported_and_is_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrysafe._core.decisions.same", lambda one, other: True)
    assert main(["--schedules", "2000", "--json", str(tmp_path / "report.json")]) == 1
    assert "VIOLATION seed" in capsys.readouterr().out
    assert not read(tmp_path / "report.json").passed


def test_a_run_that_ends_early_does_not_claim_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten violations it is over: the seeds that are reported are those that were run."""
    monkeypatch.setattr("retrysafe._core.decisions.same", lambda one, other: True)
    assert main(["--schedules", "20000", "--json", str(tmp_path / "report.json")]) == 1
    report = read(tmp_path / "report.json")
    assert len(report.violations) == MAX_VIOLATIONS
    last = report.asked["last seed"]
    assert last < 19_999
    assert report.counts["schedules"] == last + 1
    assert report.violations[-1].startswith(f"seed {last} ")
    said = capsys.readouterr().out
    assert f"seeds 0 to {last}, " in said
    assert "20,000 were asked for, but 10 violations are enough." in said


def test_a_broken_seed_that_is_shown_is_reported_as_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrysafe._core.decisions.same", lambda one, other: True)
    with pytest.raises(Broken) as broken:
        simulate(schedules=20_000)
    assert main(["--show", str(broken.value.seed)]) == 1
    assert broken.value.promise in capsys.readouterr().out.splitlines()[-1]


def test_histories_are_checked_when_a_seed_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What breaks I6 alone is not reported as if nothing was broken."""
    monkeypatch.setattr("retrysafe.testing.simulate.histories.check", lambda history, mode: "impossible")
    assert main(["--show", "7"]) == 1
    said = capsys.readouterr().out
    assert "the history of a key is not linearizable: impossible" in said.splitlines()[-1]
    assert "No promise is broken." not in said
    with pytest.raises(Broken, match="not linearizable: impossible") as broken:
        simulate(schedules=1)
    assert "No promise is broken." not in str(broken.value)
    assert str(broken.value).count("Action(") == 1  # the rest was left out


@pytest.mark.parametrize("option", ["--schedules", "--search"])
def test_who_interrupts_it_gets_what_there_is(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, and no report that could be taken for a whole one."""
    begun = itertools.count()
    whole = Walk.go

    def interrupted(walk: Walk, seed: int, *, gather: bool = False) -> None:
        if next(begun) == 3:
            raise KeyboardInterrupt
        whole(walk, seed, gather=gather)

    def at_once(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Walk, "go", interrupted)
    monkeypatch.setattr("retrysafe.testing.simulate.__main__.search", at_once)
    asked = [option, "50"] if option == "--schedules" else [option]
    assert main([*asked, "--json", str(tmp_path / "report.json")]) == 130
    out, err = capsys.readouterr()
    assert err == "interrupted before the end, so no report was written\n"
    assert "No promise was broken." not in out
    if option == "--schedules":
        assert "3 schedules" in out
        assert "seeds 0 to 2, " in out
        assert "50 were asked for, but it was interrupted." in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [main, linearize])
def test_a_terminal_without_rich_has_no_bar(
    command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra of the command line, and these tools do without it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich", None)
    option = "--schedules" if command is main else "--histories"
    assert command([option, "12"]) == 0
    out, err = capsys.readouterr()
    assert "12 " in out
    assert err == ""


def test_a_setting_that_is_named_twice_is_one() -> None:
    assert main(["--schedules", "5", "--setting", "hold", "--setting", "hold"]) == 0


def test_it_is_a_module() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "retrysafe.testing.simulate", "--schedules", "24"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "No promise was broken." in said.stdout
    assert said.stderr == ""
