"""The command line of the simulator.

python -m retrysafe.testing.simulate --schedules 100000     random schedules, by seed
python -m retrysafe.testing.simulate --door operation       the same of operations, nested ones included
python -m retrysafe.testing.simulate --door callback        the same of callbacks, with senders and workers
python -m retrysafe.testing.simulate --search               every schedule within a bound
python -m retrysafe.testing.simulate --show 4711            what happens in one schedule
"""

import argparse
import gc
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from retrysafe.testing.report import Report, Stopwatch
from retrysafe.testing.simulate import story
from retrysafe.testing.simulate.callbacks import (
    CALLBACKS,
    CallbackBroken,
    CallbackSetting,
    CallbackSimulation,
    CallbackWalk,
)
from retrysafe.testing.simulate.run import Broken, Simulation
from retrysafe.testing.simulate.search import Bound, Refuted, search
from retrysafe.testing.simulate.setting import HOLDING, NESTED, OPERATIONS, RETRYING, SETTINGS, TX, Setting
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.stage import Stage
from retrysafe.testing.simulate.walk import Walk
from retrysafe.testing.simulate.world import quiet

T = TypeVar("T")

BOUNDS: dict[str, tuple[Bound, tuple[Setting, ...]]] = {
    "small": (Bound(), (HOLDING[0], RETRYING[0], TX)),
    "full": (Bound(lost_requests=1), SETTINGS),
    "cancelled": (Bound(crashes=0, cancellations=1), SETTINGS),
    "batched": (
        Bound(crashes=0, lapses=0, batches=True, identities=(0, 1, 0)),
        (HOLDING[0], RETRYING[0], TX),
    ),
}
"""What is searched: one thing more that may happen is ten times as many schedules."""

_TWO = Bound(2, identities=(0, 1))
"""Two calls with keys of their own, which share a part where they have one."""

BOUNDS_OF_OPERATIONS: dict[str, tuple[Bound, tuple[Setting, ...]]] = {
    "small": (_TWO._replace(lost_replies=0), (OPERATIONS[0], NESTED)),
    "full": (_TWO, OPERATIONS),
    "cancelled": (_TWO._replace(crashes=0, cancellations=1), OPERATIONS),
}
"""The same of operations."""

Settings = tuple[Setting | CallbackSetting, ...]

DOORS: dict[str, tuple[Settings, dict[str, tuple[Bound, tuple[Setting, ...]]]]] = {
    "request": (SETTINGS, BOUNDS),
    "operation": (OPERATIONS, BOUNDS_OF_OPERATIONS),
    "callback": (CALLBACKS, {}),
}
"""What `--door` selects: settings, and what is searched."""

SCHEDULES = 10_000

MAX_VIOLATIONS = 10
"""Violations in one run, after which it ends: they mostly have one cause."""

