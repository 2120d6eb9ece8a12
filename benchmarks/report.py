"""Puts the figures into tables for people, and into one document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import goals
from benchmarks.goals import GOALS, Goal
from benchmarks.growth import FEW, Growth
from benchmarks.rounds import CONNECTIONS, CROWD, Measured, Spread, added, economy, throughput
from benchmarks.variants import VARIANTS, Variant

COMPANY = 0.10
"""Of a server's core, used by others: the system's own work stays below it."""

SATURATED = 0.95
"""A load generator that uses so much of its core may be what limits the server."""

LEGEND = (
    "[dim]rate: requests per second relative to the bare application of the same round, the median of all. "
    "by CPU: the same by the server's processor time per request, which other work on the machine disturbs "
    f"far less. database: its processor time per request. errors: at {CROWD} connections.[/]"
)


def figures_of(results: Mapping[str, Measured]) -> dict[str, float]:
    """The figures that goals are about."""
    figures: dict[str, float] = {}
    for name, measured in results.items():
        baseline = results.get(measured.variant.baseline)
        if baseline is not None and baseline is not measured:
            figures[goals.ratio(name)] = throughput(measured, baseline).median
    for goal in GOALS:
        variant, _, rest = goal.figure.partition(": times ")
        if rest and variant in results and rest in results:
            figures[goal.figure] = throughput(results[variant], results[rest]).median
    ours = [measured for measured in results.values() if not measured.variant.rival]
    if ours:
        figures[goals.CROWD_ERRORS] = sum(measured.crowd_errors for measured in ours)
    return figures


def document_of(results: Mapping[str, Measured]) -> dict[str, Any]:
    """Everything about the servers, for a program."""
    document: dict[str, Any] = {}
    for name, measured in results.items():
        baseline = results[measured.variant.baseline]
        document[name] = {
            "label": measured.variant.label,
            "group": measured.variant.group,
            "baseline": measured.variant.baseline,
            "rival": measured.variant.rival,
            "throughput_ratio": asdict(throughput(measured, baseline)),
            "cpu_ratio": asdict(economy(measured, baseline)),
            "added_cpu_seconds": asdict(added(measured, baseline)),
            "samples": [asdict(sample) for sample in measured.samples],
            "errors": measured.errors,
            "errors_at_128_connections": measured.crowd_errors,
            "requests_at_128_connections": measured.crowd_requests,
            "kinds_of_errors": sorted(measured.kinds),
        }
    return document


def show_servers(
    console: Console, results: Mapping[str, Measured], absent: Sequence[tuple[Variant, list[str]]]
) -> None:
    names = [variant.name for variant, _ in absent]
    groups = dict.fromkeys(v.group for v in VARIANTS if v.name in results or v.name in names)
    for group in groups:
        table = table_of(
            f"{group}, one worker, {CONNECTIONS} connections",
            ("", "rate", "half of rounds", "goal", "", "by CPU", "added CPU", "database", "errors"),
        )
        for variant in VARIANTS:
            if variant.group != group:
                continue
            if variant.name in results:
                table.add_row(*_row(results, results[variant.name]), style="dim" if variant.rival else "")
            else:
                missing = next((missing for absentee, missing in absent if absentee == variant), None)
                if missing:
                    table.add_row(variant.label, "not", "installed", style="dim")
        console.print(table)
    console.print(LEGEND)
    for remark in dict.fromkeys(m.variant.remark for m in results.values() if m.variant.remark):
        console.print(remark)
    for variant, missing in absent:
        console.print(f"{variant.name} was not measured, because {' and '.join(missing)} is missing.")
    for text in [*disturbances(results), *_saturations(results)]:
        console.print(f"[yellow]{text}[/]")


def table_of(title: str, columns: Sequence[str]) -> Table:
    """A table with a first column of words and then figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table


def _row(results: Mapping[str, Measured], measured: Measured) -> list[str]:
    baseline = results[measured.variant.baseline]
    rate, cpu, more = throughput(measured, baseline), economy(measured, baseline), added(measured, baseline)
    crowd, kept = str(measured.crowd_errors), _database(measured)
    if measured is baseline:
        return [
            measured.variant.label,
            "100%",
            f"{Spread.of(sample.per_second for sample in measured.samples).median:,.0f}/s",
            "",
            "",
            "100%",
            f"{Spread.of(sample.cpu for sample in measured.samples).median * 1e6:.0f} µs",
            kept,
            crowd,
        ]
    goal = goals.goal_of(goals.ratio(measured.variant.name))
    return [
        measured.variant.label,
        f"{rate.median:.1%}",
        f"{rate.low:.0%} to {rate.high:.0%}",
        bound(goal, percent=True) if goal else "",
        mark(goal.reached({goal.figure: rate.median})) if goal else "",
        f"{cpu.median:.1%}",
        f"{more.median * 1e6:+.0f} µs",
        kept,
        crowd,
    ]


