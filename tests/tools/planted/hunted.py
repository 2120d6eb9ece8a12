"""Every planted bug is hunted once per run of the tests, by whichever of its processes comes first.

What was found goes to a folder that all processes of the run share, so bugs are spread over workers, and the
test that wants to see all of them takes part instead of hunting them again.
"""

import ast
import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from retrysafe.testing.simulate.promises import Promise, Violation
from tools.planted.bug import Planted
from tools.planted.hunt import Caught, hunt

PATIENCE = 300.0
"""Seconds for another process to finish a hunt.  The longest takes some seconds on an idle machine."""


class Site(NamedTuple):
    """Where a promise was found to be broken."""

    file: str
    """With its folder: the worlds of requests and of callbacks have files of the same names."""
    line: int


def named(file: Path) -> str:
    return "/".join(file.parts[-2:])


def checks_in(module: ModuleType) -> list[tuple[str, set[Site]]]:
    """Every place that says that a promise is broken: its text, and the lines it is written in."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    source = path.read_text()
    return [
        (
            f"{path.name}:{node.lineno}: {ast.get_source_segment(source, node)}",
            {Site(named(path), line) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)},
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "broken"
    ]


@contextmanager
def noting() -> Generator[set[Site]]:
    """While this is open, checks that fail are noted."""
    failed = set[Site]()
    make = Violation.__init__

    def noted(self: Violation, promise: Promise, text: str) -> None:
        check = sys._getframe(2)  # the caller of `broken`, which has made this one
        failed.add(Site(named(Path(check.f_code.co_filename)), check.f_lineno))
        make(self, promise, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Violation, "__init__", noted)
        yield failed


class Hunted(NamedTuple):
    caught: Caught | None
    by: frozenset[Site]
    """Which checks have failed."""


class Hunts:
    """The results of this run, in a folder that its processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def of(self, planted: Planted) -> Hunted:
        """Hunt it, or wait for the process that does."""
        return self._hunt(planted) if self._claim(planted) else self._wait(planted)

    def of_all(self, bugs: Iterable[Planted]) -> list[Hunted]:
        """Hunt what no other process has begun, and then wait for the others."""
        every = list(bugs)
        for planted in reversed(every):  # tests go forwards
            if self._claim(planted):
                self._hunt(planted)
        return [self._wait(planted) for planted in every]

    def _path(self, planted: Planted, suffix: str) -> Path:
        return self._folder / f"{sha256(planted.name.encode()).hexdigest()[:16]}.{suffix}"

    def _claim(self, planted: Planted) -> bool:
        try:
            with self._path(planted, "claim").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True

    def _hunt(self, planted: Planted) -> Hunted:
        with noting() as failed:
            caught = hunt(planted)
        half = self._path(planted, f"half-{os.getpid()}")
        half.write_text(json.dumps([caught, sorted(failed)]))
        half.replace(self._path(planted, "json"))
        return Hunted(caught, frozenset(failed))

    def _wait(self, planted: Planted) -> Hunted:
        result = self._path(planted, "json")
        until = time.monotonic() + PATIENCE
        while not result.exists():
            if time.monotonic() > until or not self._is_hunting(planted):
                return self._hunt(planted)
            time.sleep(0.05)
        caught: list[Any] | None
        caught, failed = json.loads(result.read_text())
        return Hunted(Caught(*caught) if caught else None, frozenset(Site(*site) for site in failed))

    def _is_hunting(self, planted: Planted) -> bool:
        """Whether another process has claimed it, and lives.  A hunt that failed is tried again."""
        pid = self._path(planted, "claim").read_text()
        return not pid or (int(pid) != os.getpid() and Path(f"/proc/{pid}").exists())
