"""Each callback once, in a storm of lost responses and killed processes; without receipts, some twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.gateway import Proxy
from examples.validation_service import process_lock, storm
from examples.validation_service.checks import Check
from examples.validation_service.runner import LOCK
from examples.validation_service.serving import ValidationService
from examples.validation_service.tests.conftest import wait_until

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
RUNS, KILLS = (storm.RUNS, storm.KILLS) if LONG else (6, 3)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
def test_storm(database: str, tmp_path: Path) -> None:
    """What the tables say, and what the README shows."""
    report = run(database, tmp_path)
    assert report.wrong == []
    tally = report.tally
    assert (tally.runs, tally.receipts) == (RUNS, RUNS * len(Check))
    assert tally.findings > 0
    # It was a storm.
    assert sum(report.killed.values()) > 0
    assert report.responses_lost + report.acknowledgements_lost > 0
    assert report.callbacks > RUNS * len(Check)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line[:26] for line in report.lines()] == [line[:26] for line in shown]


@pytest.mark.full
def test_without_receipts(tmp_path: Path) -> None:
    """The audit can fail: the same clients, jobs and gateways, and findings that should not be there."""
    report = run(f"sqlite:///{tmp_path}/validation.db", tmp_path, runs=20, VALIDATION_CALLBACK_IDS="no")
    assert report.tally.runs == 20
    assert any(text.endswith("findings are too many") for text in report.wrong)
    assert any(text.startswith("north: runs, finished, errors and warnings") for text in report.wrong)


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "status"), [([], 0), (["--without-receipts"], 1), (["--without-keys", "--runs=20"], 1)]
)
def test_command(options: list[str], status: int) -> None:
    """It ends as the audit does."""
    ran = subprocess.run(
        [*COMMAND, "--runs=10", "--kills=3", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (status, "")
    [counted] = [line.split()[-1] for line in ran.stdout.splitlines() if line.startswith("wrong")]
    assert (int(counted) > 0) == bool(status)


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
    assert list(tmp_path.iterdir()) == []


def run(database: str, folder: Path, runs: int = RUNS, **environment: str) -> storm.Report:
    with (
        Proxy(0, lose=storm.LOSE, repeat=storm.REPEAT) as callbacks,
        ValidationService(database, folder, callbacks, **environment) as service,
    ):
        return storm.run(service, runs=runs, kills=KILLS)


COMMAND = [sys.executable, "-m", "examples.validation_service.storm"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VALIDATION_DATABASE"}


def holders(folder: Path, locks: str) -> list[int]:
    """Processes that hold a lock in the folder of a storm."""
    found = (process_lock.holder(lock) for lock in folder.glob(f"*/files/{locks}"))
    return [process for process in found if process is not None]


def runs(process: int) -> bool:
    """Whether it does, and is not a zombie that is still to be reaped."""
    asked = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, check=False)
    return asked.stdout.strip()[:1] not in (b"", b"Z")
