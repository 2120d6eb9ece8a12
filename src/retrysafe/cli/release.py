"""`retrysafe release`: delete records, so that the next call with such a key runs.

Abandoned ones, of which the operator knows that nothing was done; with `--state` also failed or completed
ones.  One record by its key, or all that match `--path` or `--action`.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from retrysafe._core.model import Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import plural, short_id, standing_text
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene, refusal
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
from retrysafe.cli.store import open_admin
from retrysafe.cli.words import words
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Admin, Note, Query, Sighting, Standing

_LIMIT = 1000
"""Records per run: each is deleted and audited in a transaction of its own, a few seconds for all of them."""

_ROWS = 20
"""Of the records to release, shown above the question: enough to see whether the filter is right."""


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
            help="The state of what is released: abandoned, failed or completed.",
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
            show_default=str(_LIMIT),
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
        _refuse_filters(action=action, path=path, older=older, younger=younger, limit=limit)
        selection = Selection(key, door_name(door), scope_parts(scope), store)
        intervene(selection, settings, lambda seen: _decide(seen, state))
        return
    if path is None and action is None:
        raise Failure(
            "neither a key nor --path nor --action was given",
            "Give the key or the id of one record, or --path or --action to release all records of one.",
            Exit.USAGE,
        )
    query = build_query(
        [state.standing],
        door_name(door),
        scope_parts(scope),
        action=action,
        path=path,
        older=older,
        younger=younger,
    )
    _release_matching(query, state.standing, settings, limit or _LIMIT, store)


def _refuse_filters(**given: object) -> None:
    useless = [f"--{name}" for name, value in given.items() if value is not None]
    if useless:
        raise Failure(
            f"a key was given, and with it {' and '.join(useless)}",
            "Give a key to release one record, or filters to release many. Nothing was changed.",
            Exit.USAGE,
        )


def _decide(seen: Sighting, state: State) -> Intervention:
    if seen.standing != state.standing:
        raise refusal(seen, _advice(seen))
    said = words(seen.record.door)
    deleted = _DELETED[seen.standing].format(**said._asdict())
    return Intervention(
        consequence=f"{deleted} will be deleted, and the next {said.call} with this key will RUN the "
        f"{said.code} again. {_danger(seen.record)}",
        question="Release it?",
        act=_release,
        done=f"released; the next {said.call} with this key runs",
    )


def _advice(seen: Sighting) -> str:
    if seen.standing == "abandoned":
        return "Leave --state out to release it."
    said = words(seen.record.door)
    return (
        f"Add --state {seen.standing} to release it all the same: its stored {said.result} is deleted, and "
        f"the next {said.call} with this key runs again."
    )


_DELETED: dict[Standing, str] = {
    "abandoned": "The record",
    "failed": "The stored failure",
    "completed": "This {call} is DONE. Its stored {result}",
}


def _danger(seen: Record) -> str:
    if seen.state == "completed":
        call = words(seen.door).call
        return f"Whatever it did will then be done twice, also if that {call} is only a late retry."
    if seen.checkpointed:
        return "Part of its response was sent: whatever leads to that response will then be done twice."
    if seen.mode == "tx":
        return (
            "What the first attempt did in its transaction was rolled back; other effects would be repeated."
        )
    return "If the first attempt did anything, it will then be done twice."


def _release(admin: Admin, seen: Record, note: Note) -> bool:
    # `_decide` and the filters admit only the state that the operator named.
    return admin.release(seen, note, settled=seen.state != "in_progress")


def _release_matching(
    query: Query, standing: Standing, settings: Settings, limit: int, store: str | None
) -> None:
    released: list[Sighting] = []
    changed: list[Sighting] = []
    trouble: StoreError | None = None
    with open_admin(store) as admin:
        found = admin.list(query, limit + 1)
        seen, more = found[:limit], len(found) > limit
        if not seen:
            raise Failure(
                f"no {standing_text(standing)} record matches",
                "Run retrysafe ls with the same filters to see what there is. Nothing was changed.",
            )
        number = plural(len(seen), f"{standing_text(standing)} record")
        if not settings.yes:
            prompt.require_terminal()
            _introduce(seen, standing, more=more, show_keys=settings.show_keys)
        note = prompt.ask_note(settings.by, settings.reason)
        if not settings.yes:
            prompt.confirm(f"Release {number}?")
        try:
            for one in seen:
                (released if _release(admin, one.record, note) else changed).append(one)
        except StoreError as error:
            trouble = error
        except KeyboardInterrupt:
            output.notice(f"\nReleased {len(released):,} of {number}.")
            raise
    _report(released, changed, number, settings, note, done=trouble is None and not changed, more=more)
    if trouble is not None:
        raise Failure(
            f"released {len(released):,} of {number}, then the store failed: {trouble}",
            "What was released stays released. Run retrysafe audit to see whether one more was, then run "
            "this again.",
            Exit.STORE,
        ) from trouble
    if more:
        output.notice("More records match. Run it again to release them, or give a higher --limit.")
    if changed:
        ids = ", ".join(short_id(one.record.id) for one in changed)
        raise Failure(
            f"not released, because they changed meanwhile: {ids}",
            "Run retrysafe show to see what each is now.",
        )


def _report(
    released: list[Sighting],
    changed: list[Sighting],
    number: str,
    settings: Settings,
    note: Note,
    *,
    done: bool,
    more: bool,
) -> None:
    if not settings.json:
        call = words(*(one.record.door for one in [*released, *changed])).call
        output.write(f"Released {len(released):,} of {number}; the next {call} with such a key runs.\n")
        return
    output.write_json(
        {
            "done": done,
            "released": [one.record.id.hex() for one in released],
            "changed": [one.record.id.hex() for one in changed],
            "more": more,
            "by": note.by,
            "reason": note.reason,
        }
    )


def _introduce(seen: Sequence[Sighting], standing: Standing, *, more: bool, show_keys: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from retrysafe.cli.render_tables import records_table

    table = records_table(seen[:_ROWS], show_keys=show_keys, stream=sys.stderr)
    rest = len(seen) - _ROWS
    hidden = [Text(f"… and {rest:,} more", "dim")] if rest > 0 else []
    beyond = [Text(f"More than {len(seen):,} match; the others stay.", "dim")] if more else []
    done = "They are DONE. " if standing == "completed" else ""
    said = words(*(one.record.door for one in seen))
    consequence = (
        f"{done}Each record will be deleted, and the next {said.call} with its key will RUN the {said.code} "
        "again. "
        + (
            "Whatever they did will then be done twice."
            if standing == "completed"
            else "If an attempt did anything, it will then be done twice."
        )
    )
    output.draw_stderr(table, *hidden, *beyond, Padding(Text(consequence), (1, 0, 1, 2)))
