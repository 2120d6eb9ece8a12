"""Options that several commands share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from retrysafe._core.model import Door as DoorName
from retrysafe._core.model import Parts
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import duration
from retrysafe.stores.admin import Index as IndexName
from retrysafe.stores.admin import Standing

ENVIRONMENT = "RETRYSAFE_STORE"

LARGEST = 1_000_000_000
"""The largest number that an option takes: more than any store holds, and an integer of every database."""

AUDITED = "The intervention"
"""The heading in the help for what goes into the audit trail."""


def number(least: int) -> Callable[[str | int], int]:
    """A parser for `typer.Option`: its own `min` and `max` would put the range into every line of help."""

    def parse(given: str | int) -> int:
        text = str(given)  # a default comes as a number
        value = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) else -1
        if not least <= value <= LARGEST:
            raise typer.BadParameter(f"{text!r} is not a valid number: expected {least} to {LARGEST:,}")
        return value

    return parse


class State(StrEnum):
    """A standing, as it is typed."""

    ABANDONED = "abandoned"
    WAITING = "waiting"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def standing(self) -> Standing:
        match self:
            case State.ABANDONED:
                return "abandoned"
            case State.WAITING:
                return "waiting"
            case State.IN_PROGRESS:
                return "in_progress"
            case State.COMPLETED:
                return "completed"
            case State.FAILED:
                return "failed"


class Door(StrEnum):
    """A door, as it is typed."""

    REQUEST = "request"
    CALLBACK = "callback"
    OPERATION = "operation"


class Index(StrEnum):
    """An index, as it is typed."""

    REQUEST_ID = "request-id"
    SCOPE = "scope"

    @property
    def of_store(self) -> IndexName:
        return "request-id" if self is Index.REQUEST_ID else "scope"


class Dialect(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=ENVIRONMENT,
        help="Where the records are: sqlite:///relative.db, sqlite:////absolute.db, "
        "postgresql://user@host/database or mysql://user@host/database.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
ShowKeysOption = Annotated[
    bool, typer.Option("--show-keys", help="Show keys in full. A key gives access to its stored response.")
]
ScopeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope", metavar="NAME=VALUE", help="A part of the scope, such as tenant=acme. Repeatable."
    ),
]
DoorOption = Annotated[
    Door | None,
    typer.Option("--door", metavar="DOOR", help="Only this door: request, callback or operation."),
]
ActionOption = Annotated[
    str | None,
    typer.Option(
        "--action", metavar="NAME", help="Only this operation, source of callbacks, or method of requests."
    ),
]
PathOption = Annotated[
    str | None,
    typer.Option(
        "--path",
        "--target",
        metavar="PATH",
        help="Only this path, target of operations or subject of callbacks; a * at its end matches anything.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The service's profile, for its word for a completed record: succeeded in workflow-control.",
    ),
]
RequestIdOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Only what this request made, by its X-Request-Id."),
]
OlderOption = Annotated[
    float | None,
    typer.Option(
        "--older",
        parser=duration,
        metavar="DURATION",
        help="Created at least this long ago: 90s, 10m, 1h, 2d.",
    ),
]
YoungerOption = Annotated[
    float | None,
    typer.Option("--younger", parser=duration, metavar="DURATION", help="Created at most this long ago."),
]
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key as the client or caller gave it, or the first 6 or more digits of the record's id.",
        show_default=False,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        rich_help_panel=AUDITED,
        help="Do not ask. Required without a terminal.",
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        rich_help_panel=AUDITED,
        help="Why, for the audit trail. Asked for on a terminal.",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="WHO",
        rich_help_panel=AUDITED,
        help="Who, for the audit trail.",
        show_default="user@host",
    ),
]


def door_name(door: Door | None) -> DoorName | None:
    match door:
        case None:
            return None
        case Door.REQUEST:
            return "request"
        case Door.CALLBACK:
            return "callback"
        case Door.OPERATION:
            return "operation"


def completed_word(profile: str | None) -> str:
    """What a service with this profile calls a completed record."""
    if profile is None:
        return "completed"
    from retrysafe import profiles  # rarely wanted

    return profiles.wire(profile).completed_word


def scope_parts(given: list[str] | None) -> Parts:
    """`tenant=acme` as a part of a scope."""
    parts: list[tuple[str, str]] = []
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise Failure(
                f"--scope {text} is not of the form NAME=VALUE", "Write --scope tenant=acme.", Exit.USAGE
            )
        parts.append((name, value))
    return tuple(parts)
