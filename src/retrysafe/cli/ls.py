"""`retrysafe ls`: the records that there are, abandoned ones first."""

from collections.abc import Sequence
from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.format import iso, plural, record_document
from retrysafe.cli.lookup import build_query
from retrysafe.cli.options import (
    ActionOption,
    DoorOption,
    JsonOption,
    OlderOption,
    PathOption,
    ProfileOption,
    RequestIdOption,
    ScopeOption,
    ShowKeysOption,
    State,
    StoreOption,
    YoungerOption,
    completed_word,
    door_name,
    number,
    scope_parts,
)
from retrysafe.cli.store import open_admin
from retrysafe.stores.admin import Query, Sighting


def ls(
    store: StoreOption = None,
    state: Annotated[
        list[State] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only these: abandoned, waiting, in-progress, completed or failed. Repeatable.",
        ),
    ] = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    action: ActionOption = None,
    path: PathOption = None,
    request_id: RequestIdOption = None,
    older: OlderOption = None,
    younger: YoungerOption = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=number(1), metavar="N", help="Show at most N records.")
    ] = 50,
    profile: ProfileOption = None,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """List records: abandoned ones first, oldest first; then the others, youngest first."""
    query = build_query(
        [one.standing for one in state or ()],
        door_name(door),
        scope_parts(scope),
        action=action,
        path=path,
        request_id=request_id,
        older=older,
        younger=younger,
    )
    completed = completed_word(profile)
    with open_admin(store) as admin:
        found = admin.list(query, limit + 1)
    shown, more = found[:limit], len(found) > limit
    if json:
        output.write_json(
            {
                "records": [record_document(one, show_keys=show_keys, completed=completed) for one in shown],
                "more": more,
                "now": iso(shown[0].now) if shown else None,
            }
        )
        return
    if not shown:
        output.notice(_nothing(query))
        return
    _draw(shown, show_keys=show_keys, completed=completed)
    if more:
        output.notice(f"There are more than {plural(limit, 'record')}. Give a higher --limit, or a filter.")


def _draw(shown: Sequence[Sighting], *, show_keys: bool, completed: str) -> None:
    from retrysafe.cli.render_tables import records_table

    output.draw(records_table(shown, show_keys=show_keys, completed=completed))


def _nothing(query: Query) -> str:
    if query == Query():
        return "There are no records: nothing was done with a key, or all records have expired."
    return "No record matches. Without filters, ls lists all that have not expired."
