"""python -m benchmarks compare REVISION: what a guarded request costs here, beside another revision.

In process, with the memory store, as `in-process` measures it.  Each turn is a process of its own that has
one of the two on its path; turns alternate, and of each figure the smallest counts, because only disturbance
makes one larger.  One interpreter runs both.  `--instructions` counts the instructions of a request instead,
which no load on the machine disturbs; it needs valgrind.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import machine

ROOT = Path(__file__).parent.parent
TURNS = 6
ROUNDS = 120
KINDS = ("fresh", "replay")

_SECONDS = "import json; from benchmarks import inprocess; print(json.dumps(inprocess.measure({rounds})))"
_REQUESTS = "from benchmarks import inprocess; inprocess.send({kind!r}, {requests})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare", description=(__doc__ or "").partition(": ")[2]
    )
    parser.add_argument("revision", help="a commit, branch or tag of this repository")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--instructions", action="store_true", help="count instructions, by valgrind")
    options = parser.parse_args(arguments)
    if options.instructions and shutil.which("valgrind") is None:
        parser.error("--instructions needs valgrind, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        if not _extract(options.revision, Path(folder)):
            parser.error(f"{options.revision!r} is not a revision of this repository that has src/retrysafe")
        sources = {options.revision: Path(folder) / "src", "here": ROOT / "src"}
        print(machine.facts_of_python())
        if options.instructions:
            found = {name: _instructions(source) for name, source in sources.items()}
            unit = "instructions"
        else:
            turns, rounds = (1, 5) if options.quick else (TURNS, ROUNDS)
            found = _microseconds(sources, turns, rounds)
            unit = "µs"
    for line in lines(found[options.revision], found["here"], options.revision, unit):
        print(line)
    return 0


def lines(then: Mapping[str, float], now: Mapping[str, float], revision: str, unit: str) -> Iterable[str]:
    """One for each kind of request, with the ratio of the two."""
    for kind in KINDS:
        ratio = now[kind] / then[kind]
        yield (
            f"{kind:7} {revision} {then[kind]:,.1f} {unit}, here {now[kind]:,.1f} {unit}: "
            f"{ratio:.3f} of it ({ratio - 1:+.1%})"
        )


def _extract(revision: str, folder: Path) -> bool:
    """The package as it is in a revision."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision, "src/retrysafe"], cwd=ROOT, capture_output=True
    )
    if archive.returncode != 0:
        return False
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return True


def _microseconds(sources: Mapping[str, Path], turns: int, rounds: int) -> dict[str, dict[str, float]]:
    """Of processor time per request."""
    best: dict[str, dict[str, float]] = {name: {} for name in sources}
    for _ in range(turns):
        for name, source in sources.items():
            took: dict[str, float] = json.loads(_run(source, _SECONDS.format(rounds=rounds)).stdout)
            for kind in KINDS:
                seconds = took[f"memory, {kind}"]
                best[name][kind] = min(best[name].get(kind, seconds * 1e6), seconds * 1e6)
    return best


def _instructions(source: Path) -> dict[str, float]:
    """Per request: the difference between a long and a short run, of which the start is the same."""
    return {
        kind: (_collected(source, kind, 320) - _collected(source, kind, 64)) / (320 - 64) for kind in KINDS
    }


def _collected(source: Path, kind: str, requests: int) -> int:
    command = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    ran = _run(source, _REQUESTS.format(kind=kind, requests=requests), command)
    found = re.search(r"Collected : ([0-9]+)", ran.stderr)
    if found is None:
        raise RuntimeError(f"valgrind did not say what it had counted: {ran.stderr[-500:]}")
    return int(found[1])


def _run(source: Path, program: str, command: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
    # The order of sets of text changes with the seed of their hashes, and with it the number of steps.
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    return subprocess.run(
        [*command, sys.executable, "-c", program],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
