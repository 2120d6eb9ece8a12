"""`retrysafe release`: delete records, so that the next call with such a key runs.

Abandoned ones, of which the operator knows that nothing was done; with `--state` also failed, completed or
waiting ones.  One record by its key, or all that match `--path` or `--action`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from retrysafe._core.model import Record
from retrysafe.cli import consequences
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import standing_text
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene, refusal
from retrysafe.cli.intervene_matching import LIMIT, Many, intervene_matching, refuse_filters, require_filter
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
from retrysafe.cli.words import words
from retrysafe.stores.admin import Admin, Note, Sighting


def release(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="The key as the client or caller gave it, or the first 6 or more digits of the record's id. "
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
            help="The state of what is released: abandoned, failed, completed or waiting.",
        ),
    ] = State.ABANDONED,
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
            help="Without a key: release at most N records.",
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
    """Delete a record: the next call with its key RUNS. For when it is known that nothing was done."""
    if state is State.IN_PROGRESS:
        raise Failure(
            "--state in-progress cannot be released: the worker holds the lease",
            "Wait until the lease has ended: if the worker died, the record is then abandoned.",
            Exit.USAGE,
        )
    settings = Settings(by, reason, yes, show_keys, json)
    if key is not None:
        refuse_filters("release", action=action, path=path, older=older, younger=younger, limit=limit)
        selection = Selection(key, door_name(door), scope_parts(scope), store)
        intervene(selection, settings, lambda seen: _decide(seen, state))
        return
    require_filter("release", path, action)
    query = build_query(
        [state.standing],
        door_name(door),
        scope_parts(scope),
        action=action,
        path=path,
        older=older,
        younger=younger,
    )
    standing = state.standing
    many = Many(
        verb="release",
        past="released",
        noun=f"{standing_text(standing)} record",
        act=_release,
        consequence=partial(consequences.of_releases, standing),
        done=_done,
    )
    intervene_matching(query, many, settings, limit or LIMIT, store)


def _decide(seen: Sighting, state: State) -> Intervention:
    if seen.standing != state.standing:
        raise refusal(seen, _advice(seen))
    return Intervention(
        consequence=consequences.of_release(seen),
        question="Release it?",
        act=_release,
        done=f"released; the next {words(seen.record.door).call} with this key runs",
    )


def _advice(seen: Sighting) -> str:
    if seen.standing == "abandoned":
        return "Leave --state out to release it."
    said = words(seen.record.door)
    if seen.standing == "waiting":
        return (
            "A worker handles it. Add --state waiting to release it all the same: its payload is deleted, "
            "and may never be delivered again."
        )
    return (
        f"Add --state {seen.standing} to release it all the same: its stored {said.result} is deleted, and "
        f"the next {said.call} with this key runs again."
    )


def _release(admin: Admin, seen: Record, note: Note) -> bool:
    # `_decide` and the filters admit only the state that the operator named.
    return admin.release(seen, note, settled=seen.state != "in_progress")


def _done(seen: Sequence[Sighting]) -> str:
    return f"the next {words(*(one.record.door for one in seen)).call} with such a key runs"
