"""Each callback once, in a storm of lost responses and killed processes; without receipts, some twice."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.validation_service import storm
from examples.validation_service.jobs import process_lock
from examples.validation_service.jobs.checks import Check
from examples.validation_service.jobs.runner import LOCK
from examples.validation_service.tests.conftest import ENVIRONMENT, ROOT, ran, wait_until

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
RUNS, KILLS = (storm.RUNS, storm.KILLS) if LONG else (6, 3)


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
def test_storm(database: str) -> None:
    """What the tables say, and what the README shows."""
    shown = ran("storm", f"--runs={RUNS}", f"--kills={KILLS}", VALIDATION_DATABASE=database)
    assert shown.stderr == ""
    report = Shown(shown.stdout)
    assert report["wrong"] == 0
    assert (report["runs in the table"], report["receipts"]) == (RUNS, RUNS * len(Check))
    assert report["findings in the table"] > 0
    # It was a storm.
    assert report["killed"] > 0
    assert report.lost() > 0
    assert report["callbacks of jobs"] > RUNS * len(Check)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    in_readme = readme.partition("```text\n")[2].partition("```")[0].splitlines()
    assert list(report.numbers) == [line[:26].strip() for line in in_readme]


@pytest.mark.full
def test_without_receipts() -> None:
    """The audit can fail: the same clients, jobs and gateways, and findings that should not be there."""
    shown = ran("storm", "--without-receipts", "--runs=20", f"--kills={KILLS}", expected=1)
    report = Shown(shown.stdout)
    assert (report["runs in the table"], report["receipts"]) == (20, 0)
    assert report["wrong"] > 0
    assert "findings are too many" in shown.stdout
    assert "north: runs, finished, errors and warnings" in shown.stdout


@pytest.mark.full
def test_without_keys() -> None:
    """Retries make runs that no client wanted, and these are counted against its quota."""
    shown = ran("storm", "--without-keys", "--runs=20", "--kills=3", expected=1)
    assert Shown(shown.stdout)["runs in the table"] > 20
    assert re.search(r"storm \S+ of (north|south) has 2 runs", shown.stdout)


class Shown:
    """What the storm prints, as numbers by their names."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line[26:32].strip().isdigit()]
        self.numbers = {line[:26].strip(): int(line[26:32]) for line in lines}
        self._text = text

    def __getitem__(self, name: str) -> int:
        return self.numbers[name]

    def lost(self) -> int:
        """Responses and acknowledgements."""
        return sum(map(int, re.findall(r"(\d+) (?:responses|acknowledgements) lost", self._text)))


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, how: signal.Signals) -> None:
    """No process is left, whatever it was doing."""
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--kills=0"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(lambda: bool(holders(tmp_path, f"spool/{LOCK}") and holders(tmp_path, "jobs/*/lock")))
            processes = holders(tmp_path, f"spool/{LOCK}") + holders(tmp_path, "jobs/*/lock")
            running.send_signal(how)
            assert running.wait(60) != 0
        finally:
            running.kill()
    wait_until(lambda: not any(runs(process) for process in processes))
    # SQLite removes its own temporary files as it opens them, unless it is killed right then.
    assert [left for left in tmp_path.iterdir() if not left.name.startswith("etilqs_")] == []


COMMAND = [sys.executable, "-m", "examples.validation_service.storm"]


def holders(folder: Path, locks: str) -> list[int]:
    """Processes that hold a lock in the folder of a storm."""
    found = (process_lock.holder(lock) for lock in folder.glob(f"*/files/{locks}"))
    return [process for process in found if process is not None]


def runs(process: int) -> bool:
    """Whether it does, and is not a zombie that is still to be reaped."""
    asked = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, check=False)
    return asked.stdout.strip()[:1] not in (b"", b"Z")
