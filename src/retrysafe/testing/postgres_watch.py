"""Ends a PostgreSQL server and removes its folder when the process that started it is gone, however it ended.

    python postgres_watch.py FOLDER

A process that was killed cannot do so itself.  Waits until its standard input is closed, as it is then, and
imports nothing but the standard library.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

ATTEMPTS = 600
"""A process that was killed may still be writing for a moment; half a minute is far more than that."""


def kill(data: Path) -> None:
    """Kill the server that has its data there, and its children, which may be frozen."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        server = int((data / "postmaster.pid").read_text().split()[0])
        # The file of a server that was killed is still there, and its number may be another process's.
        if os.fsencode(data) in Path(f"/proc/{server}/cmdline").read_bytes().split(b"\0"):
            for pid in [server, *children(server)]:
                os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Only its own, not theirs: each child of a server has a group of its own."""
    with contextlib.suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return []


def remove(folder: Path) -> None:
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.stdin.read()
    kill(folder / "data")
    remove(folder)
