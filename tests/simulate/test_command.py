"""The command line of the simulator."""

import subprocess
import sys
from pathlib import Path

import pytest

from retrysafe.testing.report import read
from retrysafe.testing.simulate import SETTINGS
from retrysafe.testing.simulate.__main__ import main


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
        (["--setting", "gentle"], "there is no such setting, but"),
        (["--schedules", "0"], "at least one"),
        (["--schedules", "many"], "'many' is no number"),
        (["--store", "redis"], "invalid choice"),
        (
            ["--planted", "--search"],
            "--search goes with --json and --setting alone, and there is also --planted",
        ),
        (["--search", "--store", "sqlite"], "there is also --store: leave it out"),
        (["--planted", "--setting", "tx", "--schedules", "5"], "there is also --schedules, --setting"),
        (["--show", "0", "--json", "file"], "--show goes with --setting and --store alone"),
    ],
)
def test_nonsense_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_violation_is_told_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrysafe.decisions.same", lambda one, other: True)
    assert main(["--schedules", "2000", "--json", str(tmp_path / "report.json")]) == 1
    assert "VIOLATION seed" in capsys.readouterr().out
    assert not read(tmp_path / "report.json").passed


def test_it_is_a_module() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "retrysafe.testing.simulate", "--schedules", "24"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "No promise was broken." in said.stdout
    assert said.stderr == ""
