"""The demo as a process: without a terminal, on a real one, and what it leaves behind."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

RUN = "import sys; from retrysafe.demo import run; sys.exit(run(seed=7))"
SERVE = "import sys; from retrysafe.demo import run; sys.exit(run(serve=True))"

TIMEOUT = 60.0
"""Seconds for what takes a few: the machine may be busy with other tests."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Demo:
    """A running demo, in a process session of its own; its temporary files are in `folder`."""

    def __init__(self, code: str, folder: Path, *, columns: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.started = time.monotonic()
        self.output = ""
        environment = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color", "COLUMNS": ""}
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            environment.pop(name, None)  # rich prefers them to what the terminal is
        if columns is None:
            self._ours, theirs = os.pipe()
            stdin: int = subprocess.DEVNULL
        else:
            self._ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            stdin = theirs
        # As a shell starts it: a session with this terminal, so that Ctrl-C reaches every process in it.
        program = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{code}" if columns else code
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=stdin,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)

    def read_until(self, wanted: Callable[[str], object]) -> str:
        """Everything printed so far, once it is `wanted`."""
        deadline = time.monotonic() + TIMEOUT
        while not wanted(self.text):
            readable, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"waited {TIMEOUT} s, and there was only:\n{self.text}"
            assert self._read(), f"it ended, and there was only:\n{self.text}"
        return self.text

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # from a terminal whose other end is closed
            return False
        self.output += part.decode(errors="replace")
        return bool(part)

    @property
    def text(self) -> str:
        """The output without escape sequences."""
        return _ESCAPES.sub("", self.output).replace("\r", "\n")

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            readable, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"waited {TIMEOUT} s for its end, and there was:\n{self.text}"
            if not self._read():
                break
        code = self.process.wait(TIMEOUT)
        self.seconds = time.monotonic() - self.started
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def running(self) -> list[str]:
        """The processes with its folder in their arguments: the server, while it runs."""
        listed = subprocess.run(["ps", "-axwwo", "pid=,args="], check=True, capture_output=True, text=True)
        return [line for line in listed.stdout.splitlines() if str(self.folder) in line]

    def assert_cleaned_up(self) -> None:
        """No process and no file is left."""
        deadline = time.monotonic() + TIMEOUT
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.running() == []
        assert list(self.folder.iterdir()) == []


def interrupt(demo: Demo, number: signal.Signals = signal.SIGINT) -> None:
    demo.process.send_signal(number)


def row(text: str, name: str) -> list[str]:
    """The cells of a row of the table."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return line.strip().removeprefix(name).split()


def cents(money: str) -> int:
    return int(re.sub(r"[€.,+]", "", money))
