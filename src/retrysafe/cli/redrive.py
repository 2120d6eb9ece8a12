"""`retrysafe redrive`: have a worker handle the stored payloads of callbacks again.

Of those that failed, whose outcome is unknown, or that wait for their next attempt.  One record by its key,
or all that match `--action` or `--path`.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from retrysafe._core.model import Record
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import short_id, standing_text
from retrysafe.cli.intervene import Intervention, Selection, Settings, describe, intervene, refusal
from retrysafe.cli.intervene_matching import (
    LIMIT,
    NO_PAYLOAD,
    Many,
    intervene_matching,
    refuse_filters,
    require_filter,
)
from retrysafe.cli.lookup import build_query
from retrysafe.cli.options import (
    ActionOption,
    ByOption,
    DoorOption,
    JsonOption,
    OlderOption,
    PathOption,
    ReasonOption,
    ScopeOption,
    ShowKeysOption,
    State,
    StoreOption,
    YesOption,
    YoungerOption,
    door_name,
    number,
    scope_parts,
)
from retrysafe.stores.admin import Admin, Note, Sighting

_WORKER = "a worker (retrysafe work) handles it"
_WORKERS = "a worker (retrysafe work) handles them"


def redrive(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="The id of the event, or the first 6 or more digits of the record's id. "
            "Without one, --path or --action is required.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    state: Annotated[
        State,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Without a key: the state of what is redriven: failed, abandoned or waiting.",
        ),
    ] = State.FAILED,
    action: ActionOption = None,
    path: PathOption = None,
    older: OlderOption = None,
    younger: YoungerOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            parser=number(1),
            metavar="N",
            help="Without a key: redrive at most N records.",
            show_default=str(LIMIT),
        ),
    ] = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Have a worker handle the stored payload of a callback again: for when the cause is fixed."""
    settings = Settings(by, reason, yes, show_keys, json)
    if key is not None:
        refuse_filters("redrive", action=action, path=path, older=older, younger=younger, limit=limit)
        intervene(Selection(key, door_name(door), scope_parts(scope), store), settings, _decide)
        return
    if state in (State.IN_PROGRESS, State.COMPLETED):
        raise Failure(
            f"--state {state} cannot be redriven: {_WHY_NOT[state]}",
            "Give --state failed, abandoned or waiting.",
            Exit.USAGE,
        )
    require_filter("redrive", path, action)
    query = build_query(
        [state.standing],
        door_name(door) or "callback",
        scope_parts(scope),
        action=action,
        path=path,
        older=older,
        younger=younger,
    )
    many = Many(
        verb="redrive",
        past="redriven",
        noun=f"{standing_text(state.standing)} record",
        act=_redrive,
        consequence=_consequence,
        done=_done,
        needs_payload=True,
    )
    intervene_matching(query, many, settings, limit or LIMIT, store)


_WHY_NOT = {
    State.IN_PROGRESS: "a worker or its delivery holds the lease",
    State.COMPLETED: "it was handled",
}

_DANGER = "If an attempt did anything that was not undone, it will then be done twice."


def _consequence(_: Sequence[Sighting]) -> str:
    return f"As soon as it looks, {_WORKERS} again. {_DANGER}"


def _done(_: Sequence[Sighting]) -> str:
    return _WORKERS


def _decide(seen: Sighting) -> Intervention:
    if seen.standing == "completed":
        raise refusal(
            seen,
            "It was handled. To have it handled again, release it, and have its sender deliver it again.",
        )
    if seen.standing == "in_progress":
        raise refusal(seen, "")
    if seen.payload is None:
        raise Failure(
            f"record {short_id(seen.record.id)} is {describe(seen)}, and has no stored payload",
            f"{_advice(seen.record)} Nothing was changed.",
            Exit.FOUND,
        )
    return Intervention(
        consequence=f"As soon as it looks, {_WORKER} again, as attempt {seen.record.attempt + 1}. {_DANGER}",
        question="Have it handled again?",
        act=_redrive,
        done=f"redriven; {_WORKER}",
    )


def _advice(record: Record) -> str:
    if record.door == "callback":
        return NO_PAYLOAD
    return "Only callbacks whose service stores payloads have one: use retrysafe release."


def _redrive(admin: Admin, seen: Record, note: Note) -> bool:
    return admin.redrive(seen, note)
