"""The command.

    python -m retrysafe.testing.linearize --histories 100000 --seed 1 --json build/linearize.json
    python -m retrysafe.testing.linearize histories.jsonl …

The first checks the checker: it generates histories, half of them good and half of them bad by one
mutation, and every verdict must be right.  Each has a number, beginning with the seed, which makes the same
history again.  The second checks histories that were recorded elsewhere.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from retrysafe.testing.linearize import files
from retrysafe.testing.linearize.decide import MODES, Mode, is_linearizable
from retrysafe.testing.linearize.explain import check, timeline
from retrysafe.testing.linearize.generate import good
from retrysafe.testing.linearize.history import History
from retrysafe.testing.linearize.mutate import bad
from retrysafe.testing.report import Report, Stopwatch

_MAX_PRINTED = 20
"""Violations that are printed in full: more than that have one cause."""


def generated(number: int) -> tuple[History, Mode, str | None]:
    """The history of this number; if it is bad, by which mutation."""
    random = Random(number)
    mode = MODES[number % 3]
    # One in twenty is as long as those of a crash run.
    history = good(random, mode, 6 if random.random() < 0.95 else 30)
    if number // 3 % 2 == 0:
        return history, mode, None
    mutated, mutation = bad(random, history, mode)
    return mutated, mode, mutation.__name__


def try_generated(first: int, histories: int) -> tuple[dict[str, Any], list[str]]:
    """Counts and violations."""
    accepted = rejected = operations = longest = 0
    received: Counter[str] = Counter()
    modes: Counter[str] = Counter()
    mutations: Counter[str] = Counter()
    violations: list[str] = []
    for number in _shown(range(first, first + histories), histories):
        history, mode, mutation = generated(number)
        possible = is_linearizable(history, mode)
        if possible != (mutation is None):
            violations.append(_wrong(number, history, mode, mutation))
        accepted += possible
        rejected += not possible
        operations += len(history)
        longest = max(longest, len(history))
        modes[mode] += 1
        received.update([operation.received for operation in history])
        if mutation is not None:
            mutations[mutation] += 1
    counts = {
        "histories": histories,
        "accepted": accepted,
        "rejected": rejected,
        "operations": operations,
        "longest": longest,
        "modes": dict(modes.most_common()),
        "received": dict(received.most_common()),
        "mutations": dict(mutations.most_common()),
    }
    return counts, violations


def _wrong(number: int, history: History, mode: Mode, mutation: str | None) -> str:
    if mutation is None:
        return f"history {number} is good, and was rejected:\n{check(history, mode=mode)}"
    drawn = "\n".join(timeline(history))
    return f'history {number} is bad ({mutation}, mode "{mode}"), and was accepted:\n{drawn}'


def try_files(paths: Sequence[Path], mode: Mode) -> tuple[dict[str, Any], list[str]]:
    """Counts and violations.  `ValueError` if a line is not a history."""
    counts = {"files": len(paths), "histories": 0, "operations": 0, "rejected": 0}
    violations: list[str] = []
    for file in paths:
        before = counts["histories"]
        with file.open(encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                if not line.strip():
                    continue
                try:
                    name, chosen, history = files.load(line, mode)
                    why = check(history, mode=chosen)
                except ValueError as error:
                    raise ValueError(f"{file}, line {number}: {error}") from error
                counts["histories"] += 1
                counts["operations"] += len(history)
                if why is not None:
                    counts["rejected"] += 1
                    violations.append(f"{file}, line {number} {name}\n{why}")
        if counts["histories"] == before:
            raise ValueError(f"{file}: the file has no history, so nothing was checked")
    return counts, violations


def _shown(numbers: Iterable[int], total: int) -> Iterator[int]:
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield from numbers
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("histories", total=total)
        for done, number in enumerate(numbers):
            yield number
            if done % 1000 == 999:
                progress.advance(task, 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m retrysafe.testing.linearize",
        description="Check histories of keys, recorded (FILE) or generated with known verdict (--histories).",
    )
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="*", help="histories, one JSON object a line"
    )
    parser.add_argument(
        "--mode", choices=MODES, help="of recorded histories without a mode of their own (default: hold)"
    )
    parser.add_argument("--histories", metavar="N", type=int, help="generate this many, half of them bad")
    parser.add_argument(
        "--seed", metavar="S", type=int, help="the number of the first that is generated (default: 1)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write a report to FILE")
    given = parser.parse_args(arguments)
    histories: int | None = given.histories
    if bool(given.files) == (histories is not None):
        parser.error("give either files or --histories")
    if given.files and given.seed is not None:
        parser.error("--seed can be combined with --histories only")
    if histories is not None and given.mode is not None:
        parser.error("--mode can be combined with files only: generated histories are of all modes")
    if histories is not None and histories < 1:
        parser.error(f"--histories must be 1 or more, got {histories}")

    stopwatch = Stopwatch()
    asked: dict[str, Any]
    if histories is None:
        asked = {"files": [str(file) for file in given.files], "mode": given.mode or "hold"}
        try:
            counts, violations = try_files(given.files, given.mode or "hold")
        except (OSError, ValueError) as error:
            parser.error(str(error))
    else:
        first = 1 if given.seed is None else given.seed
        asked = {"histories": histories, "seed": first}
        counts, violations = try_generated(first, histories)
    report = stopwatch.report("linearize", asked, counts, violations)
    if given.json is not None:
        report.write(given.json)
    sys.stdout.write(_summary(report))
    return 0 if report.passed else 1


def _summary(report: Report) -> str:
    counts = report.counts
    printed = [f"{violation}\n\n" for violation in report.violations[:_MAX_PRINTED]]
    if len(report.violations) > _MAX_PRINTED:
        printed.append(f"… and {len(report.violations) - _MAX_PRINTED} more\n\n")
    verdict = "no violation" if report.passed else f"{len(report.violations)} VIOLATIONS"
    printed.append(
        f"{counts['histories']} histories of {counts['operations']} operations checked in "
        f"{report.seconds:g} s, {counts['rejected']} of them not linearizable: {verdict}\n"
    )
    return "".join(printed)


if __name__ == "__main__":
    sys.exit(main())
