"""The tools as they are: they take what jobs ask for, and leave what the page reads."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from retrysafe.testing.report import read
from retrysafe.testing.simulate.callbacks.walk import MEANING
from tests.tools.evidence.reports import crashed, everything
from tests.tools.evidence.test_page import section
from tools.crash import __main__ as crash
from tools.crash import run
from tools.evidence import coverage, page
from tools.evidence.__main__ import main
from tools.evidence.jobs import PARTS, Job, Part, choose
from tools.evidence.page import CRASHES
from tools.planted.__main__ import hunt_all
from tools.planted.bug import LeftToTests, Planted

FEW: dict[str, list[tuple[str, ...]]] = {
    "simulate": [
        ("retrysafe.testing.simulate", "--store", "memory", "--schedules", "120", "--seed", "0"),
        ("retrysafe.testing.simulate", "--store", "sqlite", "--schedules", "24", "--seed", "120"),
    ],
    "simulate-operations": [
        (
            "retrysafe.testing.simulate",
            "--store",
            "memory",
            "--door",
            "operation",
            "--schedules",
            "60",
            "--seed",
            "0",
        ),
    ],
    "simulate-callbacks": [
        (
            "retrysafe.testing.simulate",
            "--store",
            "memory",
            "--door",
            "callback",
            "--schedules",
            "740",
            "--seed",
            "0",
        ),
    ],
    "search": [("retrysafe.testing.simulate", "--search", "small", "--setting", "hold")],
    "coverage": [("tools.evidence.coverage", "--schedules", "40", "--seed", "0")],
    "linearize": [("retrysafe.testing.linearize", "--histories", "60", "--seed", "0")],
    "fuzz": [("tools.fuzz", "duration", "--executions", "100", "--seed", "1")],
    "fuzz-planted": [("tools.fuzz", "scope", "--planted", "--executions", "60000", "--seed", "1")],
}
"""As the plan has them, and as little of each as there can be."""


def test_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From commands to the page, with the tools that take a second."""

    def part(name: str) -> Part:
        [planned] = choose(PARTS, [name])
        sources = planned.plan(1)[0].sources
        jobs = [Job(f"{name}-{turn}", command, 1, sources) for turn, command in enumerate(FEW[name])]
        return Part(name, lambda _: jobs)

    code = main(
        [], parts=[part(name) for name in FEW], build=tmp_path / "build", standard=tmp_path / "page.md"
    )
    assert code == 0, capfd.readouterr().out
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    simulated = section(text, "Simulation")
    assert "144 schedules, 120 on the store in memory and 24 on the real SQLite store" in simulated
    assert "seeds 0 to 143." in simulated
    assert "| hold | 6 |" in simulated
    assert "| arrive | a request arrives |" in simulated
    assert "60 schedules, 60 on the store in memory" in section(text, "Operations")
    callbacks = section(text, "Callbacks")
    assert "740 schedules" in callbacks
    assert all(f"| {kind} | {words} | " in callbacks for kind, words in MEANING.items())
    assert "| hold | 3 | " in section(text, "Exhaustive search")
    assert "| drivers | 0% | 0 | " in section(text, "What of the product it executes")
    histories = section(text, "Histories")
    assert "60 generated histories" in histories
    assert "| simulate | " in histories
    fuzzing = section(text, "Fuzzing")
    assert "| `duration` | 100 | 20 | " in fuzzing
    assert "1 planted bug, one for each target, and each was found" in fuzzing
    assert "| `scope` | white space is not seen to be nobody | " in fuzzing


def test_planted() -> None:
    """What a hunt reports is what the page shows."""

    def three(bugs: Iterable[Planted | LeftToTests]) -> Iterable[Planted | LeftToTests]:
        found = list(bugs)
        return [*found[:2], next(bug for bug in found if isinstance(bug, LeftToTests))]

    parts = everything()
    stored = parts["planted"].stored[0]._replace(report=hunt_all(three))
    text = page.write({**parts, "planted": parts["planted"]._replace(found=[stored])}, 1.0)
    assert "3 planted bugs, and each was caught: 2 by the simulation" in section(text, "Planted bugs")


@pytest.mark.parametrize("size", [0.000_001, 0.01, 1.0])
@pytest.mark.parametrize("part", CRASHES)
def test_crash(part: str, size: float) -> None:
    """The harness takes what is asked of it, and counts what the page shows."""
    [chosen] = choose(PARTS, [part])
    planned = chosen.plan(size)
    for job in planned:
        options = crash._options(crash._parser().parse_args(job.command[1:]))
        assert options.faults > 0
        run.check(options)
    assert crashed(planned[0]).keys() == {*run._counts([]), "named places"}


CODE = """def ran(n):
    if n:
        return 1
    return 2


class C:
    x = 1

    def not_run(self):
        return 3
"""


def test_coverage_finds_what_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of functions that ran, and of no others; a part that has moved is an error."""
    file = tmp_path / "code.py"
    file.write_text(CODE)
    names: dict[str, Any] = {}
    with coverage.Tracer([file]) as tracer:
        exec(compile(file.read_text(), str(file), "exec"), names)
        names["ran"](1)
    assert tracer.lines[str(file)] == {2, 3, 4, 11}
    assert tracer.missed[str(file)] == {4, 11}
    with pytest.raises(FileNotFoundError, match=r"the product has no gone\.py: fix MEASURED"):
        coverage._files(["gone.py"])
    assert coverage.main(["--schedules", "30", "--json", str(tmp_path / "report.json")]) == 0
    parts = read(tmp_path / "report.json").counts["parts"]
    assert parts.keys() == coverage.MEASURED.keys()
    assert coverage.share(parts["the flow"]) > 50
    assert coverage.share(parts["drivers"]) == 0
    assert "drivers" in capsys.readouterr().out
