"""The page of figures: what `retrysafe stats` prints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.utils.http import urlencode

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
    clean,
    relative,
    route_text,
    scope_text,
    short_duration,
    size_text,
    standing_text,
    timestamp,
)
from retrysafe.cli.redaction import redacted_scope
from retrysafe.stores.admin import Share, Source, Standing, Statistics


class Number(NamedTuple):
    name: str
    number: int
    remark: str
    url: str = ""
    style: str = ""

    @property
    def shown(self) -> str:
        return f"{self.number:,}"


class Row(NamedTuple):
    name: str
    cells: Sequence[str]
    url: str = ""
    is_marked: bool = False


class Table(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    remark: str = ""


class Figures(NamedTuple):
    records: Sequence[Number]
    calls: Sequence[Number]
    called: str
    tables: Sequence[Table]


def figures(found: Statistics, list_url: str, completed: str) -> Figures:
    called = "requests" if found.by_door.keys() <= {"request"} else "calls"
    tables = [
        _by_place(found),
        _shares("By door", _doors(found, list_url), completed),
        _shares("By route", _routes(found, list_url), completed),
        _shares("By scope", _scopes(found, list_url), completed),
        _sources(found.by_source),
    ]
    return Figures(
        _records(found, list_url, completed),
        _calls(found, called),
        called,
        [table for table in tables if table.rows],
    )


def _records(found: Statistics, list_url: str, completed: str) -> list[Number]:
    oldest: Mapping[Standing, float | None] = {
        "abandoned": found.oldest_abandoned,
        "in_progress": found.oldest_running,
    }
    numbers: list[Number] = []
    for standing in STANDINGS:
        since = oldest.get(standing)
        remark = f"the oldest {relative(since, found.now)}, {timestamp(since)}" if since is not None else ""
        if standing == "waiting" and found.oldest_due is not None:
            remark = f"for a worker; the first due {relative(found.oldest_due, found.now)}"
        url = f"{list_url}?{urlencode({'standing': standing})}"
        number = found.total.records.get(standing, 0)
        numbers.append(
            Number(standing_text(standing, completed), number, remark, url, standing.replace("_", "-"))
        )
    total = Number(
        "total", sum(found.total.records.values()), f"{size_text(found.total.size)} of bodies", list_url
    )
    backlog = "removed by the next cleanup" if found.expired else ""
    expired = Number("expired", found.expired, backlog, f"{list_url}?{urlencode({'standing': 'expired'})}")
    return [*numbers, total, expired]


def _calls(found: Statistics, called: str) -> list[Number]:
    counted = sum(found.verdicts.values())
    if not counted:
        return []
    numbers = [
        Number(clean(verdict), number, f"{number / counted:.1%}")
        for verdict, number in sorted(found.verdicts.items(), key=lambda pair: -pair[1])
    ]
    since = f", since {timestamp(found.counted_since)}" if found.counted_since is not None else ""
    return [
        *numbers,
        Number("total", counted, f"counted by services{since}", style="total"),
        Number(
            "duplicates",
            duplicates(found.verdicts),
            f"{duplicate_rate(found.verdicts) or 0.0:.1%} of {called} with a key",
            style="total",
        ),
        Number(
            "without a key",
            without_key(found.verdicts),
            f"{share_without_key(found.verdicts) or 0.0:.1%} of all {called}",
            style="total",
        ),
    ]


def _by_place(found: Statistics) -> Table:
    rows: list[Row] = []
    for place, calls in found.calls.items():
        number, last = without_key(calls.verdicts), last_without_key(calls)
        cells = (
            f"{sum(calls.verdicts.values()):,}",
            f"{number:,}",
            f"{share_without_key(calls.verdicts) or 0.0:.1%}",
            "" if last is None else f"{short_duration(found.now - last)} ago",
            f"{duplicates(calls.verdicts):,}",
        )
        rows.append(Row(place_text(place), cells, is_marked=number > 0))
    return Table(
        "Calls without a key",
        ("calls of", "calls", "without key", "share", "last one", "duplicates"),
        rows,
        "Numbers are of all calls ever counted. Keys can be required on a route whose last call without a "
        "key is older than its slowest client.",
    )


Shares = Iterable[tuple[str, str, Share]]


def _doors(found: Statistics, list_url: str) -> Shares:
    for door, share in found.by_door.items():
        yield clean(door), f"{list_url}?{urlencode({'door': door})}", share


def _routes(found: Statistics, list_url: str) -> Shares:
    for (action, target), share in found.by_route.items():
        wanted = {"method": action, **({"path": target} if target else {})}
        # A path that ends with a star would be taken for the beginning of others.
        url = "" if target.endswith("*") else f"{list_url}?{urlencode(wanted)}"
        yield route_text(action, target), url, share


def _scopes(found: Statistics, list_url: str) -> Shares:
    for parts, share in found.by_scope.items():
        shown = redacted_scope(dict(parts)) == dict(parts)
        # One part finds it where the others have that many values, too; nothing hidden goes into an address.
        name, value = parts[0] if parts else ("", "")
        url = f"{list_url}?{urlencode({'scope': f'{name}={value}'})}" if shown and len(parts) == 1 else ""
        yield scope_text(parts) or "none", url, share


def _shares(title: str, shares: Shares, completed: str) -> Table:
    names = [standing_text(standing, completed) for standing in STANDINGS]
    return Table(
        title,
        (title.removeprefix("By "), "records", *names, "bodies"),
        [Row(name, _cells(share), url) for name, url, share in shares],
    )


def _cells(share: Share) -> tuple[str, ...]:
    counts = [f"{share.records.get(standing, 0):,}" for standing in STANDINGS]
    return (f"{sum(share.records.values()):,}", *counts, size_text(share.size))


def _sources(sources: Mapping[str, Source]) -> Table:
    rows = [
        Row(
            clean(name),
            (
                f"{source.events:,}",
                f"{source.deliveries:,}",
                f"{redelivered(source):,}",
                f"{redelivered(source) / source.deliveries:.1%}",
                f"{source.handled:,}",
                "" if source.seconds is None else _seconds(source.seconds),
                "" if source.longest is None else _seconds(source.longest),
            ),
        )
        for name, source in sources.items()
    ]
    columns = ("source", "events", "deliveries", "duplicates", "rate", "handled", "average", "longest")
    return Table("Callbacks by source", columns, rows, "Events whose records have not expired.")


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else short_duration(seconds)