def _database(measured: Measured) -> str:
    used = [sample.database_cpu for sample in measured.samples if sample.database_cpu is not None]
    return f"{Spread.of(used).median * 1e6:.0f} µs" if used else ""


def disturbances(results: Mapping[str, Measured]) -> list[str]:
    """How others were at work on this machine, and took their share of what was measured."""
    texts: list[str] = []
    for name in dict.fromkeys(measured.variant.baseline for measured in results.values()):
        share = Spread.of(sample.company_share for sample in results[name].samples).median
        if share > COMPANY:
            texts.append(
                f"Others used {share:.0%} of the core in the turns of {name}: go by the CPU time, not by the "
                "rate, or run this again when the machine is quiet."
            )
    return texts


def _saturations(results: Mapping[str, Measured]) -> list[str]:
    """Where the load generator may have been the limit, or the database that has the same core."""
    texts: list[str] = []
    for name, measured in results.items():
        share = Spread.of(sample.client_share + sample.database_share for sample in measured.samples).median
        if share > SATURATED:
            who = (
                "The database and the load generator"
                if measured.variant.server.database
                else "The load generator"
            )
            texts.append(f"{who} used {share:.0%} of a core: {name} may be faster than this figure.")
    return texts


def show_growth(console: Console, growth: Growth) -> None:
    table = table_of("Growth: SQLite, one caller", ("", f"{FEW:,}", f"{growth.records:,} records", "ratio"))
    for name, latency in (
        ("reserve, p50", growth.reserve),
        ("finish, p50", growth.finish),
        ("both: a fresh key, p50", growth.whole),
        ("a replay, p50", growth.replay),
    ):
        table.add_row(
            name, f"{latency.few * 1e6:.0f} µs", f"{latency.many * 1e6:.0f} µs", f"{latency.ratio:.2f}"
        )
    few, many = growth.memory_few / 1e6, growth.memory_many / 1e6
    table.add_row(
        "memory of a server process", f"{few:.1f} MB (empty)", f"{many:.1f} MB", f"{many - few:+.1f} MB"
    )
    console.print(table)
    if growth.purge is None:
        console.print("The purge was not measured: this store has no open_admin().")
        return
    purge = growth.purge
    console.print(
        f"While another process purges {growth.records:,} expired records, traffic keeps "
        f"{purge.kept.median:.0%} (half of the turns: {purge.kept.low:.0%} to {purge.kept.high:.0%}); "
        f"{purge.per_second:,.0f} records a second are removed, {purge.removed:,} in all"
        f"{', and then it was done' if purge.finished else ' in the time that was given'}; "
        f"{purge.errors} errors. The server itself removed {purge.removed_besides:,} besides, as it worked; "
        f"with that alone traffic keeps {purge.kept_tidying.median:.0%}."
    )


def show_goals(console: Console, figures: Mapping[str, float], *, disturbed: bool) -> None:
    title = "Goals, on a machine that was busy with other things: no verdict" if disturbed else "Goals"
    table = table_of(title, ("figure", "measured", "goal", ""))
    for goal in GOALS:
        if goal.figure in figures:
            percent = _is_share(goal)
            shown = number(figures[goal.figure], percent)
            table.add_row(goal.figure, shown, bound(goal, percent), mark(goal.reached(figures)))
    if table.row_count:
        console.print(table)
    unknown = [goal.figure for goal in GOALS if goal.figure not in figures]
    if unknown:
        console.print(f"[dim]{len(unknown)} of {len(GOALS)} goals were not measured in this run.[/]")


def _is_share(goal: Goal) -> bool:
    return "share of" in goal.figure or goal.figure == goals.PURGE_TRAFFIC


def number(value: float, percent: bool) -> str:
    return f"{value:.1%}" if percent else f"{value:.4g}"


def bound(goal: Goal, percent: bool) -> str:
    sign, value = ("≥", goal.at_least) if goal.at_least is not None else ("≤", goal.at_most)
    assert value is not None
    return f"{sign} {value:.0%}" if percent else f"{sign} {value:g}"


def mark(reached: bool | None) -> str:
    return {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[reached]
