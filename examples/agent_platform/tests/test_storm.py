"""Every action exactly once, in a storm of lost responses and killed workers; without keys, twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.agent_platform import storm
from examples.agent_platform.serving import Platform

LONG = bool(os.environ.get("RETRYSAFE_LONG"))

ACTIONS, KEYLESS = (storm.ACTIONS, 500) if LONG else (160, 60)
"""All of it takes a minute where other tests run, too."""

KILLS = storm.KILLS if LONG else 1


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"], indirect=True)
def test_storm(database: str, tmp_path: Path) -> None:
    """With keys, then without: in one test, because to start the platform takes as long as either."""
    with Platform(database, tmp_path, PLATFORM_TOKEN_LIFETIME=storm.TOKEN_LIFETIME) as platform:
        each_action_is_there_once(storm.run(platform, actions=ACTIONS, kills=KILLS))
        the_check_can_fail(storm.run(platform, actions=KEYLESS, keys=False))
        assert "Traceback" not in platform.log


def each_action_is_there_once(report: storm.Report) -> None:
    """… and every agent has got what the tables say."""
    assert report.found == []
    assert (report.actions, report.rows, report.duplicates) == (ACTIONS, ACTIONS, 0)
    # It was a storm.
    assert sum(report.destroyed.values()) > report.requests / 8
    assert all(report.destroyed.values())
    assert report.requests > ACTIONS
    assert report.twice > 0
    assert report.replays > 0
    assert report.killed >= KILLS
    assert report.cut_off >= KILLS
    assert report.expired > 0 or not LONG
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line[:34] for line in report.lines()] == [line[:34] for line in shown]


def the_check_can_fail(report: storm.Report) -> None:
    """The same agents, gateway and audit, and rows that should not be there."""
    assert report.duplicates > 0
    assert report.rows == report.actions + report.duplicates
    assert any(text.endswith("has 2 rows") for text in report.found)
    assert report.replays == 0
    assert f"duplicates found {report.duplicates}" in " ".join(" ".join(report.lines()).split())


@pytest.mark.full
@pytest.mark.parametrize(("options", "status"), [(["--kill"], 0), (["--without-keys"], 1)])
def test_command(options: list[str], status: int) -> None:
    """It ends as the audit does."""
    environment = {name: value for name, value in os.environ.items() if name != "PLATFORM_DATABASE"}
    ran = subprocess.run(
        [sys.executable, "-m", "examples.agent_platform.storm", "--actions", "200", *options],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env=environment,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (status, "")
    [counted] = [line.split()[-1] for line in ran.stdout.splitlines() if line.startswith("duplicates found")]
    assert (int(counted) > 0) == bool(status)
