"""Puts the figures into tables for people, and into one document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import goals
from benchmarks.batches import Batches
from benchmarks.goals import GOALS, Goal
from benchmarks.growth import Growth
from benchmarks.overload import SATURATED as SERVER_SATURATED
from benchmarks.overload import Overload
from benchmarks.purge import PACE, Purge
from benchmarks.rounds import CONNECTIONS, CROWD, Measured, Spread, added, economy, throughput
from benchmarks.variants import VARIANTS, Variant

COMPANY = 0.10
"""Of a server's core, used by others: the system's own work stays below it."""

SATURATED = 0.95
"""A load generator that uses so much of its core may be what limits the server."""

LEGEND = (
    "[dim]by CPU: requests for the same processor time of the server, relative to the bare application of "
    "the same round, the median of all. rate: requests per second, likewise; other work on the machine "
    f"disturbs it far more. database: its processor time per request. errors: at {CROWD} connections.[/]"
)


def figures_of(results: Mapping[str, Measured]) -> dict[str, float]:
    """The figures that goals are about."""
    figures: dict[str, float] = {}
    for name, measured in results.items():
        baseline = results.get(measured.variant.baseline)
        if baseline is not None and baseline is not measured:
            figures[goals.ratio(name)] = economy(measured, baseline).median
        if (used := _database_seconds(measured)) is not None:
            figures[goals.database(name)] = used * 1e6
    for goal in GOALS:
        variant, _, rest = goal.figure.partition(": times ")
        if rest and variant in results and rest in results:
            figures[goal.figure] = economy(results[variant], results[rest]).median
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
            ("", "by CPU", "half of rounds", "goal", "", "added CPU", "rate", "database", "errors"),
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
            "",
            "",
            "",
            f"{Spread.of(sample.cpu for sample in measured.samples).median * 1e6:.0f} µs",
            f"{Spread.of(sample.per_second for sample in measured.samples).median:,.0f}/s",
            kept,
            crowd,
        ]
    goal = goals.goal_of(goals.ratio(measured.variant.name))
    return [
        measured.variant.label,
        f"{cpu.median:.1%}",
        f"{cpu.low:.0%} to {cpu.high:.0%}",
        bound(goal, percent=True) if goal else "",
        mark(goal.reached({goal.figure: cpu.median})) if goal else "",
        f"{more.median * 1e6:+.0f} µs",
        f"{rate.median:.1%}",
        kept,
        crowd,
    ]


def _database_seconds(measured: Measured) -> float | None:
    used = [sample.database_cpu for sample in measured.samples if sample.database_cpu is not None]
    return Spread.of(used).median if used else None


def _database(measured: Measured) -> str:
    used = _database_seconds(measured)
    return "" if used is None else f"{used * 1e6:.0f} µs"


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


def show_batches(console: Console, found: Sequence[Batches]) -> None:
    columns = ("commits/key", "operations/commit", "flushes/key", "log/key", "database", "opened")
    table = table_of("Batches: fresh keys, one worker", ("", *columns))
    for one in found:
        table.add_row(
            f"{one.store}, {one.connections} connection{'s' if one.connections > 1 else ''}"
            + (", all indexes" if one.indexes else ""),
            f"{one.commits_per_key:.2f}",
            f"{one.size:.1f}",
            "" if one.flushes is None else f"{one.flushes / one.keys:.2f}",
            "" if one.log_bytes is None else f"{one.log_bytes / one.keys / 1000:.1f} kB",
            "" if one.database_cpu is None else f"{one.database_cpu * 1e6:.0f} µs",
            "" if one.opened is None else str(one.opened),
        )
    console.print(table)
    console.print(
        "[dim]A fresh key is two operations. database: processor time of its server per key. opened: "
        "connections to it, in all. all indexes: with those of `retrysafe migrate --index`. SQLite "
        "flushes at each commit, and works in the server's own process. A commit of Valkey is what it reads "
        "at once from a connection.[/]"
    )


def show_growth(console: Console, growth: Growth) -> None:
    table = table_of(
        f"Growth: {growth.store}, one caller",
        ("", f"{growth.few:,}", f"{growth.records:,} records", "ratio", "goal", ""),
    )
    for name, pair, goal in (
        ("fresh key, p50", growth.fresh, goals.goal_of(goals.growth_fresh(growth.store))),
        ("fresh key, processor time", growth.fresh_cpu, None),
        ("replay, p50", growth.replay, goals.goal_of(goals.growth_replay(growth.store))),
        ("replay, processor time", growth.replay_cpu, None),
    ):
        table.add_row(
            name,
            f"{pair.few * 1e6:.0f} µs",
            f"{pair.many * 1e6:.0f} µs",
            f"{pair.ratio:.2f}",
            bound(goal, percent=False) if goal else "",
            mark(goal.reached(growth.figures())) if goal else "",
        )
    few, many = growth.memory.few / 1e6, growth.memory.many / 1e6
    table.add_row(
        "memory of a server process",
        f"{few:.1f} MB (empty)",
        f"{many:.1f} MB",
        f"{many - few:+.1f} MB",
        "",
        "",
    )
    console.print(table)


def show_purge(console: Console, found: Sequence[Purge]) -> None:
    columns = (
        "traffic",
        "half of turns",
        "goal",
        "",
        "removed",
        "asked for",
        "inserted",
        "by itself",
        "errors",
    )
    table = table_of(f"Purge under load, at {PACE:g} times the insert rate", ("", *columns))
    for one in found:
        goal = goals.goal_of(goals.purge_traffic(one.store))
        assert goal is not None
        table.add_row(
            f"{one.store}, {one.records:,} expired",
            f"{one.share.median:.0%}",
            f"{one.share.low:.0%} to {one.share.high:.0%}",
            bound(goal, percent=True),
            mark(goal.reached(one.figures())),
            f"{one.removed_per_second:,.0f}/s",
            f"{one.asked_per_second:,.0f}/s",
            f"{one.inserted_per_second:,.0f}/s",
            f"{one.removed_besides:,}",
            str(one.errors),
        )
    console.print(table)
    console.print(
        "[dim]traffic: fresh keys per second, relative to a store of the same size without expired records. "
        "by itself: records that the server removed as it worked; with that alone, traffic is "
        f"{', '.join(f'{one.share_cleanup.median:.0%} on {one.store}' for one in found)}.[/]"
    )


def show_overload(console: Console, found: Overload) -> None:
    table = table_of(
        f"Overload: PostgreSQL, {found.delay * 1000:.0f} ms per round trip, can take {found.capacity:.0f}/s "
        f"(closed loop, {found.connections} connections)",
        ("load", "offered", "succeeded", "goodput", "p50", "p99", "opened"),
    )
    for level in found.levels:
        table.add_row(
            f"{level.times:g} times",
            f"{level.offered_per_second:.0f}/s",
            f"{level.succeeded:,} of {level.offered:,} ({level.share:.0%})",
            f"{level.goodput:.0f}/s",
            f"{level.p50 * 1000:.0f} ms",
            f"{level.p99 * 1000:.0f} ms",
            str(level.connections_opened),
        )
    console.print(table)
    console.print(
        "[dim]opened: connections to PostgreSQL, in all. Goodput must not fall as the load rises.[/]"
    )
    for level in found.levels:
        failures = ", ".join(f"{count:,} {kind}" for kind, count in sorted(level.failures.items()))
        if failures:
            console.print(f"[dim]{level.times:g} times: {failures}.[/]")
        if level.server_share > SERVER_SATURATED:
            console.print(
                f"[yellow]The server used {level.server_share:.0%} of its core at {level.times:g} times the "
                "load: it was the limit, and not the store. Use --delay to make the store slower.[/]"
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
    return "share of" in goal.figure


def number(value: float, percent: bool) -> str:
    return f"{value:.1%}" if percent else f"{value:.4g}"


def bound(goal: Goal, percent: bool) -> str:
    sign, value = ("≥", goal.at_least) if goal.at_least is not None else ("≤", goal.at_most)
    assert value is not None
    return f"{sign} {value:.0%}" if percent else f"{sign} {value:g}"


def mark(reached: bool | None) -> str:
    return {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[reached]
