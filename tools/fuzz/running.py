"""A target in a process of its own, and what is read off it afterwards."""

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

Engine = Literal["atheris", "random"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)

ROOT: Final = Path(__file__).parents[2]

_STATUS = re.compile(
    r"^#\d+\t(?:DONE|INITED|NEW|REDUCE|RELOAD|pulse).*?cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE
)
_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
_AT_LEAST = re.compile(r"^#(\d+)\t", re.MULTILINE)
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*)", re.MULTILINE)


class Outcome(NamedTuple):
    target: str
    executions: int
    seconds: float
    processor: float
    """Seconds of the processor, of which a busy machine gives less than it takes."""
    coverage: int | None = None
    """Branches that were reached; `None` where they are not measured."""
    features: int | None = None
    corpus: int | None = None
    """Inputs that each lead somewhere else."""
    input: bytes | None = None
    """The one that it crashed on."""
    said: str = ""
    failure: str | None = None
    """The engine broke, and not the target."""


def run(target: str, engine: Engine, *, executions: int, seed: int, planted: bool = False) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "tools.fuzz.child", target, "--engine", engine,
            "--executions", str(executions), "--seed", str(seed), "--into", folder,
        ]  # fmt: skip
        began, used = time.monotonic(), _processor()
        ended = subprocess.run(
            [*command, "--planted"] if planted else command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
        )
        seconds = max(time.monotonic() - began, 0.001)
        return _read(target, Path(folder), ended, executions, (seconds, _processor() - used))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _read(
    target: str, folder: Path, ended: subprocess.CompletedProcess[str], asked: int, took: tuple[float, float]
) -> Outcome:
    said = ended.stdout + ended.stderr
    crashes = [file for kind in ("crash-*", "timeout-*", "oom-*") for file in folder.glob(kind)]
    found = crashes[0].read_bytes() if crashes else None
    raised = _RAISED.search(said[said.find("Traceback") :]) if "Traceback" in said else None
    why = f"{raised[1]}: {raised[2]}"[:300] if raised else crashes[0].name.split("-")[0] if crashes else ""
    by_chance = folder / "random.json"
    if by_chance.exists():
        counts = json.loads(by_chance.read_text())
        return Outcome(target, counts["executions"], *took, corpus=counts["inputs"], input=found, said=why)
    executed = _EXECUTED.search(said)
    if executed:
        executions = int(executed[1])
    else:
        executions = max([int(number) for number in _AT_LEAST.findall(said)], default=0)
    status = _STATUS.findall(said)
    coverage, features, corpus = map(int, status[-1]) if status else (None, None, None)
    failure = None
    if found is None and (ended.returncode != 0 or executions < asked):
        failure = f"exit status {ended.returncode} after {executions} executions: {said[-500:]}"
    return Outcome(target, executions, *took, coverage, features, corpus, found, why, failure)
