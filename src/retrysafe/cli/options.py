"""Options that several commands share: said once, and so the same everywhere."""

from enum import StrEnum
from typing import Annotated

import typer

from retrysafe._core.model import Door as DoorName
from retrysafe._core.model import Parts
from retrysafe.cli.exits import Exit, Failure
from retrysafe.stores.admin import Standing

ENVIRONMENT = "RETRYSAFE_STORE"

LARGEST = 1_000_000_000
"""For every number that is counted to: more than any store here holds, and no database finds it too large."""

AUDITED = "The intervention"
"""The heading in the help above what goes into the audit trail."""


class State(StrEnum):
    """How a record stands, as it is typed."""

    ABANDONED = "abandoned"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def standing(self) -> Standing:
        match self:
            case State.ABANDONED:
                return "abandoned"
            case State.IN_PROGRESS:
                return "in_progress"
            case State.COMPLETED:
                return "completed"
            case State.FAILED:
                return "failed"


class Door(StrEnum):
    """Which door a key came through, as it is typed."""

    REQUEST = "request"
    CALLBACK = "callback"
    OPERATION = "operation"


class Dialect(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=ENVIRONMENT,
        help="Where the records are: sqlite:///relative.db, sqlite:////absolute.db or "
        "postgresql://user@host/database.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, to stdout.")
]
ShowKeysOption = Annotated[
    bool, typer.Option("--show-keys", help="Show keys in full. Whoever has a key can ask for its answer.")
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
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key as the client sent it, or the first 6 or more digits of the record's id.",
        show_default=False,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", rich_help_panel=AUDITED, help="Do not ask. Needed where there is no terminal."
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        rich_help_panel=AUDITED,
        help="Why: kept in the audit trail. Asked for on a terminal.",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="WHO",
        rich_help_panel=AUDITED,
        help="Who: kept in the audit trail.",
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


def scope_parts(given: list[str] | None) -> Parts:
    """`tenant=acme` as a part of a scope."""
    parts: list[tuple[str, str]] = []
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise Failure(
                f"--scope {text} has not the form NAME=VALUE", "Write --scope tenant=acme.", Exit.USAGE
            )
        parts.append((name, value))
    return tuple(parts)
