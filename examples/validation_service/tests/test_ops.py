"""What is scheduled: each file can be read, says three o'clock, and names commands that work."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.validation_service.tests.conftest import ran

OPS = Path(__file__).parents[1] / "ops"
MANAGE = "examples.validation_service.manage"
COMMANDS = ["cleanup_idempotency_keys", "cleanup_callback_receipts"]
DAILY_AT_THREE = "0 3 * * *"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    database = f"sqlite:///{tmp_path_factory.mktemp('ops')}/validation.db"
    ran("manage", "migrate", "--verbosity=0", VALIDATION_DATABASE=database)
    return database


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(database: str, command: str) -> None:
    """They remove what has expired, and say how much; a scheduler sees an error by the exit code."""
    assert ran("manage", command, VALIDATION_DATABASE=database).stdout.startswith("Removed 0 ")
    assert ran("manage", command, "--dry-run", VALIDATION_DATABASE=database).stdout
    unmigrated = database.replace("validation.db", "empty.db")
    assert ran("manage", command, expected=3, VALIDATION_DATABASE=unmigrated).stderr


def test_crontab() -> None:
    lines = [line for line in (OPS / "crontab").read_text().splitlines() if not line.startswith("#")]
    settings = [line for line in lines if re.match(r"[A-Z_]+=", line)]
    assert "CRON_TZ=UTC" in settings
    [job] = [line for line in lines if line not in settings]
    minute, hour, day, month, weekday, command = job.split(maxsplit=5)
    assert " ".join([minute, hour, day, month, weekday]) == DAILY_AT_THREE
    assert "%" not in command  # to cron, it is the end of a line
    assert _commands(command) == COMMANDS
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0


def test_systemd(tmp_path: Path) -> None:
    timer = _unit(OPS / "systemd" / "validation-cleanup.timer")
    assert timer["Timer", "OnCalendar"] == ["*-*-* 03:00:00 UTC"]
    assert timer["Timer", "Persistent"] == ["true"]
    service = _unit(OPS / "systemd" / "validation-cleanup.service")
    assert service["Service", "Type"] == ["oneshot"]
    assert [_commands(line) for line in service["Service", "ExecStart"]] == [[one] for one in COMMANDS]
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    for unit in (OPS / "systemd").iterdir():
        text = unit.read_text().replace("/srv/validation/.venv/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text.replace("/srv/validation", str(tmp_path)))
    units = sorted(map(str, tmp_path.glob("validation-cleanup.*")))
    verified = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    # It looks at other units of the machine, too.
    assert "validation-cleanup" not in verified.stderr, verified.stderr
    calendar = [analyze, "calendar", *timer["Timer", "OnCalendar"]]
    shown = subprocess.run(calendar, capture_output=True, text=True, check=True).stdout
    assert "Normalized form: *-*-* 03:00:00 UTC" in " ".join(shown.split())


def test_kubernetes() -> None:
    job = yaml.safe_load((OPS / "kubernetes" / "cleanup.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert (job["spec"]["schedule"], job["spec"]["timeZone"]) == (DAILY_AT_THREE, "Etc/UTC")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    containers = [*pod["initContainers"], *pod["containers"]]
    assert [_commands(" ".join(one["command"])) for one in containers] == [[one] for one in COMMANDS]
    assert all(one["envFrom"] == [{"secretRef": {"name": "validation"}}] for one in containers)


def test_google_cloud(tmp_path: Path) -> None:
    """The script is run, with a `gcloud` that writes down what it is given."""
    gcloud, log = tmp_path / "gcloud", tmp_path / "log"
    gcloud.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "files = [pathlib.Path(one).read_text() for one in sys.argv if pathlib.Path(one).is_file()][1:]\n"
        f"open({str(log)!r}, 'a').write(json.dumps([sys.argv[1:], files]) + '\\n')\n"
    )
    gcloud.chmod(0o755)
    given = {"PROJECT": "p", "REGION": "r", "IMAGE": "host/image:1", "ACCOUNT": "who@example"}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([OPS / "google-cloud" / "schedule.sh"], env={"PATH": path, **given}, check=True)
    calls: list[tuple[list[str], list[str]]] = [
        (arguments, files) for arguments, files in map(json.loads, log.read_text().splitlines())
    ]
    assert [arguments[:3] for arguments, _ in calls] == [
        ["run", "jobs", "replace"],
        ["scheduler", "jobs", "create"],
    ] * 2
    for number, command in enumerate(COMMANDS):
        (_, [written]), (scheduled, _) = calls[2 * number], calls[2 * number + 1]
        job: Any = yaml.safe_load(written)
        name = job["metadata"]["name"]
        [container] = job["spec"]["template"]["spec"]["template"]["spec"]["containers"]
        assert _commands(" ".join(container["command"])) == [command]
        assert container["image"] == "host/image:1"
        assert scheduled[3:5] == ["http", name]
        options = dict(zip(scheduled[5::2], scheduled[6::2], strict=True))
        assert (options["--schedule"], options["--time-zone"]) == (DAILY_AT_THREE, "Etc/UTC")
        assert options["--uri"].endswith(f"/jobs/{name}:run")


def _commands(text: str) -> list[str]:
    """Django's commands that are run in it."""
    found: list[str] = re.findall(rf"-m {re.escape(MANAGE)} (\w+)", text)
    return found


def _unit(file: Path) -> dict[tuple[str, str], list[str]]:
    """A file of systemd's: values by section and name, of which there may be several."""
    found: dict[tuple[str, str], list[str]] = {}
    section = ""
    for line in file.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault((section, name), []).append(value)
    return found
