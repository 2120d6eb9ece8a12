"""`retrysafe export`: records as JSON lines, for an archive, before they are purged."""

import base64
import json as json_module
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from retrysafe._core.model import Record, Response
from retrysafe.cli import output
from retrysafe.cli.exits import Failure
from retrysafe.cli.format import duration, iso, plural
from retrysafe.cli.options import DoorOption, StoreOption, door_name
from retrysafe.cli.store import open_admin


def export(
    store: StoreOption = None,
    door: DoorOption = None,
    expiring: Annotated[
        float | None,
        typer.Option(
            "--expiring",
            parser=duration,
            metavar="DURATION",
            help="Only records that have expired or expire within this time: 25h, once a day, misses none.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="A new file, readable by its owner; otherwise stdout."),
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With the stored bodies.")] = True,
) -> None:
    """Write every record as one line of JSON, expired ones too, with keys, headers and bodies in full."""
    number = 0
    with open_admin(store) as admin, _destination(file) as write:
        for record in admin.export(expiring, door_name(door)):
            write(json_module.dumps(_document(record, bodies=bodies), ensure_ascii=False) + "\n")
            number += 1
    output.notice(f"Exported {plural(number, 'record')}.")


@contextmanager
def _destination(file: Path | None) -> Generator[Callable[[str], object]]:
    if file is None:
        yield output.write
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Failure(f"{file} exists", "Give the name of a new file. Nothing was written.") from None
    except OSError as error:
        raise Failure(f"{file} cannot be created: {error.strerror}", "Nothing was written.") from None
    with open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as opened:
        yield opened.write
        opened.flush()
        os.fsync(opened.fileno())  # what is purged next must not be gone from here too


def _document(record: Record, *, bodies: bool) -> dict[str, object]:
    return {
        "id": record.id.hex(),
        "door": record.door,
        "scope": [list(part) for part in record.scope],
        "key": record.key,
        "action": record.action,
        "target": record.target,
        "request_id": record.request_id,
        "correlation_id": record.correlation_id,
        "details": [list(detail) for detail in record.details],
        "fingerprint": record.fingerprint.hex(),
        "state": record.state,
        "mode": record.mode,
        "attempt": record.attempt,
        "checkpointed": record.checkpointed,
        "deliveries": record.deliveries,
        "delivery_times": [iso(at) for at in record.delivery_times],
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "completed_at": iso(record.completed_at),
        "seen_at": iso(record.seen_at),
        "lease_until": iso(record.lease_until),
        "held_until": iso(record.held_until),
        "expires_at": iso(record.expires_at),
        "retention_from": record.retention_from,
        "omitted": record.omitted,
        "response": _response(record.response, bodies=bodies) if record.response else None,
    }


def _response(response: Response, *, bodies: bool) -> dict[str, object]:
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers]
    shown: dict[str, object] = {"status": response.status, "headers": headers, "size": len(response.body)}
    if bodies:
        try:
            shown["body"] = response.body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(response.body).decode("ascii")
    return shown
