"""A folder for a server, which is removed in the end, and the server with it, however its owner ends.

    python server_folder.py FOLDER PID_FILE ARGUMENT

A process that was killed cannot do so itself, so each folder has a small process beside it.  That waits until
its standard input is closed, as it is when its owner is gone, and imports nothing but the standard library.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ATTEMPTS = 600
"""A process that was killed may still be writing for a moment; half a minute is far more than that."""


class ServerFolder:
    """`pid_file` is where the server writes its process id, below the folder; `argument`, below it too, is
    what it was started with, by which it is told from other processes."""

    def __init__(self, name: str, *, pid_file: str, argument: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"retrysafe-{name}-"))
        self._owner = os.getpid()
        self._watch = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self.path, pid_file, argument],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """Remove it; its server has ended."""
        if self._owner != os.getpid():  # a fork ends, and what it has inherited is not its own
            return
        _remove(self.path)
        with self._watch:
            self._watch.kill()


def children(pid: int) -> list[int]:
    """Only its own, not theirs: each child of a server has a group of its own."""
    with contextlib.suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return []


def _kill(pid_file: Path, argument: Path) -> None:
    """Kill the server and its children, which may be frozen."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        server = int(pid_file.read_text().split()[0])
        # The file of a server that was killed is still there, and its number may be another process's.
        if os.fsencode(argument) in Path(f"/proc/{server}/cmdline").read_bytes().split(b"\0"):
            for pid in [server, *children(server)]:
                os.kill(pid, signal.SIGKILL)


def _remove(folder: Path) -> None:
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.stdin.read()
    _kill(folder / sys.argv[2], folder / sys.argv[3])
    _remove(folder)
