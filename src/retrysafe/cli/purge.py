"""`retrysafe purge`: remove expired records, in batches between which requests proceed."""

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
from retrysafe.stores.cleanup import BATCH, Cleanup, stop_on_interrupt, withheld_log

Advance = Callable[[int], None]


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
            show_default=str(BATCH),
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
        cleanup = Cleanup()
        with _reporting_failure(cleanup), stop_on_interrupt() as stopped:
            with _progress(wanted) as advance:
                cleanup.run(
                    admin,
                    only,
                    batch=batch or BATCH,
                    limit=limit,
                    note=note,
                    stopped=stopped,
                    advance=advance,
                )
            # Before anything else that can fail: no other process knows about them any more.
            if cleanup.unresolved:
                _report_unresolved(cleanup.unresolved)
        left = _left(admin, only, cleanup)
    if json:
        unresolved = [removed_document(record, show_keys=show_keys) for record in cleanup.unresolved]
        output.write_json(
            {
                "dry_run": False,
                "removed": cleanup.removed,
                "left": left,
                "stopped": stopped(),
                "unresolved": unresolved,
            }
        )
    else:
        output.write(f"Removed {plural(cleanup.removed, 'expired record')}; {left:,} left.\n")
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


def _left(admin: Admin, door: Door | None, cleanup: Cleanup) -> int:
    try:
        return admin.expired(door)
    except StoreError as trouble:
        raise Failure(
            f"removed {plural(cleanup.removed, 'expired record')}; cannot count how many are left: {trouble}",
            "What was removed stays removed. Run retrysafe doctor to check the store.",
            Exit.STORE,
        ) from trouble


@contextmanager
def _reporting_failure(cleanup: Cleanup) -> Generator[None]:
    """If it fails midway, report what was removed until then."""
    with withheld_log() as logged:
        try:
            yield
        except BaseException:
            output.notice(
                f"Removed {plural(cleanup.removed, 'expired record')} in complete batches before it failed."
            )
            for message in logged:
                output.report(message, "")
            raise


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
