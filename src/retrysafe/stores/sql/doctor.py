"""Checks of `retrysafe doctor` that are the same in every dialect: the tables, and what is in them.

A check gives findings.  One that fails is a finding, whatever it failed with, and the others go on; one that
takes too long is skipped, and says so.
"""

from collections.abc import Callable, Iterator
from typing import cast

from retrysafe.errors import SchemaMismatch, StoreError
from retrysafe.stores.admin import Finding, waiting_payloads
from retrysafe.stores.retry import TookTooLong
from retrysafe.stores.sql.schema import Ask, latest, plan

PATIENCE = 10.0
"""Seconds for one walk through the table; for more, an operator decides when."""

_BACKLOG = 100_000
_OVERDUE = 7 * 86400.0
"""Expired records, and seconds since the first of them expired, that are worth a warning: services keep up
with what they create, so a service has stopped."""


def run(name: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except TookTooLong:
        findings.append(
            Finding(
                name,
                "ok",
                f"skipped: it would take more than {PATIENCE:.0f} s",
                "`retrysafe stats` has no such limit",
            )
        )
    except StoreError as error:
        findings.append(Finding(name, "problem", str(error)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        findings.append(Finding(name, "problem", f"the check failed with {type(error).__name__}: {error}"))
    return findings


def tables(ask: Ask, dialect: str, place: str) -> Iterator[Finding]:
    """Whether all tables and indexes exist, with every migration; `place` is where they are looked for."""
    try:
        found = plan(ask, dialect)
    except SchemaMismatch as mismatch:
        yield Finding("schema", "problem", str(mismatch))
        return
    if found.is_new:
        yield Finding(
            "schema",
            "problem",
            f"{place} has no tables of retrysafe",
            "run `retrysafe migrate`; if they should exist, check the address, and the search_path of the "
            "role where there is one",
        )
    elif found.tables or found.is_vital:
        yield Finding(
            "schema",
            "problem",
            f"{' and '.join([*found.tables, *found.changes])} is missing",
            f"run `retrysafe migrate`, or what `retrysafe sql --dialect {dialect}` prints",
        )
    elif found.statements:
        yield Finding(
            "schema",
            "warning",
            f"{' and '.join(found.changes)} is missing: {found.loss}",
            f"run `retrysafe migrate`, or what `retrysafe sql --dialect {dialect}` prints",
        )
    elif found.indexes:
        yield Finding(
            "schema",
            "warning",
            f"the index {' and '.join(found.indexes)} is missing or not valid: what looks for records by it "
            "scans the whole table",
            "run `retrysafe migrate`",
        )
    else:
        yield Finding("schema", "ok", f"all tables exist, with migration {latest(dialect)}")


def records(ask: Ask) -> Iterator[Finding]:
    [(number, id)] = ask("count_unreadable")
    if number:
        name = id.hex()[:8] if isinstance(id, bytes) else "one without an id"
        yield Finding(
            "records",
            "problem",
            f"{number} records cannot be read by this release, among them {name}",
            "their keys are refused (503): use the release that wrote them, or delete these rows by hand",
        )
    else:
        yield Finding("records", "ok", "every record has a known version and state")


def expired(ask: Ask) -> Iterator[Finding]:
    [(number, age)] = ask("expired_backlog")
    found = f"{number} expired records are not removed yet"
    if cast(int, number) > _BACKLOG or cast(float, age or 0.0) > _OVERDUE:
        days = cast(float, age) / 86400
        yield Finding(
            "expired",
            "warning",
            f"{found}, the oldest of them for {days:.1f} days: no service keeps up with them",
            "run `retrysafe purge` once a day",
        )
    else:
        yield Finding("expired", "ok", found)


def abandoned(ask: Ask) -> Iterator[Finding]:
    [(number, age)] = ask("count_abandoned")
    if number:
        yield Finding(
            "abandoned",
            "warning",
            f"the outcome of {number} records is unknown, the oldest of "
            f"{cast(float, age) / 3600:.1f} hours ago",
            "`retrysafe ls --state abandoned` lists them; find out what happened, then `retrysafe "
            "resolve` or `retrysafe release`",
        )
    else:
        yield Finding("abandoned", "ok", "no outcome is unknown")


def payloads(ask: Ask) -> Iterator[Finding]:
    for oldest_due, now in ask("oldest_due"):
        yield waiting_payloads(cast(float, oldest_due), cast(float, now))
