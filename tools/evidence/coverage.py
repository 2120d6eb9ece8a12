"""Which lines of the product a simulation executes: what is simulated, and what it leaves to other tests.

    python -m tools.evidence.coverage [--schedules N] [--seed N] [--json FILE]

Of each door as many, and a tenth of them on the real SQLite store.  Counted are the lines of function
bodies; what a module does when it is imported says nothing about a run.
"""

import argparse
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import retrysafe
from retrysafe.testing.report import Report, Stopwatch
from retrysafe.testing.simulate.callbacks import CallbackSimulation
from retrysafe.testing.simulate.run import Simulation
from retrysafe.testing.simulate.setting import OPERATIONS
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.world import quiet

PRODUCT = Path(retrysafe.__file__).parent

SCHEDULES = 3_000
"""Enough: twice as many execute hardly a line more."""

MEASURED: Mapping[str, Sequence[str]] = {
    "the flow": ("_core/protocol.py",),
    "decisions": ("_core/decisions.py",),
    "drivers": ("_runtime/drive_async.py", "_runtime/drive_sync.py"),
    "lease keeper": ("_runtime/leases.py",),
    "exchange": ("_http/exchange.py",),
    "adapters": ("asgi", "wsgi"),
    "SQLite store": ("stores/sql/sqlite",),
    "PostgreSQL store": ("stores/sql/postgresql",),
}
"""Parts of the product that a reader asks for, by files and folders."""


class Tracer:
    """Notes the lines that are executed, of all functions in these files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.lines = {str(file): set(_lines(file)) for file in files}
        self.missed = {file: set(lines) for file, lines in self.lines.items()}

    def __enter__(self) -> "Tracer":
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        missed = self.missed.get(frame.f_code.co_filename)
        if not missed:
            return None

        def executed(frame: FrameType, event: str, _: object) -> Any:
            missed.discard(frame.f_lineno)
            return executed

        return executed


def _lines(file: Path) -> Iterator[int]:
    """The lines of function bodies that can be executed."""
    yield from _lines_of(compile(file.read_text(encoding="utf-8"), str(file), "exec"))


def _lines_of(code: CodeType) -> Iterator[int]:
    if code.co_flags & CO_OPTIMIZED:  # a function, and not a module or the body of a class
        yield from (line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def measure(schedules: int = SCHEDULES, seed: int = 0) -> Report:
    watch = Stopwatch()
    files = {name: _files(names) for name, names in MEASURED.items()}
    with quiet(), Tracer([file for found in files.values() for file in found]) as tracer:
        in_memory = Simulation(), Simulation(None, OPERATIONS), CallbackSimulation()
        on_sqlite = Simulation(emptied), Simulation(emptied, OPERATIONS), CallbackSimulation(emptied)
        for each in range(schedules):
            seed_of_door, door = divmod(each, len(in_memory))
            doors = on_sqlite if seed_of_door % 10 == 0 else in_memory
            doors[door].run(seed + seed_of_door)
    counts = {
        name: {
            "lines": sum(len(tracer.lines[str(file)]) for file in found),
            "executed": sum(len(tracer.lines[str(file)] - tracer.missed[str(file)]) for file in found),
        }
        for name, found in files.items()
    }
    asked = {"schedules": schedules, "seed": seed}
    return watch.report("coverage", asked, {"schedules": schedules, "parts": counts}, [])


def _files(names: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = PRODUCT / name
        if not path.exists():
            raise FileNotFoundError(f"the product has no {name}: fix MEASURED in tools/evidence/coverage.py")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def share(row: Mapping[str, int]) -> float:
    """Of its lines, in percent."""
    return 100 * row["executed"] / row["lines"] if row["lines"] else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tools.evidence.coverage",
        description="Measure which lines of the product a simulation executes.",
    )
    parser.add_argument("--schedules", type=int, default=SCHEDULES, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report to FILE")
    options = parser.parse_args(arguments)
    report = measure(options.schedules, options.seed)
    for name, row in report.counts["parts"].items():
        sys.stdout.write(f"{share(row):4.0f}%  {name:18} {row['executed']:5} of {row['lines']:5} lines\n")
    if options.json is not None:
        report.write(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
