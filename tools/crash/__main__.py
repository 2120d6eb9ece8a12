"""The command: see the package."""

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
from typing import Any

from retrysafe.testing.report import Report, Stopwatch
from tools.crash import run, targets
from tools.crash.modes import MODES
from tools.crash.rounds import Plan
from tools.crash.run import NAMES, Wish

LEAST_LEASE = 0.2
"""A keeper that renews at a third of it has to be quicker than the machine's scheduler."""

Told = tuple[Callable[[Plan], None], Callable[[Counter[str]], None]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    said = parser.parse_args(arguments)
    try:
        wish = _wish(said)
        target = run.check(wish)
    except targets.Unfit as reason:
        parser.error(str(reason))
    signal.signal(signal.SIGTERM, _as_if_interrupted)
    # That somebody has hung up on the proxy is no news here, where everybody does.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="retrysafe-crash-") as name:
        folder = Path(name)
        victim = target(folder)
        try:
            with _progress(wish) as (began, tell):
                tally = run.carry_out(wish, victim, folder, began, tell)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: everything that was started is ended\n")
            return 130
        finally:
            victim.close()
    report = watch.report("crash", wish._asdict(), tally.counts, tally.violations)
    sys.stdout.write(as_text(wish, report))
    if said.json is not None:
        report.write(said.json)
    return 0 if report.passed else 1


def _as_if_interrupted(_signal: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tools.crash",
        description="Kill, freeze and cut off the workers of a shop, and audit its books.",
    )
    parser.add_argument("store", choices=targets.names(), help="which store is attacked")
    parser.add_argument("--kills", type=_count, default=0, metavar="N", help="SIGKILL to a worker")
    parser.add_argument("--freezes", type=_count, default=0, metavar="N", help="SIGSTOP, beyond the lease")
    parser.add_argument("--cuts", type=_count, default=0, metavar="N", help="a connection to the database")
    parser.add_argument("--server-kills", type=_count, default=0, metavar="N", help="the database server")
    parser.add_argument("--mode", choices=MODES, help="one of them; by default they share the strokes")
    parser.add_argument("--way", help="how handlers reach the store; by default all ways in turn")
    parser.add_argument(
        "--seed", type=int, help="of the choices that are made here; the processes make theirs"
    )
    parser.add_argument("--workers", type=_several, default=4, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--customers", type=_several, default=12, metavar="N", help="at once (%(default)s)")
    parser.add_argument("--lease", type=_lease, default=0.5, metavar="SECONDS", help="(%(default)s)")
    parser.add_argument(
        "--pace", type=_pace, default=0.1, metavar="SECONDS", help="between strokes of a kind (%(default)s)"
    )
    parser.add_argument(
        "--successes",
        type=_count,
        metavar="N",
        help="keys that must be answered, or the run has failed, by each campaign its share; "
        "by default one for every two strokes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="leave a report there")
    return parser


def _wish(said: argparse.Namespace) -> Wish:
    return Wish(
        said.store,
        (said.mode,) if said.mode else tuple(targets.find(said.store).modes),
        (said.way,) if said.way else (),
        said.kills,
        said.freezes,
        said.cuts,
        said.server_kills,
        said.workers,
        said.customers,
        said.lease,
        said.pace,
        said.successes,
        seed=secrets.randbelow(2**32) if said.seed is None else said.seed,
    )


def _number(text: str, least: float, kind: type[int] | type[float]) -> Any:
    try:
        number = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not least <= number < 1e9:
        raise argparse.ArgumentTypeError(f"it is {text}: expected {least:g} or more")
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
def _progress(wish: Wish) -> Generator[Told]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield (lambda _: None), (lambda _: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        asked = {"kill": wish.kills, "stop": wish.freezes, "cut": wish.cuts, "server kill": wish.server_kills}
        bars = {kind: progress.add_task(NAMES[kind], total=times) for kind, times in asked.items() if times}

        def began(plan: Plan) -> None:
            progress.console.print(f"{wish.store}: mode {plan.mode}, {plan.way}")

        def tell(done: Counter[str]) -> None:
            for kind, bar in bars.items():
                progress.update(bar, completed=min(done[kind], asked[kind]))

        yield began, tell


def as_text(wish: Wish, report: Report) -> str:
    counts = report.counts
    strokes = ", ".join(f"{counts[name]} {name}" for name in NAMES.values() if counts[name])
    lines = [
        f"{wish.store}: {strokes} in {report.seconds:.0f} s (seed {wish.seed})",
        f"  {counts['requests']} requests, {counts['answered']} keys answered, "
        f"{counts['unknown']} of unknown outcome",
        f"  {counts['executions without excuse']} of {counts['executions outside']} executions outside had "
        f"no excuse",
        f"  {counts['audits']} audits, {counts['histories']} histories checked, "
        f"recovered within {counts['slowest recovery']} s",
        f"  campaigns: {_table(counts['campaigns'])}",
        f"  heard: {_table(counts['verdicts'])}",
        f"  fell: {_table(counts['places'])}",
        f"  never reached: {_never(counts['named places'])}",
        *(f"  WRONG {wrong}" for wrong in report.violations),
        "  nothing is wrong" if report.passed else f"  {len(report.violations)} things are wrong",
    ]
    return "\n".join(lines) + "\n"


def _never(places: dict[str, int]) -> str:
    return "; ".join(place for place, times in places.items() if not times) or "none of the named places"


def _table(counts: dict[str, int]) -> str:
    return "; ".join(f"{name} {times}" for name, times in counts.items())


if __name__ == "__main__":
    sys.exit(main())
