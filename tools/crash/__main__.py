"""The command: see the docstring of the package."""

import argparse
import contextlib
import logging
import secrets
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, get_args

from retrysafe.testing.report import Report, Stopwatch
from tools.crash import run, targets
from tools.crash.modes import INBOX, MODES, NESTED, PAYLOAD, Door
from tools.crash.rounds import Plan
from tools.crash.run import NAMES, Options

LEAST_LEASE = 0.2
"""Leases are renewed at a third of it, which has to be longer than what the machine's scheduler takes."""

Progress = tuple[Callable[[Plan], None], Callable[[Counter[str]], None]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        options = _options(given)
        kind = run.check(options)
    except targets.Unsupported as reason:
        parser.error(str(reason))
    signal.signal(signal.SIGTERM, _as_if_interrupted)
    # Connections to the proxy that break are expected here.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="retrysafe-crash-") as name:
        folder = Path(name)
        target = kind(folder)
        try:
            with _progress(options) as (began, progress):
                outcome = run.execute(options, target, folder, began, progress)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: all processes that were started have ended\n")
            return 130
        finally:
            target.close()
    report = watch.report("crash", options._asdict(), outcome.counts, outcome.violations)
    sys.stdout.write(as_text(options, report))
    if given.json is not None:
        report.write(given.json)
    return 0 if report.passed else 1


def _as_if_interrupted(_signal: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tools.crash",
        description="Kill, freeze and cut off the workers of an application, and audit its database.",
    )
    parser.add_argument("store", choices=targets.names(), help="which store is tested")
    parser.add_argument("--kills", type=_count, default=0, metavar="N", help="SIGKILL to a worker")
    parser.add_argument("--freezes", type=_count, default=0, metavar="N", help="SIGSTOP, beyond the lease")
    parser.add_argument("--cuts", type=_count, default=0, metavar="N", help="a connection to the database")
    parser.add_argument("--server-kills", type=_count, default=0, metavar="N", help="the database server")
    parser.add_argument(
        "--outages",
        type=_count,
        default=0,
        metavar="N",
        help="of the database, beyond the lease",
    )
    parser.add_argument(
        "--door",
        choices=get_args(Door),
        default="request",
        help="how orders come in (%(default)s)",
    )
    parser.add_argument(
        "--mode",
        choices=[*MODES, NESTED, PAYLOAD, INBOX],
        help=f"one of them; by default they share the faults; {NESTED} of operations only, {PAYLOAD} and "
        f"{INBOX} of callbacks only",
    )
    parser.add_argument("--way", help="how handlers reach the store; by default all ways in turn")
    parser.add_argument(
        "--seed", type=int, help="of the choices that are made here; the processes make theirs"
    )
    parser.add_argument("--workers", type=_several, default=4, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--clients", type=_several, default=12, metavar="N", help="at once (%(default)s)")
    parser.add_argument("--lease", type=_lease, default=0.5, metavar="SECONDS", help="(%(default)s)")
    parser.add_argument(
        "--pace", type=_pace, default=0.1, metavar="SECONDS", help="between faults of a kind (%(default)s)"
    )
    parser.add_argument(
        "--successes",
        type=_count,
        metavar="N",
        help="keys that must get a response, or the run has failed, by each round its share; "
        "by default one for every two faults",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report to FILE")
    return parser


def _options(given: argparse.Namespace) -> Options:
    return Options(
        given.store,
        (given.mode,) if given.mode else run.modes_of(targets.find(given.store), given.door),
        (given.way,) if given.way else (),
        given.kills,
        given.freezes,
        given.cuts,
        given.server_kills,
        given.outages,
        given.workers,
        given.clients,
        given.lease,
        given.pace,
        given.successes,
        seed=secrets.randbelow(2**32) if given.seed is None else given.seed,
        door=given.door,
    )


def _number(text: str, least: float, kind: type[int] | type[float]) -> Any:
    try:
        number = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not least <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is too small: expected {least:g} or more")
    return number


def _count(text: str) -> int:
    return int(_number(text, 0, int))


def _several(text: str) -> int:
    return int(_number(text, 2, int))


def _lease(text: str) -> float:
    return float(_number(text, LEAST_LEASE, float))


def _pace(text: str) -> float:
    return float(_number(text, 0, float))


@contextlib.contextmanager
def _progress(options: Options) -> Generator[Progress]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield (lambda _: None), (lambda _: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        asked = {
            "kill": options.kills,
            "stop": options.freezes,
            "cut": options.cuts,
            "server kill": options.server_kills,
            "outage": options.outages,
        }
        bars = {kind: progress.add_task(NAMES[kind], total=times) for kind, times in asked.items() if times}

        def began(plan: Plan) -> None:
            progress.console.print(f"{options.store}: {plan.door}s, mode {plan.mode}, {plan.way}")

        def progress_of(done: Counter[str]) -> None:
            for kind, bar in bars.items():
                progress.update(bar, completed=min(done[kind], asked[kind]))

        yield began, progress_of


def as_text(options: Options, report: Report) -> str:
    counts = report.counts
    sent, settled = ("requests", "keys got a response")
    if options.door == "callback":
        sent, settled = ("deliveries", "events were acknowledged")
    faults = ", ".join(f"{counts[name]} {name}" for name in NAMES.values() if counts[name])
    lines = [
        f"{options.store}, {options.door}s: {faults} in {report.seconds:.0f} s (seed {options.seed})",
        f"  {counts['requests']} {sent}, {counts['answered']} {settled}, "
        f"{counts['unknown']} of unknown outcome",
        f"  {counts['executions without excuse']} of {counts['executions outside']} executions outside had "
        f"no excuse",
        f"  {counts['audits']} audits, {counts['histories']} histories checked, "
        f"recovered within {counts['slowest recovery']} s",
        f"  rounds: {_table(counts['rounds'])}",
        f"  responses: {_table(counts['verdicts'])}",
        f"  faults: {_table(counts['places'])}",
        f"  never reached: {_never(counts['named places'])}",
        *(f"  VIOLATION {violation}" for violation in report.violations),
        "  no violation" if report.passed else f"  {len(report.violations)} violations",
    ]
    return "\n".join(lines) + "\n"


def _never(places: dict[str, int]) -> str:
    return "; ".join(place for place, times in places.items() if not times) or "none of the named places"


def _table(counts: dict[str, int]) -> str:
    return "; ".join(f"{name} {times}" for name, times in counts.items())


if __name__ == "__main__":
    sys.exit(main())
