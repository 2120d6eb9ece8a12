"""How the tests here run it: in a folder of its own, and as a process where that is what they are about."""

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.evidence.program import run, write_code

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


class Ended(NamedTuple):
    code: int
    out: str


class Evidence(NamedTuple):
    folder: Path

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "tests.tools.evidence.program", str(self.folder))

    def run(self, *arguments: str) -> Ended:
        """To its end, and here: only the tools are processes then."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = run(self.folder, arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return Ended(code, said.getvalue())

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([*self.command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)

    @property
    def started(self) -> list[str]:
        """Which jobs were, in their order."""
        file = self.folder / "started"
        return file.read_text().split() if file.exists() else []

    def child_of(self, job: str) -> int:
        """The process that a job that lingers has started.  Waits for it."""
        file = self.folder / f"{job}.child"
        wait_until(file.exists)
        return int(file.read_text())

    def let_go(self) -> None:
        (self.folder / "go").touch()

    @property
    def page(self) -> str:
        return (self.folder / "page.md").read_text(encoding="utf-8")


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """It is, or nobody has taken notice of its end yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return "zombie" in (Path(f"/proc/{pid}/status")).read_text() if Path("/proc/self").exists() else False


@pytest.fixture
def evidence(tmp_path: Path) -> Iterator[Evidence]:
    write_code(tmp_path)
    yield Evidence(tmp_path)
    (tmp_path / "go").touch()  # whoever still waits need not
