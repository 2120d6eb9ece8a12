"""What a run of one of the tools here leaves behind: one JSON file, the same shape for all of them.

`make evidence` starts the tools as commands, each with `--json FILE`, and makes its page of these files.
"""

import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple


class Report(NamedTuple):
    tool: str
    """One of "simulate", "search", "planted", "crash", "linearize" or "fuzz"."""
    asked: Mapping[str, Any]
    """What was asked for, seeds included: enough to do it again."""
    counts: Mapping[str, Any]
    """What happened, as numbers, or as tables of them."""
    violations: Sequence[str]
    """Empty, or the run has failed.  Each says what was broken, and how to see it again."""
    seconds: float
    began: str
    python: str
    version: str

    @property
    def passed(self) -> bool:
        return not self.violations

    def write(self, path: Path) -> None:
        """All or nothing: who reads a report never reads half of one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_text(json.dumps(self._asdict(), indent=1, default=str) + "\n")
        half.replace(path)


def read(path: Path) -> Report:
    return Report(**json.loads(path.read_text()))


class Stopwatch:
    """Begins when it is made, and makes the report at the end."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._at = datetime.now(UTC).isoformat(timespec="seconds")

    def report(
        self, tool: str, asked: Mapping[str, Any], counts: Mapping[str, Any], violations: Sequence[str]
    ) -> Report:
        return Report(
            tool,
            asked,
            counts,
            violations,
            round(time.monotonic() - self._began, 1),
            self._at,
            f"{platform.python_implementation()} {sys.version.split()[0]}",
            version("retrysafe"),
        )
