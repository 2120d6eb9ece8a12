"""The parts of the evidence, and their jobs: commands of some minutes that write one report each.

`--size` multiplies what is the standard, and each part has a least.  How large a job is, and how long it
takes, was measured on a small virtual machine with two cores.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from retrysafe._core.model import Door
from retrysafe.testing.simulate import SETTINGS
from tools.evidence.environment import Sources
from tools.evidence.errors import EvidenceError
from tools.fuzz.targets import LONGEST


class Job(NamedTuple):
    name: str
    """Of its file, too."""
    command: tuple[str, ...]
    """A module and its arguments, as after `python -m`, without `--json`.  A report that was made by another
    command is not a report of this job."""
    expected: float
    """Seconds, roughly: for the time that is left, until there are reports to go by."""
    sources: Sources
    """What its report is about, and judged by.  Once that has changed, the report is of something else."""


class Part(NamedTuple):
    """What can be asked for on its own."""

    name: str
    plan: Callable[[float], Sequence[Job]]
    """The jobs of a size."""


def scaled(standard: int, size: float, least: int) -> int:
    return max(least, round(standard * size))


def chunks(total: int, chunk: int) -> list[tuple[int, int]]:
    """(first, how many) of each chunk: all are whole but the last."""
    return [(first, min(chunk, total - first)) for first in range(0, total, chunk)]


def shares(total: int, jobs: int) -> list[int]:
    """As even as can be; they add up."""
    return [total * (job + 1) // jobs - total * job // jobs for job in range(jobs)]


def choose(parts: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """In the order of the parts, whatever the order of the names; all of them, if none is named."""
    known = [part.name for part in parts]
    for name in names:
        if name not in known:
            raise EvidenceError(f"{name!r} is not a part: expected one of {', '.join(known)}")
    return [part for part in parts if not names or part.name in names]


SCHEDULES = 4_950_000
SCHEDULES_ON_SQLITE = 50_000
KILLS = 2_000
FREEZES = 500
SERVER_KILLS = 50
CUTS = 500
OUTAGES = 20
SHARE_OF_SCHEDULES = 0.2
SHARE_OF_FAULTS = 0.5
"""Of the above for operations, and for callbacks: what they come to behind their doors is the same engine."""
HISTORIES = 1_000_000
EXECUTIONS = 30_000_000
EXECUTIONS_FOR_A_BUG = 200_000
"""At most, and whatever the size: most are found within some hundreds."""

SERVERS = ("postgresql", "mariadb", "valkey")
"""Stores of the crash harness that have a server to be killed, and connections to be cut."""
CRASHED_STORES = (*SERVERS, "sqlite")

FUZZED = tuple(LONGEST)

SIMULATE = ("retrysafe.testing.simulate",)


# --- what the reports of each part are about: the product, and the tools that judge it

TESTING = "src/retrysafe/testing"


def _product_and(*testing: str, tools: tuple[str, ...] = (), tests: tuple[str, ...] = ()) -> Sources:
    return Sources(
        (
            "src/retrysafe",
            *(f"{TESTING}/{name}" for name in testing),
            *(f"tools/{name}" for name in tools),
            *(f"tests/{name}" for name in tests),
        ),
        (TESTING,),
    )


SIMULATED = _product_and("simulate", "linearize", "report.py")
HUNTED = _product_and(
    "simulate", "linearize", "report.py", "stores", "postgres.py", "mariadb.py", "valkey.py",
    "unprivileged.py", "server_folder.py", "ports.py",
    tools=("planted",), tests=("stores", "callbacks", "servers.py"),
)  # fmt: skip
CRASHED = _product_and(
    "linearize", "report.py", "postgres.py", "server_folder.py", "ports.py",
    "mariadb.py", "valkey.py", "unprivileged.py", "proxy.py", "conversations", "traps.py",
    "adapters/client.py", "adapters/server.py",
    "reference/serve.py", "reference/asgi_layers.py", "reference/cors.py", "reference/principals.py",
    tools=("crash",),
)  # fmt: skip
COVERED = _product_and("simulate", "linearize", "report.py", tools=("evidence/coverage.py",))
LINEARIZED = Sources((f"{TESTING}/linearize", f"{TESTING}/report.py"))
FUZZING = _product_and("report.py", tools=("fuzz",))


# --- the jobs


def _simulate(size: float, door: Door = "request") -> Sequence[Job]:
    named: str = "simulate"
    through: tuple[str, ...] = ()
    if door != "request":
        named, through = f"simulate-{door}s", ("--door", door)
        size *= SHARE_OF_SCHEDULES

    def job(store: str, first: int, number: int, pace: float) -> Job:
        asked = ("--store", store, *through, "--schedules", str(number), "--seed", str(first))
        return Job(f"{named}-{store}-{first}", (*SIMULATE, *asked), number / pace, SIMULATED)

    schedules = scaled(SCHEDULES, size, 2_000)
    in_memory = chunks(schedules, 250_000)
    on_sqlite = chunks(scaled(SCHEDULES_ON_SQLITE, size, 200), 10_000)
    # The slow ones first, so that none is left for the end.  They have seeds of their own: the same seed on
    # another store is hardly another schedule.
    return [
        *(job("sqlite", schedules + first, number, 250) for first, number in on_sqlite),
        *(job("memory", first, number, 1_150) for first, number in in_memory),
    ]


def _search(size: float) -> Sequence[Job]:
    """A setting at a time."""
    if size < 1:
        return [Job("search-small", (*SIMULATE, "--search", "small"), 10, SIMULATED)]
    every = [setting.name for setting in SETTINGS]
    return [
        *(_search_job("full", name, 20) for name in every),
        *(_search_job("cancelled", name, 15) for name in every),
        *(_search_job("batched", name, 10) for name in ("hold", "retry", "tx")),
    ]


def _search_job(bound: str, setting: str, seconds: float) -> Job:
    name = f"search-{bound}-{setting.replace(',', '').replace(' ', '-')}"
    return Job(name, (*SIMULATE, "--search", bound, "--setting", setting), seconds, SIMULATED)


def _planted(size: float) -> Sequence[Job]:
    return [Job("planted", ("tools.planted",), 130, HUNTED)]


def _coverage(size: float) -> Sequence[Job]:
    """Of any size: more schedules execute hardly a line more."""
    return [Job("coverage", ("tools.evidence.coverage", "--schedules", "3000", "--seed", "0"), 25, COVERED)]


def _crash(store: str, size: float, door: Door = "request") -> Sequence[Job]:
    """Of each kind of fault a share in every job, so that they meet."""
    named = f"crash-{store}"
    through: tuple[str, ...] = ()
    if door != "request":
        named, through = f"crash-{door}s-{store}", ("--door", door)
        size *= SHARE_OF_FAULTS
    kills = scaled(KILLS, size, 10)
    number = max(1, round(kills / 500))  # enough for every place to be reached
    faults = {"--kills": shares(kills, number), "--freezes": shares(scaled(FREEZES, size, 5), number)}
    if store in SERVERS:
        faults["--server-kills"] = shares(scaled(SERVER_KILLS, size, 1), number)
        faults["--outages"] = shares(scaled(OUTAGES, size, 2), number)
        faults["--cuts"] = shares(scaled(CUTS, size, 5), number)

    def job(turn: int) -> Job:
        asked = (word for kind, share in faults.items() for word in (kind, str(share[turn])))
        command = ("tools.crash", store, *through, *asked, "--seed", str(turn))
        seconds = 15 + faults["--kills"][turn] * (0.3 if store in SERVERS else 0.15)
        return Job(f"{named}-{turn + 1}", command, seconds, CRASHED)

    return [job(turn) for turn in range(number)]


def _linearize(size: float) -> Sequence[Job]:
    return [
        Job(
            f"linearize-{first}",
            ("retrysafe.testing.linearize", "--histories", str(number), "--seed", str(first)),
            number / 20_000,
            LINEARIZED,
        )
        for first, number in chunks(scaled(HISTORIES, size, 1_000), 200_000)
    ]


def _fuzz(size: float) -> Sequence[Job]:
    """A target at a time.  What one job has bred the next does not know, so they are long."""
    executions = shares(scaled(EXECUTIONS, size, 10_000 * len(FUZZED)), len(FUZZED))
    return [
        Job(
            f"fuzz-{target}-{turn}",
            ("tools.fuzz", target, "--executions", str(number), "--seed", str(turn)),
            5 + number / (9_000 if target == "key" else 20_000),  # whose inputs are the longest
            FUZZING,
        )
        for target, share in zip(FUZZED, executions, strict=True)
        for turn, (_, number) in enumerate(chunks(share, 3_000_000), 1)
    ]


def _fuzz_planted(size: float) -> Sequence[Job]:
    executions = EXECUTIONS_FOR_A_BUG * len(FUZZED)
    command = ("tools.fuzz", "--planted", "--executions", str(executions), "--seed", "1")
    return [Job("fuzz-planted", command, 30, FUZZING)]


PARTS = (
    Part("search", _search),
    Part("planted", _planted),
    Part("coverage", _coverage),
    *(Part(f"crash-{store}", partial(_crash, store)) for store in CRASHED_STORES),
    *(
        Part(f"crash-operations-{store}", partial(_crash, store, door="operation"))
        for store in CRASHED_STORES
    ),
    *(Part(f"crash-callbacks-{store}", partial(_crash, store, door="callback")) for store in CRASHED_STORES),
    Part("simulate", _simulate),
    Part("simulate-operations", partial(_simulate, door="operation")),
    Part("simulate-callbacks", partial(_simulate, door="callback")),
    Part("linearize", _linearize),
    Part("fuzz-planted", _fuzz_planted),
    Part("fuzz", _fuzz),
)
"""In this order: what finds most comes first."""
