"""`retrysafe show KEY`: one record, what happened to it, and what can be done."""

import base64
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from retrysafe.cli import body_preview, output, payloads
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import entry_document, iso, record_document, timeline
from retrysafe.cli.lookup import find_one_or_list
from retrysafe.cli.next_steps import next_results, possible_commands
from retrysafe.cli.options import (
    DoorOption,
    JsonOption,
    KeyArgument,
    ProfileOption,
    ScopeOption,
    ShowKeysOption,
    StoreOption,
    completed_word,
    door_name,
    number,
    scope_parts,
)
from retrysafe.cli.projects import as_called
from retrysafe.cli.redaction import redacted_header
from retrysafe.cli.store import open_admin
from retrysafe.cli.words import exception_of, words
from retrysafe.stores.admin import Entry, Sighting

if TYPE_CHECKING:
    from retrysafe.callbacks.payload import Payload

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
            parser=number(0),
            metavar="N",
            help="How many characters of the body or value to show, secrets hidden.",
            show_default=str(_PREVIEW),
        ),
    ] = None,
    body: Annotated[
        bool,
        typer.Option(
            "--body", help="Print the whole stored body or value, secrets included, and nothing else."
        ),
    ] = False,
    payload: Annotated[
        bool,
        typer.Option(
            "--payload",
            help="Print the whole stored payload of a callback, secrets included, and nothing else.",
        ),
    ] = False,
    profile: ProfileOption = None,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Show one record: its timeline, its outcome with secrets hidden, what a retry gets, what you can do."""
    if body and preview is not None and not json:
        raise Failure(
            "--body prints the whole body, so --preview would have no effect",
            "Give only one of them.",
            Exit.USAGE,
        )
    if payload and not json and (body or preview is not None):
        useless = "--body" if body else "--preview"
        raise Failure(
            f"--payload prints the whole payload, so {useless} would have no effect",
            "Give only one of them.",
            Exit.USAGE,
        )
    length = _PREVIEW if preview is None else preview
    completed = completed_word(profile)
    with open_admin(store) as admin:
        sighting = find_one_or_list(admin, key, door_name(door), scope_parts(scope), show_keys=show_keys)
        entries = admin.audit(_ENTRIES, sighting.record.id.hex())
        stored = None if sighting.payload is None else admin.payload(sighting.record.id)
    delivered = None if stored is None else payloads.readable(stored)
    if json:
        shown = record_document(sighting, show_keys=show_keys, completed=completed)
        more = _document(sighting, entries, store, preview=length, body=body, show_keys=show_keys)
        received = None if delivered is None else _payload_document(delivered, length, whole=payload)
        output.write_json({**shown, **more, "payload": received})
    elif body:
        _print_body(sighting)
    elif payload:
        _print_payload(delivered)
    else:
        from retrysafe.cli.render_record import render_record

        drawn = render_record(
            sighting,
            entries,
            store,
            delivered,
            preview=length,
            show_keys=show_keys,
            completed=completed,
        )
        output.draw(*drawn)


def _print_body(sighting: Sighting) -> None:
    response = sighting.record.response
    if response is None or sighting.record.omitted:
        result = words(sighting.record.door).result
        why = "it was not stored" if response else f"there is no {result} yet"
        raise Failure(f"this record has no {'body' if result == 'response' else result}: {why}")
    _print_bytes(response.body)


def _print_payload(delivered: "Payload | None") -> None:
    if delivered is None:
        raise Failure("this record has no payload: only callbacks whose service stores payloads have one")
    _print_bytes(delivered.body)


def _print_bytes(body: bytes) -> None:
    if output.on_terminal(sys.stdout):
        # A body may contain bytes that steer a terminal; a file or pipe gets them unchanged.
        output.write("".join(f"{line}\n" for line in body_preview.whole(body)))
    else:
        output.write_bytes(body)


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
    exception = exception_of(record)
    return {
        "error": exception and exception._asdict(),
        "headers": [[name, redacted_header(name, value)] for name, value in pairs],
        "body": _body_document(sighting, preview, whole=body),
        "timeline": [{"event": event.name, "at": iso(event.at)} for event in timeline(sighting)],
        "next": [{"when": one.when, "result": one.result} for one in next_results(sighting)],
        "audit": [entry_document(entry, show_keys=show_keys) for entry in entries],
        "commands": [as_called(command) for command in possible_commands(sighting, store)],
    }


def _body_document(sighting: Sighting, limit: int, *, whole: bool) -> dict[str, object] | None:
    response = sighting.record.response
    if response is None or sighting.record.omitted:
        return None
    return _preview_document(response.body, limit, whole=whole, is_json=sighting.record.door == "operation")


def _payload_document(delivered: "Payload", limit: int, *, whole: bool) -> dict[str, object]:
    headers = [[name, redacted_header(name, value)] for name, value in delivered.headers.items()]
    return {"headers": headers, **_preview_document(delivered.body, limit, whole=whole)}


def _preview_document(body: bytes, limit: int, *, whole: bool, is_json: bool = False) -> dict[str, object]:
    seen = body_preview.preview(body, limit, is_json=is_json)
    shown: dict[str, object] = {"kind": seen.kind, "preview": "\n".join(seen.lines), "cut": seen.cut}
    if whole:
        shown["base64"] = base64.b64encode(body).decode("ascii")
    return shown
