"""Programs that are forked instead of started: each is a process of its own, and ends as it would end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.testing.adapters.client import until
from tests.forkserver import Forked, ForkServer

PATIENCE = 60.0


class Programs:
    """Starts programs from files, and has what they have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ForkServer("import json, fractions")

    def start(self, code: str, *arguments: str, stdin: bytes = b"") -> Forked:
        file = self.folder / "program.py"
        file.write_text(code)
        (self.folder / "in").write_bytes(stdin)
        with (
            open(self.folder / "in", "rb") as given,
            open(self.out, "wb") as out,
            open(self.err, "wb") as err,
        ):
            streams = given.fileno(), out.fileno(), err.fileno()
            return self.server.start([str(file), *arguments], streams, {"PLACE": "here"})

    def run(self, code: str, *arguments: str, stdin: bytes = b"") -> int:
        return self.start(code, *arguments, stdin=stdin).wait(PATIENCE)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def err(self) -> Path:
        return self.folder / "err"


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    found = Programs(tmp_path)
    yield found
    found.server.close()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_program_of_its_own(programs: Programs) -> None:
    """Arguments, environment, folder, streams and session are its own; what was prepared is there."""
    seen = programs.run(
        "import os, sys\n"
        "assert 'fractions' in sys.modules and __name__ == '__main__'\n"
        "assert os.getsid(0) == os.getpgid(0) == os.getpid()\n"
        "print(sys.argv[1:], dict(os.environ), os.getcwd(), sys.path[0], sys.stdin.read())\n"
        "print('trouble', file=sys.stderr)\n",
        "--one",
        "two",
        stdin=b"given",
    )
    assert (seen, programs.err.read_text()) == (0, "trouble\n")
    where = f"{os.getcwd()} {programs.folder}"
    assert programs.out.read_text() == f"['--one', 'two'] {{'PLACE': 'here'}} {where} given\n"


def test_two_do_not_share_what_they_change(programs: Programs) -> None:
    change = "import fractions; assert not hasattr(fractions, 'changed'); fractions.changed = True"
    assert [programs.run(change) for _ in range(2)] == [0, 0]


def test_a_module(programs: Programs) -> None:
    """As `python -m` does, with the folder that it is in among those where modules are."""
    with open(programs.out, "wb") as out, open(os.devnull) as nothing:
        streams = nothing.fileno(), out.fileno(), out.fileno()
        assert programs.server.start(["-m", "platform"], streams).wait(PATIENCE) == 0
    command = [sys.executable, "-m", "platform"]
    assert programs.out.read_bytes() == subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("code", "status", "written"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no such file')", 1, "no such file\n"),
        ("raise ValueError('odd')", 1, "ValueError: odd\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_how_it_ends(programs: Programs, code: str, status: int, written: str) -> None:
    assert programs.run(code) == status
    assert programs.err.read_text().endswith(written)
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (started.returncode, started.stderr.endswith(written)) == (status, True)


def test_it_ends_when_its_threads_have(programs: Programs) -> None:
    """And what is to be done at exit is done, and what was printed is written."""
    programs.run(
        "import atexit, threading, time\n"
        "atexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
    )
    assert programs.out.read_text() == "thread\nexit\n"


def test_its_number_stays_its_own(programs: Programs) -> None:
    """As long as a test may send it a signal; then it is gone for good."""
    process = programs.start("")
    assert (process.wait(PATIENCE), process.wait()) == (0, 0)
    pid = process.pid
    process.send_signal(signal.SIGKILL)
    assert not gone(pid)
    del process
    until(lambda: gone(pid))


def test_it_does_not_outlive_its_test(programs: Programs) -> None:
    """A process that is let go of is killed, and so is what it has started in its group."""
    process = programs.start(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    until(lambda: programs.out.read_text().endswith("\n"))
    pids = [process.pid, int(programs.out.read_text())]
    del process
    until(lambda: all(gone(pid) for pid in pids))


def test_none_outlives_the_server(programs: Programs) -> None:
    process = programs.start("import time; time.sleep(600)")
    programs.server.close()
    assert gone(process.pid)
    with pytest.raises(RuntimeError, match="has ended with 0"):
        programs.start("")


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "a fork would lose the threads that were started",
        ),
    ],
)
def test_what_cannot_be_prepared(prepare: str, complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    server = ForkServer(prepare)
    with open(os.devnull, "r+b") as nothing, pytest.raises(RuntimeError, match="has ended with 1"):
        server.start(["-m", "platform"], (nothing.fileno(), nothing.fileno(), nothing.fileno()))
    assert complaint in capfd.readouterr().err
