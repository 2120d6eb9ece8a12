"""What `release` and `resolve` share: find the record, show it, ask, change it as it was seen, report."""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe._core.model import Door, Parts, Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import long_duration, record_document, short_id, standing_text
from retrysafe.cli.lookup import find_one_or_list
from retrysafe.cli.store import open_admin
from retrysafe.cli.words import status_text
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.admin import Admin, Note, Query, Sighting


class Selection(NamedTuple):
    """The record that was named, and where to look for it."""

    key: str
    door: Door | None
    scope: Parts
    store: str | None


class Settings(NamedTuple):
    """Options that every intervention has."""

    by: str | None
    reason: str | None
    yes: bool
    show_keys: bool
    json: bool


class Intervention(NamedTuple):
    """What to do, decided from the record that was seen."""

    consequence: str
    """Printed before the question, in whole sentences."""
    question: str
    act: Callable[[Admin, Record, Note], bool]
    done: str
    """Printed afterwards."""


def intervene(selection: Selection, settings: Settings, decide: Callable[[Sighting], Intervention]) -> None:
    """Change the one record, if the operator confirms it, and if it is still as it was seen.

    `decide` refuses a record that must not be changed.
    """
    with open_admin(selection.store) as admin:
        seen = find_one_or_list(
            admin, selection.key, selection.door, selection.scope, show_keys=settings.show_keys
        )
        # Every error in the arguments is found before the first question.
        intervention = decide(seen)
        if not settings.yes:
            prompt.require_terminal()
            _introduce(seen, intervention, show_keys=settings.show_keys)
        note = prompt.ask_note(settings.by, settings.reason)
        if not settings.yes:
            prompt.confirm(intervention.question)
        try:
            done = intervention.act(admin, seen.record, note)
        except StoreUnavailable as trouble:
            # The store may have done it, and its reply was lost.
            raise Failure(
                str(trouble), "Run retrysafe audit to see whether it was done.", Exit.STORE
            ) from trouble
        try:
            now, unreadable = _look_again(admin, seen.record), ""
        except StoreError as trouble:
            # What was done stays done, whether or not the record can be read.
            now, unreadable = None, f"its present state cannot be read: {trouble}"
    if done and unreadable:
        output.report(f"it was done; {unreadable}", "retrysafe audit has its entry.")
    if settings.json:
        found = record_document(now, show_keys=settings.show_keys) if now else None
        output.write_json(
            {"done": done, "id": seen.record.id.hex(), "by": note.by, "reason": note.reason, "record": found}
        )
    if not done:
        raise Failure(
            f"record {short_id(seen.record.id)} changed meanwhile: {unreadable or describe(now)}",
            "Nothing was changed by this command.",
        )
    if not settings.json:
        output.write(f"{short_id(seen.record.id)}: {intervention.done}\n")


def refusal(seen: Sighting, advice: str) -> Failure:
    """Why a record is not changed: what it is, and the advice of the command unless it is in progress."""
    if seen.standing == "in_progress":
        until = seen.record.lease_until
        left = "" if until is None else f" for another {long_duration(until - seen.now)}, or longer"
        advice = f"Its worker holds the lease{left}. Wait until the lease has ended."
    return Failure(
        f"record {short_id(seen.record.id)} is {describe(seen)}", f"{advice} Nothing was changed.", Exit.FOUND
    )


def describe(sighting: Sighting | None) -> str:
    """A record's standing and status: `completed (201)`."""
    if sighting is None:
        return "it no longer exists"
    status = status_text(sighting.record) if sighting.record.state != "in_progress" else ""
    return f"{standing_text(sighting.standing)}{f' ({status})' if status else ''}"


def _introduce(seen: Sighting, intervention: Intervention, *, show_keys: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from retrysafe.cli.render_record import render_summary

    consequence = Padding(Text(intervention.consequence), (1, 0, 1, 2))
    output.draw_stderr(render_summary(seen, show_keys=show_keys), consequence)


def _look_again(admin: Admin, record: Record) -> Sighting | None:
    found = admin.list(Query(id=record.id.hex()), 1)
    return found[0] if found else None