INTERRUPTED = 130
"""What a shell reports for a command that Ctrl-C has ended."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m retrysafe.testing.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--schedules", type=_positive, help="how many (default: 10000)")
    parser.add_argument("--seed", type=int, help="of the first schedule (default: 0)")
    parser.add_argument("--store", choices=["memory", "sqlite"], help="(default: memory)")
    parser.add_argument("--door", choices=DOORS, help="through which calls come (default: request)")
    parser.add_argument("--setting", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--search", choices=BOUNDS, nargs="?", const="small", help="(default: small)")
    parser.add_argument("--show", type=int, metavar="SEED", help="show what happens in this schedule")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report to FILE")
    options = parser.parse_args(arguments)
    _check_options(parser, options)
    every, bounds = DOORS[options.door or "request"]
    settings = _settings(parser, options.setting, every)
    if options.search not in (None, *bounds):
        known = f"expected one of {', '.join(bounds)}" if bounds else "it has random schedules only"
        parser.error(f"--search {options.search} is not known of this door: {known}")
    store = options.store or "memory"
    gc.freeze()  # what is imported stays
    try:
        with quiet():
            if options.show is not None:
                return _show(_simulation(store, settings), options.show)
            if options.search:
                bound, searched = bounds[options.search]
                named = tuple(one for one in settings if isinstance(one, Setting))
                report = _search(options.search, bound, named if options.setting else searched)
            else:
                report = _walk(store, settings, options.seed or 0, options.schedules or SCHEDULES)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the end, so no report was written\n")
        return INTERRUPTED
    if options.json is not None:
        report.write(options.json)
    return int(not report.passed)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too small: expected at least one")
    return number


GOES_WITH = {
    "--show": {"store", "setting", "door"},
    "--search": {"setting", "json", "door"},
}
"""The options that may be combined with these; without them, all may."""


def _check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """No option is accepted and then ignored."""
    given = {name for name, value in vars(options).items() if value is not None and value is not False}
    for option, others in GOES_WITH.items():
        name = option.removeprefix("--")
        if name in given and (ignored := given - others - {name}):
            also = ", ".join(f"--{one}" for one in sorted(ignored))
            *first, last = (f"--{one}" for one in sorted(others))
            goes = f"{', '.join(first)} and {last}"
            parser.error(f"{option} can be combined with {goes} only, got also {also}: leave it out")


def _settings(parser: argparse.ArgumentParser, names: list[str] | None, every: Settings) -> Settings:
    known: dict[str, Setting | CallbackSetting] = {setting.name: setting for setting in every}
    for name in names or ():
        if name not in known:
            listed = "".join(f"\n  {one}" for one in known)
            parser.error(f"--setting {name!r} is not a setting: expected one of{listed}")
    return tuple(known[name] for name in dict.fromkeys(names)) if names else every


def _simulation(store: str, settings: Settings) -> Simulation | CallbackSimulation:
    opened = emptied if store == "sqlite" else None
    of_callbacks = tuple(one for one in settings if isinstance(one, CallbackSetting))
    if of_callbacks:
        return CallbackSimulation(opened, of_callbacks)
    return Simulation(opened, tuple(one for one in settings if isinstance(one, Setting)))


def _walk(store: str, settings: Settings, first: int, schedules: int) -> Report:
    watch = Stopwatch()
    simulation = _simulation(store, settings)
    violations: list[str] = []
    done = 0
    interruption: KeyboardInterrupt | None = None
    try:
        for seed in _progress(range(first, first + schedules), "schedules"):
            try:
                simulation.run(seed)
            except (Broken, CallbackBroken) as broken:
                violations.append(str(broken))
            done += 1
            if len(violations) >= MAX_VIOLATIONS:
                break
    except KeyboardInterrupt as interrupted:
        interruption = interrupted
    table = {name: seen.as_counts() for name, seen in simulation.seen.items()}
    counts: dict[str, Any] = {
        name: sum(row[name] for row in table.values()) for name in ("schedules", "actions", "histories")
    }
    last = first + done - 1
    asked = {"store": store, "first seed": first, "last seed": last, "schedules": schedules}
    missing = simulation.seen.not_exercised
    report = watch.report(
        "simulate", asked, {**counts, "settings": table, "not exercised": missing}, violations
    )
    rate = counts["schedules"] / max(report.seconds, 0.1)
    _print(
        f"{counts['schedules']:,} schedules of {counts['actions']:,} actions on the {store} store, "
        f"seeds {first} to {last}, {counts['histories']:,} histories checked: "
        f"{report.seconds} s, {rate:,.0f} per second"
    )
    if done < schedules:
        why = f"{len(violations)} violations are enough" if interruption is None else "it was interrupted"
        _print(f"{schedules:,} were asked for, but {why}.")
    for line in missing:
        _print(f"Not exercised: {line}")
    for violation in violations:
        _print(f"\nVIOLATION {violation}")
    if interruption is not None:
        raise interruption
    _print(_verdict(report))
    return report


def _search(name: str, bound: Bound, settings: tuple[Setting, ...]) -> Report:
    watch = Stopwatch()
    found: dict[str, Any] = {}
    violations: list[str] = []
    for setting in _progress(settings, "settings"):
        own, stage = Stopwatch(), Stage(setting)
        # A request that waits looks again repeatedly: three of them have too many orders.
        attempts = 2 if setting.in_flight == "wait" else bound.attempts
        try:
            schedules, states = search(stage, bound._replace(attempts=attempts))
        except Refuted as refuted:
            violation = f"{setting.name}: {refuted}\n\n{story.trace(stage, refuted.schedule).text}"
            violations.append(violation)
            _print(f"\nVIOLATION {violation}\n")
            continue
        seconds = own.report("search", {}, {}, []).seconds
        found[setting.name] = {
            "attempts": attempts, "states": states, "schedules": schedules, "seconds": seconds,
        }  # fmt: skip
        _print(f"{setting.name:35} {attempts} attempts, {states:9,} states, {schedules:12,} schedules")
    counts = {"bounds": {str(bound): {"settings": found}}}
    report = watch.report("search", {"bound": name, **bound._asdict()}, counts, violations)
    _print(_verdict(report))
    return report


def _show(simulation: Simulation | CallbackSimulation, seed: int) -> int:
    if isinstance(simulation, CallbackSimulation):
        return _show_callbacks(simulation, seed)
    stage = simulation.stage(seed)
    walk = Walk(stage)
    with suppress(Exception):  # it is shown below, where it happens
        walk.go(seed)
    shown = story.trace(stage, walk.taken)
    _print(f"seed {seed}, {stage.setting.name}:\n{shown.text}")
    return int(shown.violation is not None)


def _show_callbacks(simulation: CallbackSimulation, seed: int) -> int:
    stage = simulation.stage(seed)
    walk = CallbackWalk(stage)
    violation = ""
    try:
        walk.go(seed)
    except Exception as error:  # noqa: BLE001 - it is shown, whatever it is
        violation = f"\n  VIOLATION {error}"
    told = "\n  ".join([f"seed {seed}, {stage.setting.name}:", *walk.world.said])
    _print(f"{told}{violation}")
    return int(bool(violation))


def _verdict(report: Report) -> str:
    return "No promise was broken." if report.passed else f"\n{len(report.violations)} violations."


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _progress(items: Iterable[T], what: str) -> Iterable[T]:
    """Show a bar, on a terminal and if rich is installed."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), update_period=0.5)


if __name__ == "__main__":
    sys.exit(main())
