"""The user that servers run as: the one of the tests, unless that is root.

PostgreSQL refuses to run as root, and what copies a Galera node gives up root's rights while it does so.
Where the tests are root's, both run as `nobody`, in folders that belong to it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_NOBODY = 65534
_IS_ROOT = os.geteuid() == 0

UID = _NOBODY if _IS_ROOT else os.geteuid()

_USER = _NOBODY if _IS_ROOT else None
_GROUPS: list[int] | None = [] if _IS_ROOT else None


def own(path: Path) -> None:
    """Give it to that user."""
    if _IS_ROOT:
        os.chown(path, _NOBODY, _NOBODY)


def start(command: Sequence[str | Path], log: IO[bytes], cwd: str | None = None) -> "subprocess.Popen[bytes]":
    """Start a server, in a session of its own, which writes to this log."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd=cwd,
        user=_USER,
        group=_USER,
        extra_groups=_GROUPS,
    )


def run(command: Sequence[str | Path]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=_USER,
        group=_USER,
        extra_groups=_GROUPS,
    )


def check(command: Sequence[str | Path]) -> None:
    """Run it, and raise what it says if it fails."""
    done = run(command)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{said}")
