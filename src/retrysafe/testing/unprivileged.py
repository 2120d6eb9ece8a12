"""The user that servers run as: the one of the tests, unless that is root.

PostgreSQL refuses to run as root, and what copies a Galera node gives up root's rights while it does so.
Where the tests are root's, both run as `nobody`, in folders that belong to it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NOBODY = 65534
_IS_ROOT = os.geteuid() == 0

UID = _NOBODY if _IS_ROOT else os.geteuid()

RUN_AS: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if _IS_ROOT else {}
"""Arguments of `subprocess.Popen`."""


def own(path: Path) -> None:
    """Give it to that user."""
    if _IS_ROOT:
        os.chown(path, _NOBODY, _NOBODY)


def run(command: Sequence[str | Path]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command, capture_output=True, check=False, stdin=subprocess.DEVNULL, cwd="/", **RUN_AS
    )


def check(command: Sequence[str | Path]) -> None:
    """Run it, and raise what it says if it fails."""
    done = run(command)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{said}")
