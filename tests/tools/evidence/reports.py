"""Reports as the tools leave them, with numbers that are easy to add up."""

from collections.abc import Mapping, Sequence
from typing import Any

from retrysafe.testing.report import Report
from tools.evidence.environment import Environment
from tools.evidence.jobs import PARTS, Job
from tools.evidence.page import CRASHES, Part
from tools.evidence.reports import StoredReport
from tools.planted.bug import REASONED

AT = Environment(
    "0123456789abcdef" * 2, True, 2, "Linux on x86_64", "CPython 3.11.7", "3.40.1", "18.6", "c0de",
    "10.11.19", "9.1.2",
)  # fmt: skip


def simulated(job: Job) -> dict[str, Any]:
    number = int(job.command[job.command.index("--schedules") + 1])
    half = number // 2
    return {
        "schedules": number,
        "actions": 20 * number,
        "histories": number,
        "settings": {
            "hold": {
                "schedules": number - half,
                "actions": 20 * (number - half),
                "faults": {"crash": number, "lose reply": 2 * number},
                "verdicts": {"completed": number, "replayed": 3 * number},
            },
            "tx": {
                "schedules": half,
                "actions": 20 * half,
                "faults": {"crash": 1},
                "verdicts": {"completed": half},
            },
        },
    }


def simulated_callbacks(job: Job) -> dict[str, Any]:
    number = int(job.command[job.command.index("--schedules") + 1])
    row = {
        "schedules": number,
        "actions": 18 * number,
        "histories": 0,
        "faults": {"deliver": 3 * number, "redrive": 1},
        "verdicts": {"replayed": number},
        "work": {"completed": 2 * number},
    }
    return {"schedules": number, "actions": 18 * number, "histories": 0, "settings": {"inbox, tx": row}}


def searched(job: Job) -> dict[str, Any]:
    settings = [job.command[-1]] if "--setting" in job.command else ["tx", "hold", "retry"]
    row = {"attempts": 3, "states": 222, "schedules": 222_000, "seconds": 1.5}
    bound = "3 attempts, 1 crash" + (", 1 cancellation" if "cancelled" in job.command else "")
    bound += ", in batches" if "batched" in job.command else ""
    return {"bounds": {bound: {"settings": dict.fromkeys(settings, row)}}}


def planted(job: Job) -> dict[str, Any]:
    return {
        "bugs": {
            "complete is unconditional": {"seen": "a queue | of 2019", "caught by": "I3", "schedules": 12},
            "the scope is left out": {"seen": REASONED, "caught by": "I8", "schedules": 1},
            "a batch is lost": {
                "seen": REASONED,
                "caught by": "test_a_batch",
                "how": "test",
                "schedules": None,
            },
        }
    }


def covered(job: Job) -> dict[str, Any]:
    return {
        "schedules": 2_000,
        "parts": {"the flow": {"lines": 200, "executed": 184}, "drivers": {"lines": 150, "executed": 0}},
    }


def crashed(job: Job) -> dict[str, Any]:
    on_server = "sqlite" not in job.command
    return {
        "kills": 500, "freezes": 125, "server kills": 15 if on_server else 0, "cuts": 125 if on_server else 0,
        "outages": 5 if on_server else 0,
        "places": {
            "kill before COMMIT": 500, "stop before COMMIT": 100, "stop anywhere": 25,
            "cut before reserve": 35,
        },
        "verdicts": {"201": 2500, "replayed": 350}, "requests": 2850, "executions outside": 1500,
        "executions without excuse": 750, "keys undisturbed": 700,
        "named places": {
            "tx: kill before COMMIT": 500, "tx: stop before COMMIT": 100,
            "hold: kill after Finish raise": 7, "hold: stop after Finish raise": 0,
        },
        "rounds": {"tx, sqlalchemy": 10, "hold, sqlite3": 5},
        "answered": 2550, "unknown": 20, "audits": 165, "histories": 2575,
        "slowest recovery": 1.25 if job.name.endswith("-1") else 0.75,
    }  # fmt: skip


def linearized(job: Job) -> dict[str, Any]:
    number = int(job.command[job.command.index("--histories") + 1])
    return {
        "histories": number, "accepted": number // 2, "rejected": number // 2, "operations": 4 * number,
        "longest": 29, "modes": {}, "heard": {}, "mutations": {"lost answer": number // 2},
    }  # fmt: skip


def fuzzed(job: Job) -> dict[str, Any]:
    _, target, _, number, *_ = job.command
    row = {
        "executions": int(number), "features": 123, "corpus": 77, "coverage": 55, "crash": None, "longest": 40
    }  # fmt: skip
    return {"executions": int(number), "engine": "atheris", "guided": True, "targets": {target: row}}


def fuzz_planted(job: Job) -> dict[str, Any]:
    row = {"executions": 17, "features": 12, "corpus": 7, "coverage": 5, "crash": "00", "longest": 40}
    bugs = {"key": {**row, "bug": "a key may hold a comma"}, "scope": {**row, "bug": "nobody is somebody"}}
    return {"executions": 34, "engine": "atheris", "guided": True, "targets": bugs}


COUNTS = {
    "simulate": simulated, "simulate-operations": simulated, "simulate-callbacks": simulated_callbacks,
    "search": searched, "planted": planted, "coverage": covered, **dict.fromkeys(CRASHES, crashed),
    "linearize": linearized, "fuzz": fuzzed, "fuzz-planted": fuzz_planted,
}  # fmt: skip


def stored(
    job: Job,
    counts: Mapping[str, Any],
    violations: Sequence[str] = (),
    *,
    at: Environment = AT,
    began: str = "2026-11-16T10:00:00+00:00",
) -> StoredReport:
    return StoredReport(
        job.command, at, Report("tool", {}, counts, violations, 60.0, began, "CPython 3.11.7", "0.1.0")
    )


def everything(size: float = 1.0) -> dict[str, Part]:
    """All jobs of a size, all passed."""
    return {
        part.name: Part(jobs, [stored(job, COUNTS[part.name](job)) for job in jobs])
        for part in PARTS
        for jobs in [part.plan(size)]
    }


def without(parts: dict[str, Part], name: str, left: int) -> dict[str, Part]:
    """So that only so many jobs of this part have a report."""
    part = parts[name]
    found = [one if turn < left else None for turn, one in enumerate(part.found)]
    return {**parts, name: part._replace(found=found)}


def instead(parts: dict[str, Part], name: str, **changes: Any) -> dict[str, Part]:
    """So that the first report of this part is otherwise."""
    part = parts[name]
    return {
        **parts,
        name: part._replace(
            found=[stored(part.jobs[0], COUNTS[name](part.jobs[0]), **changes), *part.found[1:]]
        ),
    }
