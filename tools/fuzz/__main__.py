"""The command.

    python -m tools.fuzz --executions 1000000 --seed 1 --json build/fuzz.json     # all targets, equal shares
    python -m tools.fuzz key codec --executions 200000
    python -m tools.fuzz --planted                # does it find the bugs that were put there?

The engine is atheris (libFuzzer), guided by the coverage of the product; `make .venv/.fuzz` installs it.
Where it is missing, inputs are changed at random and without guidance, and a message says so.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retrysafe.testing.report import Report, Stopwatch
from tools.fuzz.planted import PLANTED
from tools.fuzz.running import ENGINES, Engine, Outcome, run
from tools.fuzz.targets import LONGEST

_MISSING = (
    "atheris is not installed, so inputs are changed at random, without guidance by coverage; to have it: "
    "make .venv/.fuzz\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description="Fuzz what reads hostile input."
    )
    parser.add_argument("targets", metavar="TARGET", nargs="*", help=f"of {', '.join(LONGEST)} (all)")
    parser.add_argument(
        "--executions",
        metavar="N",
        type=int,
        default=220_000,
        help="in all targets together (%(default)s)",
    )
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="of the engine's dice (%(default)s)")
    parser.add_argument("--engine", choices=ENGINES, help="atheris if it is installed, else random")
    parser.add_argument("--planted", action="store_true", help="plant a bug in each target, to be found")
    parser.add_argument("--json", metavar="FILE", type=Path, help="leave a report here")
    given = parser.parse_args(arguments)
    targets: list[str] = list(dict.fromkeys(given.targets)) or list(LONGEST)
    if unknown := [target for target in targets if target not in LONGEST]:
        parser.error(f"no target {', '.join(unknown)}: there are {', '.join(LONGEST)}")
    if given.executions < len(targets):
        parser.error(f"--executions {given.executions}: at least one for each of {len(targets)} targets")
    installed = find_spec("atheris") is not None
    if given.engine == "atheris" and not installed:
        parser.error(_MISSING.strip())
    engine: Engine = given.engine or ("atheris" if installed else "random")
    if engine == "random" and given.engine is None:
        sys.stderr.write(_MISSING)

    stopwatch = Stopwatch()
    outcomes: list[Outcome] = []
    for number, target in enumerate(targets):
        share = given.executions // len(targets) + (number < given.executions % len(targets))
        outcome = run(target, engine, executions=share, seed=given.seed, planted=given.planted)
        outcomes.append(outcome)
        sys.stdout.write(_line(outcome, planted=given.planted))
        sys.stdout.flush()
    report = stopwatch.report(
        "fuzz",
        {
            "targets": targets,
            "executions": given.executions,
            "seed": given.seed,
            "engine": engine,
            "planted": given.planted,
        },
        _counts(outcomes, engine, planted=given.planted),
        [violation for outcome in outcomes if (violation := _violation(outcome, given.planted, given.seed))],
    )
    if given.json is not None:
        report.write(given.json)
    sys.stdout.write(_summary(report, outcomes, planted=given.planted))
    return 0 if report.passed else 1


def _counts(outcomes: Sequence[Outcome], engine: Engine, *, planted: bool) -> dict[str, Any]:
    return {
        "executions": sum(outcome.executions for outcome in outcomes),
        "crashes": sum(outcome.input is not None for outcome in outcomes),
        "engine": engine,
        "guided": engine == "atheris",
        "targets": {
            outcome.target: {
                "executions": outcome.executions,
                "per_second": round(outcome.executions / outcome.seconds),
                "seconds": round(outcome.seconds, 1),
                "processor_seconds": round(outcome.processor, 1),
                "coverage": outcome.coverage,
                "features": outcome.features,
                "corpus": outcome.corpus,
                "longest": LONGEST[outcome.target],
                "crash": None if outcome.input is None else outcome.input.hex(),
                **({"bug": PLANTED[outcome.target][0]} if planted else {}),
            }
            for outcome in outcomes
        },
    }


def _violation(outcome: Outcome, planted: bool, seed: int) -> str | None:
    again = f"python -m tools.fuzz {outcome.target} --seed {seed}"
    if outcome.failure is not None:
        return f"{outcome.target}: the fuzzer itself failed: {outcome.failure}"
    if planted:
        found = outcome.input is not None
        return None if found else f"{outcome.target}: the planted bug was not found ({again} --planted)"
    if outcome.input is None:
        return None
    return f"{outcome.target}: {outcome.said} with the input {outcome.input.hex()} ({again})"


def _line(outcome: Outcome, *, planted: bool) -> str:
    pace = f"{outcome.executions:>11,} executions, {outcome.executions / outcome.seconds:>7,.0f} per second"
    if outcome.failure is not None:
        found = "FAILED"
    elif planted:
        found = f"found its bug: {outcome.said}" if outcome.input is not None else "DID NOT FIND ITS BUG"
    elif outcome.input is not None:
        found = f"CRASHED on {outcome.input.hex()}"
    else:
        found = f"{outcome.features} features" if outcome.features is not None else "no crash"
    return f"{outcome.target:<12}{pace}, {found}\n"


def _summary(report: Report, outcomes: Sequence[Outcome], *, planted: bool) -> str:
    lines = [f"\n{violation}\n" for violation in report.violations]
    crashes = sum(outcome.input is not None for outcome in outcomes)
    what = f"{crashes} of {len(outcomes)} planted bugs found" if planted else f"{crashes} crashes"
    lines.append(
        f"{report.counts['executions']:,} executions of {len(outcomes)} targets by {report.asked['engine']} "
        f"in {report.seconds:g} s: {what}\n"
    )
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
