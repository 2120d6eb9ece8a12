"""The payments API as a process of its own, which can be killed and started again."""

import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO

from retrysafe.demo.ledger import Ledger
from retrysafe.demo.stopping import PAUSE, stop_if_asked

START = 15.0
"""Seconds that a start may take.  It takes a third of one; a machine may be busy."""

PROGRAM = ("-m", "retrysafe.demo.server")
"""What Python runs.  The demo's own tests put a server in its place that is broken on purpose."""


class ServerFailed(Exception):
    """The server did not start."""


class Server:
    """Runs as long as the `with` does; on the same port after a restart."""

    def __init__(self, folder: Path, *options: str, lease: float, program: tuple[str, ...] = PROGRAM) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'keys.db'}"
        self.port = 0
        self._log = folder / "server.log"
        self._lease = lease
        self._program = program
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.jsonl")

    def counts(self) -> Counter[str]:
        """How many requests arrived, and how many ended with which verdict."""
        return Counter((self.folder / "journal").read_text().split())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ended(self, within: float) -> bool:
        """Whether it ends within so many seconds."""
        assert self._process is not None
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL: no goodbye, and nothing is written any more."""
        self._end(grace=0.0)

    def restart(self) -> None:
        """Start it again, without the options of the first time."""
        self._end(grace=0.0)
        self._start()

    def __enter__(self) -> "Server":
        try:
            self._start(*self._options)
        except BaseException:  # Ctrl-C too: nothing may be left running
            self._end(grace=0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(grace=3.0 if kind is None else 0.0)

    def _start(self, *options: str) -> None:
        command = [sys.executable, *self._program, str(self.folder), f"--port={self.port}"]
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(  # noqa: S603 - arguments of our own making
                [*command, f"--lease={self._lease}", *options],
                # It ends when this pipe closes: also if we are killed ourselves.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in the terminal is for us; we see to the rest.
                start_new_session=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline().decode() if _readable(process.stdout, START) else ""
        if not line.startswith("ready "):
            self._end(grace=0.0)
            raise ServerFailed(
                f"the payments API said {line!r} instead of being ready within {START:.0f} s; its log:\n"
                f"{self._log.read_text(errors='replace').strip() or '(empty)'}"
            )
        self.port = int(line.removeprefix("ready "))

    def _end(self, grace: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # asks it to end
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _readable(pipe: IO[bytes], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if select.select([pipe], [], [], PAUSE)[0]:
            return True
        stop_if_asked()
    return False
