"""Statistics, drawn."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from retrysafe.cli.counting import (
    duplicate_rate,
    duplicates,
    last_without_key,
    place_text,
    redelivered,
    share_without_key,
    without_key,
)
from retrysafe.cli.format import (
    STANDINGS,
    STYLES,
    clean,
    relative,
    route_text,
    scope_text,
    short_duration,
    size_text,
    standing_text,
    timestamp,
)
from retrysafe.cli.render_tables import Column, table
from retrysafe.stores.admin import Calls, Place, Share, Source, Standing, Statistics

_SHARE_COLUMNS = (
    Column("RECORDS", right=True),
    Column("ABANDONED", right=True),
    Column("WAITING", right=True, rank=4),
    Column("IN PROGRESS", right=True, rank=2),
    Column("COMPLETED", right=True, rank=3),
    Column("FAILED", right=True),
    Column("BODIES", right=True, rank=1),
)


def render_stats(found: Statistics, completed: str = "completed") -> list[RenderableType]:
    parts: list[RenderableType] = [Text("Records", "bold"), _inset(_records(found, completed))]
    called = "Requests" if found.by_door.keys() <= {"request"} else "Calls"
    parts += ["", Text(called, "bold"), _inset(_calls(found, called.lower()))]
    if found.calls:
        parts += ["", _by_place(found.calls, found.now)]
    if found.by_door.keys() - {"request"}:
        parts += ["", _shares("BY DOOR", list(found.by_door.items()), completed)]
    if found.by_route:
        routes = [(route_text(*route), share) for route, share in found.by_route.items()]
        parts += ["", _shares("BY ROUTE", routes, completed)]
    if found.by_scope:
        scopes = [(scope_text(scope), share) for scope, share in found.by_scope.items()]
        parts += ["", _shares("BY SCOPE", scopes, completed)]
    if found.by_source:
        parts += ["", _sources(found.by_source)]
    return parts


def _records(found: Statistics, completed: str) -> Table:
    grid = _numbers()
    oldest: Mapping[Standing, float | None] = {
        "abandoned": found.oldest_abandoned,
        "in_progress": found.oldest_running,
    }
    for standing in STANDINGS:
        number = found.total.records.get(standing, 0)
        since = oldest.get(standing)
        remark = f"the oldest {relative(since, found.now)}, {timestamp(since)}" if since is not None else ""
        if standing == "waiting" and found.oldest_due is not None:
            remark = f"for a worker; the first due {relative(found.oldest_due, found.now)}"
        grid.add_row(
            Text(standing_text(standing, completed), STYLES[standing] if number else "dim"),
            f"{number:,}",
            Text(remark, "dim"),
        )
    grid.add_row(
        "total",
        f"{sum(found.total.records.values()):,}",
        Text(f"{size_text(found.total.size)} of bodies", "dim"),
    )
    backlog = "retrysafe purge removes them" if found.expired else ""
    grid.add_row(Text("expired", "" if found.expired else "dim"), f"{found.expired:,}", Text(backlog, "dim"))
    return grid


def _calls(found: Statistics, called: str) -> RenderableType:
    counted = sum(found.verdicts.values())
    if not counted:
        return Text("None counted yet: services write their counts every few seconds.", "dim")
    grid = _numbers()
    for verdict, number in sorted(found.verdicts.items(), key=lambda pair: -pair[1]):
        grid.add_row(clean(verdict), f"{number:,}", Text(f"{number / counted:.1%}", "dim"))
    since = f", since {timestamp(found.counted_since)}" if found.counted_since is not None else ""
    grid.add_row(Text("total", "bold"), f"{counted:,}", Text(f"counted by services{since}", "dim"))
    rate = duplicate_rate(found.verdicts) or 0.0
    grid.add_row(
        Text("duplicates", "bold"),
        f"{duplicates(found.verdicts):,}",
        Text(f"{rate:.1%} of {called} with a key", "bold"),
    )
    share = share_without_key(found.verdicts) or 0.0
    grid.add_row(
        Text("without a key", "bold"),
        f"{without_key(found.verdicts):,}",
        Text(f"{share:.1%} of all {called}", "bold"),
    )
    return grid


_PLACE_COLUMNS = (
    Column("CALLS OF", narrowest=20),
    Column("CALLS", right=True),
    Column("WITHOUT KEY", right=True),
    Column("SHARE", right=True, rank=2),
    Column("LAST ONE", right=True),
    Column("DUPLICATES", right=True, rank=1),
)


def _by_place(found: Mapping[Place, Calls], now: float) -> RenderableType:
    """How many calls had no key, and when the last of them was made."""
    rows: list[list[Text]] = []
    for place, calls in found.items():
        number, last = without_key(calls.verdicts), last_without_key(calls)
        style = STYLES["abandoned"] if number else "dim"
        rows.append(
            [
                Text(place_text(place)),
                Text(f"{sum(calls.verdicts.values()):,}"),
                Text(f"{number:,}", style),
                Text(f"{share_without_key(calls.verdicts) or 0.0:.1%}", style),
                Text("-" if last is None else f"{short_duration(now - last)} ago", style),
                Text(f"{duplicates(calls.verdicts):,}"),
            ]
        )
    return table(_PLACE_COLUMNS, rows)


def _shares(title: str, shares: Sequence[tuple[str, Share]], completed: str) -> RenderableType:
    columns = [
        column._replace(title=completed.upper()) if column.title == "COMPLETED" else column
        for column in _SHARE_COLUMNS
    ]
    rows = [[Text(name), *_share_cells(share)] for name, share in shares]
    return table((Column(title, narrowest=20), *columns), rows)


_SOURCE_COLUMNS = (
    Column("BY SOURCE", narrowest=12),
    Column("EVENTS", right=True),
    Column("DELIVERIES", right=True),
    Column("DUPLICATES", right=True),
    Column("RATE", right=True, rank=1),
    Column("HANDLED", right=True),
    Column("AVERAGE", right=True, rank=2),
    Column("LONGEST", right=True, rank=3),
)


def _sources(sources: Mapping[str, Source]) -> RenderableType:
    """Events of callbacks, and how long they took from their first delivery until they were handled."""
    rows = [
        [
            Text(clean(name)),
            Text(f"{source.events:,}"),
            Text(f"{source.deliveries:,}"),
            Text(f"{redelivered(source):,}"),
            Text(f"{redelivered(source) / source.deliveries:.1%}"),
            Text(f"{source.handled:,}"),
            Text("-" if source.seconds is None else _seconds(source.seconds)),
            Text("-" if source.longest is None else _seconds(source.longest)),
        ]
        for name, source in sources.items()
    ]
    return table(_SOURCE_COLUMNS, rows)


def _seconds(seconds: float) -> str:
    """Most events are handled in less than a second."""
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else short_duration(seconds)


def _share_cells(share: Share) -> list[Text]:
    counts = [
        Text(f"{number:,}", STYLES[standing] if number else "dim")
        for standing in STANDINGS
        for number in [share.records.get(standing, 0)]
    ]
    return [Text(f"{sum(share.records.values()):,}"), *counts, Text(size_text(share.size))]


def _numbers() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _inset(inside: RenderableType) -> Padding:
    return Padding(inside, (0, 0, 0, 2))
