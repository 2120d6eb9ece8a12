"""Every action once, through lost responses and a killed service; without keys, some twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.workflow_control import storm
from examples.workflow_control.serving import Service

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
REPORTS, KILLS = (storm.REPORTS, storm.KILLS) if LONG else (6, 1)


def test_storm(tmp_path: Path) -> None:
    """What DBOS's tables say, and what the README shows."""
    with Service(tmp_path) as service:
        report = storm.run(service, reports=REPORTS, kills=KILLS)
    assert report.is_well, list(report.lines())
    assert report.effects == (REPORTS, REPORTS, REPORTS, REPORTS, REPORTS * 2)
    assert (report.kills, report.unsettled) == (KILLS, [])
    # It was a storm.
    assert report.lost > 0
    assert report.replays > 0
    assert report.requests > REPORTS * 4
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line[:24] for line in report.lines()] == [line[:24] for line in shown]


@pytest.mark.full
@pytest.mark.parametrize("address", ["postgresql", "valkey"], indirect=True)
def test_on_another_store(tmp_path: Path, address: str) -> None:
    """The keys are elsewhere, and the workflows stay where they are."""
    with Service(tmp_path, keys=address) as service:
        report = storm.run(service, reports=REPORTS, kills=KILLS)
    assert report.is_well, list(report.lines())
    assert report.replays > 0


@pytest.mark.full
def test_without_keys(tmp_path: Path) -> None:
    """The check can fail: the same client, network and count, and more workflows than were wanted."""
    with Service(tmp_path) as service:
        report = storm.run(service, reports=REPORTS, kills=0, keys=False)
    assert not report.is_well
    assert report.effects.started > REPORTS
    assert report.effects.forked > REPORTS
    assert report.replays == 0
    assert "NOT each action took effect once" in list(report.lines())


@pytest.mark.full
@pytest.mark.parametrize(("options", "status"), [([], 0), (["--without-keys", "--kills=0"], 1)])
def test_command(options: list[str], status: int) -> None:
    """It ends as the count does."""
    ran = subprocess.run(
        [sys.executable, "-m", "examples.workflow_control.storm", "--reports=6", *options],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (status, "")
    assert "took effect once" in ran.stdout.splitlines()[-1]
