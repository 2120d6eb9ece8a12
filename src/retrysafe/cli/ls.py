"""`retrysafe ls`: which records there are, those that wait for a person first."""

from collections.abc import Sequence
from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import document, duration, iso, plural, spoken
from retrysafe.cli.options import (
    LARGEST,
    DoorOption,
    JsonOption,
    ScopeOption,
    ShowKeysOption,
    State,
    StoreOption,
    door_name,
    scope_parts,
)
from retrysafe.cli.store import admin_of
from retrysafe.stores.admin import Query, Sighting


def ls(
    store: StoreOption = None,
    state: Annotated[
        list[State] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only these: abandoned, in-progress, completed or failed. Repeatable.",
        ),
    ] = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path", metavar="PATH", help="Only this path or target; a * at its end stands for anything."
        ),
    ] = None,
    older: Annotated[
        float | None,
        typer.Option(
            "--older",
            parser=duration,
            metavar="DURATION",
            help="Created at least so long ago: 90s, 10m, 1h, 2d.",
        ),
    ] = None,
    younger: Annotated[
        float | None,
        typer.Option("--younger", parser=duration, metavar="DURATION", help="Created at most so long ago."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=LARGEST, metavar="N", help="Show no more than so many.")
    ] = 50,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """List records: abandoned ones first, the oldest of them on top, then the youngest."""
    _refuse_nonsense(path, older, younger)
    query = Query(
        standings=frozenset(one.standing for one in state or ()),
        door=door_name(door),
        scope=scope_parts(scope),
        target=path,
        older=older,
        younger=younger,
    )
    with admin_of(store) as admin:
        found = admin.list(query, limit + 1)
    shown, more = found[:limit], len(found) > limit
    if json:
        output.dump(
            {
                "records": [document(one, show_keys=show_keys) for one in shown],
                "more": more,
                "now": iso(shown[0].now) if shown else None,
            }
        )
        return
    if not shown:
        output.say(_nothing(query))
        return
    _draw(shown, show_keys=show_keys)
    if more:
        output.say(
            f"There are more than {plural(limit, 'record')}: --limit shows more of them, filters fewer."
        )


def _refuse_nonsense(path: str | None, older: float | None, younger: float | None) -> None:
    """What could never match is a mistake, and an empty list would hide it."""
    if path is not None and "*" in path[:-1]:
        raise Failure(
            "--path has a * in its middle", "It may only stand at the end, as in '/orders/*'.", Exit.USAGE
        )
    if older is not None and younger is not None and older > younger:
        raise Failure(
            f"nothing is older than {spoken(older)} and younger than {spoken(younger)}",
            "--older gives the least age, --younger the greatest.",
            Exit.USAGE,
        )


def _draw(shown: Sequence[Sighting], *, show_keys: bool) -> None:
    from retrysafe.cli.render_tables import listing

    output.draw(listing(shown, show_keys=show_keys))


def _nothing(query: Query) -> str:
    if query == Query():
        return "There are no records: no request with a key has come, or all have expired."
    return "No record is like this. Without filters, ls lists all that have not expired."
