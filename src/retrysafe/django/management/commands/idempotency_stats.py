"""`manage.py idempotency_stats`: how calls ended, and where clients do not send keys yet."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from retrysafe.cli.counting import (
    document,
    duplicate_rate,
    duplicates,
    last_without_key,
    place_text,
    share_without_key,
    without_key,
)
from retrysafe.cli.format import STANDINGS, plural, relative, short_duration, timestamp
from retrysafe.django.management.operating import (
    OperatingCommand,
    in_utf8,
    project_admin,
    table,
    whole_number,
)
from retrysafe.stores.admin import Statistics


class Command(OperatingCommand):
    help = (
        "Count records, outcomes and duplicates, and of each route the calls without a key: where there are "
        "none any more, keys can be required."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--groups",
            type=whole_number(0),
            default=10,
            metavar="N",
            help="How many routes to list, most calls without a key first (default: %(default)s).",
        )
        parser.add_argument("--json", action="store_true", help="One JSON document, as of `retrysafe stats`.")

    def handle(self, *_: Any, **options: Any) -> None:
        with project_admin(options["database"]) as admin:
            found = admin.statistics(options["groups"])
        if options["json"]:
            self.stdout.write(json.dumps(document(found), indent=2))
            return
        for line in (*_records(found), "", *_calls(found)):
            self.stdout.write(in_utf8(line))


def _records(found: Statistics) -> Iterator[str]:
    since = {"abandoned": found.oldest_abandoned, "in_progress": found.oldest_running}
    rows: list[tuple[str, str, str]] = []
    for standing in STANDINGS:
        oldest = since.get(standing)
        remark = "" if oldest is None else f"the oldest {relative(oldest, found.now)}"
        rows.append((standing.replace("_", " "), f"{found.total.records.get(standing, 0):,}", remark))
    rows.append(("expired", f"{found.expired:,}", "cleanup removes them" if found.expired else ""))
    yield from table(("RECORDS", "", ""), rows, frozenset({1}))


def _calls(found: Statistics) -> Iterator[str]:
    counted = sum(found.verdicts.values())
    if not counted:
        yield "No calls counted yet: services write their counts every few seconds."
        return
    since = "" if found.counted_since is None else f" since {timestamp(found.counted_since)}"
    yield (
        f"{plural(counted, 'call')}{since}: {share_without_key(found.verdicts) or 0.0:.1%} without a key, of "
        f"the others {duplicate_rate(found.verdicts) or 0.0:.1%} duplicates."
    )
    if not found.calls:
        return
    yield ""
    rows: list[tuple[str, ...]] = []
    for place, calls in found.calls.items():
        last = last_without_key(calls)
        rows.append(
            (
                place_text(place),
                f"{sum(calls.verdicts.values()):,}",
                f"{without_key(calls.verdicts):,}",
                f"{share_without_key(calls.verdicts) or 0.0:.1%}",
                "-" if last is None else f"{short_duration(found.now - last)} ago",
                f"{duplicates(calls.verdicts):,}",
            )
        )
    titles = ("ROUTE", "CALLS", "WITHOUT KEY", "SHARE", "LAST ONE", "DUPLICATES")
    yield from table(titles, rows, frozenset(range(1, 6)))
