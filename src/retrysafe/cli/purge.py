"""`retrysafe purge`: remove expired records, in batches between which requests proceed."""

import logging
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from retrysafe._core.model import Door, Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import clean, plural, removed_document, route_text, scope_text, short_id
from retrysafe.cli.options import (
    AUDITED,
    ByOption,
    DoorOption,
    JsonOption,
    ShowKeysOption,
    StoreOption,
    door_name,
    number,
)
from retrysafe.cli.store import open_admin
from retrysafe.cli.words import words
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Admin, Note

Advance = Callable[[int], None]

_BATCH = 5000

_UNRESOLVED = "an abandoned record expired unresolved"
"""The beginning of what stores log for each such record."""


class _Removed:
    """What was removed so far."""

    def __init__(self) -> None:
        self.number = 0
        self.unresolved: list[Record] = []


def purge(
    store: StoreOption = None,
    door: DoorOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many there are.")] = False,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            parser=number(1),
            metavar="N",
            help="Records per batch; Ctrl-C stops after the current one.",
            show_default=str(_BATCH),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", parser=number(1), metavar="N", help="Remove at most N records."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            metavar="TEXT",
            rich_help_panel=AUDITED,
            help="Why. Writes an entry to the audit trail.",
        ),
    ] = None,
    by: ByOption = None,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Remove expired records, to save space. Requests do not wait for it."""
    if dry_run:
        _refuse_without_effect(batch=batch, reason=reason, by=by)
    if show_keys and (dry_run or not json):
        raise Failure(
            f"--show-keys has no effect {'with --dry-run' if dry_run else 'without --json'}: no key is shown",
            "Leave it out. Nothing was removed.",
            Exit.USAGE,
        )
    note = _note(by, reason)
    only = door_name(door)
    with open_admin(store) as admin:
        backlog = admin.expired(only)
        wanted = backlog if limit is None else min(backlog, limit)
        if dry_run:
            _print_backlog(backlog, wanted, json=json)
            return
        removed = _Removed()
        with _reporting_failure(removed), _stop_on_interrupt() as stopped:
            with _progress(wanted) as advance:
                _remove(admin, batch or _BATCH, limit, note, only, stopped, advance, removed)
            # Before anything else that can fail: no other process knows about them any more.
            if removed.unresolved:
                _report_unresolved(removed.unresolved)
        left = _left(admin, only, removed)
    if json:
        unresolved = [removed_document(record, show_keys=show_keys) for record in removed.unresolved]
        output.write_json(
            {
                "dry_run": False,
                "removed": removed.number,
                "left": left,
                "stopped": stopped(),
                "unresolved": unresolved,
            }
        )
    else:
        output.write(f"Removed {plural(removed.number, 'expired record')}; {left:,} left.\n")
    if stopped():
        raise Failure(
            "interrupted between two batches; what was removed stays removed", exit=Exit.INTERRUPTED
        )


def _refuse_without_effect(**given: object) -> None:
    useless = [f"--{name}" for name, value in given.items() if value is not None]
    if useless:
        raise Failure(
            f"--dry-run removes nothing, so {' and '.join(useless)} would have no effect",
            "Give only one of them. Nothing was removed.",
            Exit.USAGE,
        )


def _note(by: str | None, reason: str | None) -> Note | None:
    if by is None and reason is None:
        return None
    return prompt.check_note(by, reason or "purge of expired records")


def _print_backlog(backlog: int, wanted: int, *, json: bool) -> None:
    if json:
        output.write_json({"dry_run": True, "expired": backlog, "would_remove": wanted})
    else:
        output.write(f"{plural(backlog, 'expired record')}; {wanted:,} would be removed.\n")


def _remove(
    admin: Admin,
    batch: int,
    limit: int | None,
    note: Note | None,
    door: Door | None,
    stopped: Callable[[], bool],
    advance: Advance,
    removed: _Removed,
) -> None:
    while not stopped() and (limit is None or removed.number < limit):
        wanted = batch if limit is None else min(batch, limit - removed.number)
        purged = admin.purge(wanted, note, door)
        removed.number += purged.records
        removed.unresolved += purged.unresolved
        advance(purged.records)
        if purged.records < wanted:
            break


def _left(admin: Admin, door: Door | None, removed: _Removed) -> int:
    try:
        return admin.expired(door)
    except StoreError as trouble:
        raise Failure(
            f"removed {plural(removed.number, 'expired record')}; cannot count how many are left: {trouble}",
            "What was removed stays removed. Run retrysafe doctor to check the store.",
            Exit.STORE,
        ) from trouble


@contextmanager
def _reporting_failure(removed: _Removed) -> Generator[None]:
    """If it fails midway, report what was removed until then.

    The store logs each unresolved record when it removes it.  Normally they are listed together at the end
    instead; if it fails within a batch, only the log has them.
    """
    logged: list[str] = []

    def hold(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.startswith(_UNRESOLVED):
            return True
        logged.append(message)
        return False

    log = logging.getLogger("retrysafe.store")
    log.addFilter(hold)
    try:
        yield
    except BaseException:
        output.notice(
            f"Removed {plural(removed.number, 'expired record')} in complete batches before it failed."
        )
        for message in logged:
            output.report(message, "")
        raise
    finally:
        log.removeFilter(hold)


@contextmanager
def _stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Make an interrupt stop it between two batches; a second one stops it at once."""
    asked = False

    def ask(_signal: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(total: int) -> Generator[Advance]:
    """A bar on stderr, if that is a terminal."""
    if not output.on_terminal(sys.stderr):
        yield lambda _number: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("purging"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=output.console(sys.stderr),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.advance(task, number)


def _report_unresolved(unresolved: list[Record]) -> None:
    """An unknown outcome must not disappear unnoticed."""
    output.notice(
        f"{plural(len(unresolved), 'abandoned record')} expired unresolved; the outcome stays unknown:"
    )
    for record in unresolved:
        route, scope = route_text(record.action, record.target), scope_text(record.scope)
        output.notice(
            f"  {short_id(record.id)}  {route}  {scope}  {words(record.door).call} {clean(record.request_id)}"
        )
