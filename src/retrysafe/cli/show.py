"""`retrysafe show KEY`: one record, what became of it, and what can be done."""

import base64
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from retrysafe.cli import body_preview, output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import document, entry_document, iso, timeline
from retrysafe.cli.lookup import one_or_listing
from retrysafe.cli.next_steps import possible_commands, prospects
from retrysafe.cli.options import (
    LARGEST,
    DoorOption,
    JsonOption,
    KeyArgument,
    ScopeOption,
    ShowKeysOption,
    StoreOption,
    door_name,
    scope_parts,
)
from retrysafe.cli.redaction import redacted_header
from retrysafe.cli.store import admin_of
from retrysafe.stores.admin import Entry, Sighting

_ENTRIES = 20
_PREVIEW = 2000


def show(
    key: KeyArgument,
    store: StoreOption = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    preview: Annotated[
        int | None,
        typer.Option(
            "--preview",
            min=0,
            max=LARGEST,
            metavar="N",
            help="How much of the body to show, secrets hidden.",
            show_default=str(_PREVIEW),
        ),
    ] = None,
    body: Annotated[
        bool,
        typer.Option(
            "--body", help="Print the whole body as it is kept, secrets included, and nothing else."
        ),
    ] = False,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Show one record: its times, its answer with secrets hidden, what a retry gets, what you can do."""
    if body and preview is not None and not json:
        raise Failure(
            "--body prints the whole body, so --preview would have no effect",
            "Leave out one or the other.",
            Exit.USAGE,
        )
    length = _PREVIEW if preview is None else preview
    with admin_of(store) as admin:
        sighting = one_or_listing(admin, key, door_name(door), scope_parts(scope), show_keys=show_keys)
        entries = admin.audit(_ENTRIES, sighting.record.id.hex())
    if json:
        output.dump(_document(sighting, entries, store, preview=length, body=body, show_keys=show_keys))
    elif body:
        _print_body(sighting)
    else:
        from retrysafe.cli.render_record import portrait

        output.draw(*portrait(sighting, entries, store, preview=length, show_keys=show_keys))


def _print_body(sighting: Sighting) -> None:
    response = sighting.record.response
    if response is None or sighting.record.omitted:
        why = "it was not kept" if response else "there is no answer yet"
        raise Failure(f"this record has no body: {why}")
    if output.on_terminal(sys.stdout):
        # A terminal acts upon some of the bytes that a body may hold; a file gets them all.
        output.write("".join(f"{line}\n" for line in body_preview.whole(response.body)))
    else:
        output.write_bytes(response.body)


def _document(
    sighting: Sighting,
    entries: Sequence[Entry],
    store: str | None,
    *,
    preview: int,
    body: bool,
    show_keys: bool,
) -> dict[str, object]:
    record = sighting.record
    headers = record.response.headers if record.response else ()
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return {
        **document(sighting, show_keys=show_keys),
        "headers": [[name, redacted_header(name, value)] for name, value in pairs],
        "body": _body_document(sighting, preview, whole=body),
        "timeline": [{"event": event.name, "at": iso(event.at)} for event in timeline(sighting)],
        "next": [{"when": one.when, "answer": one.answer} for one in prospects(sighting)],
        "audit": [entry_document(entry, show_keys=show_keys) for entry in entries],
        "commands": possible_commands(sighting, store),
    }


def _body_document(sighting: Sighting, limit: int, *, whole: bool) -> dict[str, object] | None:
    response = sighting.record.response
    if response is None or sighting.record.omitted:
        return None
    seen = body_preview.preview(response.body, limit)
    shown: dict[str, object] = {"kind": seen.kind, "preview": "\n".join(seen.lines), "cut": seen.cut}
    if whole:
        shown["base64"] = base64.b64encode(response.body).decode("ascii")
    return shown
