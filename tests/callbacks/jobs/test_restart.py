"""Jobs that are killed, and processes that share a folder: real ones."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from retrysafe.callbacks.jobs import Envelope
from retrysafe.callbacks.jobs.__main__ import main
from retrysafe.callbacks.jobs.folder import Folder
from retrysafe.callbacks.jobs.request import make_request
from tests.callbacks.jobs.receiver import PATIENCE, Receiver, Reply, after, always, receiving

ROOT = Path(__file__).parents[3]
JOB = [sys.executable, "-m", "tests.callbacks.jobs.job"]
PENDING = [sys.executable, "-m", "retrysafe.callbacks.jobs"]


def start(command: list[str], *arguments: object, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*command, *(str(argument) for argument in arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL


def launch(folder: Path, receiver: Receiver) -> Path:
    envelope = Envelope.launch(run_id="run-1", callback_url=receiver.url)
    envelope.write(folder / "envelope.json")
    return folder / "envelope.json"


def leave(folder: Path, url: str, count: int) -> None:
    for number in range(count):
        held = Folder(folder).hold(make_request({"callback_id": f"c-{number}"}, url))
        assert held is not None
        held.release()


def test_a_job_that_is_killed_and_restarted(tmp_path: Path) -> None:
    """Whether between two attempts or within one: the same id and the same bytes arrive, and then no more."""
    behaviour: list[Reply | str] = [
        Reply(503),
        Reply(503),
        Reply(503, headers={"Retry-After": "1000"}),
        "hang",
    ]
    with receiving(lambda number: behaviour[number - 1] if number < 5 else Reply()) as receiver:  # type: ignore[arg-type,return-value]  # of these
        envelope = launch(tmp_path, receiver)
        between = start(JOB, envelope, tmp_path / "callbacks")
        receiver.wait_for(3)
        kill(between)
        [stored] = (tmp_path / "callbacks").iterdir()
        first = stored.read_bytes()
        within = start(JOB, envelope, tmp_path / "callbacks")
        receiver.wait_for(4)
        kill(within)
        assert stored.read_bytes() == first
        assert output(start(JOB, envelope, tmp_path / "callbacks")).splitlines() == [
            "worked",
            "Delivered(status=200, attempts=1, duplicate=False, response={})",
        ]
    assert receiver.bodies == [receiver.bodies[0]] * 5
    assert json.loads(receiver.bodies[0])["callback_id"] == Envelope.read(envelope).context.callback_id
    assert list((tmp_path / "callbacks").iterdir()) == []


def test_a_job_that_is_killed_is_replaced_by_the_command(tmp_path: Path) -> None:
    """The container that comes after it has the folder, and neither the job nor its envelope."""
    with receiving(after(1, Reply(503, headers={"Retry-After": "1000"}))) as receiver:
        job = start(JOB, launch(tmp_path, receiver), tmp_path / "callbacks")
        receiver.wait_for(1)
        assert output(start(PENDING, tmp_path / "callbacks", "--patience", "0s")).startswith("busy ")
        kill(job)
        printed = output(
            start(PENDING, tmp_path / "callbacks", RETRYSAFE_CALLBACK_AUTHORIZATION="Bearer of-the-container")
        )
    assert printed.startswith("delivered ")
    assert receiver.bodies == [receiver.bodies[0]] * 2
    assert receiver.requests[1].headers["authorization"] == "Bearer of-the-container"


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    """Each callback is delivered by one of them, once."""
    with receiving(always(Reply())) as receiver:
        leave(tmp_path, receiver.url, 60)
        processes = [start(PENDING, tmp_path) for _ in range(2)]
        lines = [line for process in processes for line in output(process).splitlines()]
    assert Counter(json.loads(body)["callback_id"] for body in receiver.bodies) == {
        f"c-{number}": 1 for number in range(60)
    }
    assert Counter(line.split()[0] for line in lines)["delivered"] == 60
    assert {line.split()[0] for line in lines} <= {"delivered", "busy"}
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_whole_files_only(tmp_path: Path) -> None:
    """Killed at any moment while it stores callbacks, what is there under its name is complete."""
    code = (
        "import itertools, sys\n"
        "from retrysafe.callbacks.jobs.folder import Folder\n"
        "from retrysafe.callbacks.jobs.request import make_request\n"
        "for number in itertools.count():\n"
        "    request = make_request(b'x' * 100_000, 'http://127.0.0.1:9/', callback_id=str(number))\n"
        "    Folder(sys.argv[1]).hold(request).release()\n"
        "    print(number, flush=True)\n"
    )
    stored = 0
    for turn in range(3):
        process = start([sys.executable, "-c", code], tmp_path / str(turn))
        assert process.stdout is not None
        for _ in range(turn + 3):
            process.stdout.readline()
        kill(process)
        folder = Folder(tmp_path / str(turn))
        for path in folder.files():
            held = folder.take(path)
            assert not isinstance(held, str)
            assert len(held.request.body) == 100_000
            held.release()
            stored += 1
    assert stored >= 3 + 4 + 5


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETRYSAFE_CALLBACK_SECRET", "RETRYSAFE_CALLBACK_AUTHORIZATION"):
        monkeypatch.delenv(name, raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Mapping[str, object]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return {"status": status, "out": out, "err": err}


def test_the_command_says_what_became_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And its status whether there is something left to look at."""
    assert run(capsys, tmp_path) == {"status": 0, "out": "", "err": ""}
    with receiving(always(Reply(410))) as receiver:
        leave(tmp_path, receiver.url, 1)
        found = run(capsys, tmp_path)
        assert found["status"] == 1
        assert str(found["out"]).startswith(f"refused    c-0 {tmp_path}/refused/")
        receiver.script = always(Reply(503))
        found = run(capsys, tmp_path, "--again", "--patience", "0s")
        assert found["status"] == 1
        assert str(found["out"]).startswith("left       c-0 ")
        receiver.script = always(Reply())
        found = run(capsys, tmp_path)
        assert found["status"] == 0
        assert str(found["out"]).startswith("delivered  c-0 ")


def test_the_command_shows_any_id_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which a launcher may have made of anything."""
    ids = {"run 7\ndelivered  c-0": r"'run 7\ndelivered  c-0'", "\x1b[31mé": r"'\x1b[31m\xe9'"}
    with receiving(always(Reply())) as receiver:
        for id, shown in ids.items():
            held = Folder(tmp_path).hold(make_request(b"", receiver.url, callback_id=id))
            assert held is not None
            held.release()
            [line] = str(run(capsys, tmp_path)["out"]).splitlines()
            assert line.startswith(f"delivered  {shown} {tmp_path}")


def test_the_command_refuses_what_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert run(capsys, missing) == {"status": 1, "out": "", "err": f"{missing} is not a folder\n"}
    found = run(capsys, tmp_path, "--patience", "long")
    assert found["status"] == 1
    assert str(found["err"]).startswith("patience: 'long' is not a valid duration")
