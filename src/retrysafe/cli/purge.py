"""`retrysafe purge`: remove what has expired, in batches that leave requests their turn."""

import logging
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from retrysafe._core.model import Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import clean, plural, removed_document, short_id, spoken_route, spoken_scope
from retrysafe.cli.options import AUDITED, LARGEST, ByOption, JsonOption, ShowKeysOption, StoreOption
from retrysafe.cli.store import admin_of
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Admin, Note

Advance = Callable[[int], None]

_BATCH = 5000

_UNRESOLVED = "an abandoned record expired unresolved"
"""How the stores begin what they log of each such record."""


class _Removed:
    """What is gone so far."""

    def __init__(self) -> None:
        self.number = 0
        self.unresolved: list[Record] = []


def purge(
    store: StoreOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            max=LARGEST,
            metavar="N",
            help="How many at a time; Ctrl-C ends it after the batch.",
            show_default=str(_BATCH),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=LARGEST, metavar="N", help="Remove no more than so many."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            metavar="TEXT",
            rich_help_panel=AUDITED,
            help="Why. Leaves an entry in the audit trail.",
        ),
    ] = None,
    by: ByOption = None,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Remove expired records. Requests never wait for this; it keeps the store small."""
    if dry_run:
        _refuse_without_effect(batch=batch, reason=reason, by=by)
    if show_keys and (dry_run or not json):
        raise Failure(
            f"--show-keys has no effect {'with --dry-run' if dry_run else 'without --json'}: no key is shown",
            "Leave it out. Nothing was removed.",
            Exit.USAGE,
        )
    note = _note(by, reason)
    with admin_of(store) as admin:
        backlog = admin.expired()
        wanted = backlog if limit is None else min(backlog, limit)
        if dry_run:
            _tell_backlog(backlog, wanted, json=json)
            return
        removed = _Removed()
        with _accounting(removed), _stopping() as stopped:
            with _progress(wanted) as advance:
                _remove(admin, batch or _BATCH, limit, note, stopped, advance, removed)
            # Before anything else that can fail: nothing but this process knows of them any more.
            if removed.unresolved:
                _name(removed.unresolved)
        left = _left(admin, removed)
    if json:
        gone = [removed_document(record, show_keys=show_keys) for record in removed.unresolved]
        output.dump(
            {
                "dry_run": False,
                "removed": removed.number,
                "left": left,
                "stopped": stopped(),
                "unresolved": gone,
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
            "Leave out one or the other. Nothing was removed.",
            Exit.USAGE,
        )


def _note(by: str | None, reason: str | None) -> Note | None:
    if by is None and reason is None:
        return None
    return prompt.checked_note(by, reason or "purge of expired records")


def _tell_backlog(backlog: int, wanted: int, *, json: bool) -> None:
    if json:
        output.dump({"dry_run": True, "expired": backlog, "would_remove": wanted})
    else:
        output.write(f"{plural(backlog, 'expired record')}; {wanted:,} would be removed.\n")


def _remove(
    admin: Admin,
    batch: int,
    limit: int | None,
    note: Note | None,
    stopped: Callable[[], bool],
    advance: Advance,
    removed: _Removed,
) -> None:
    while not stopped() and (limit is None or removed.number < limit):
        wanted = batch if limit is None else min(batch, limit - removed.number)
        purged = admin.purge(wanted, note)
        removed.number += purged.records
        removed.unresolved += purged.unresolved
        advance(purged.records)
        if purged.records < wanted:
            break


def _left(admin: Admin, removed: _Removed) -> int:
    try:
        return admin.expired()
    except StoreError as trouble:
        raise Failure(
            f"removed {plural(removed.number, 'expired record')}; how many are left is not known: {trouble}",
            "What was removed stays removed. retrysafe doctor looks at the store.",
            Exit.STORE,
        ) from trouble


@contextmanager
def _accounting(removed: _Removed) -> Generator[None]:
    """Whatever happens in the middle of it, what is gone by then is told.

    The store logs each unresolved record as it goes.  Normally they are named together at the end instead;
    where it breaks off within a batch, the log is all that knows of them.
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
        output.say(
            f"Removed {plural(removed.number, 'expired record')} in whole batches before it broke off."
        )
        for message in logged:
            output.complain(message, "")
        raise
    finally:
        log.removeFilter(hold)


@contextmanager
def _stopping() -> Generator[Callable[[], bool]]:
    """Lets an interrupt end it between two batches; a second one ends it at once."""
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
    """A bar on stderr, where somebody can see it."""
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


def _name(unresolved: list[Record]) -> None:
    """Nobody may find out by accident that an unknown outcome was dropped."""
    output.say(
        f"{plural(len(unresolved), 'abandoned record')} expired unsettled; how it ended was never found out:"
    )
    for record in unresolved:
        route, scope = spoken_route(record.action, record.target), spoken_scope(record.scope)
        output.say(f"  {short_id(record.id)}  {route}  {scope}  request {clean(record.request_id)}")
