"""`retrysafe resolve KEY`: it is known how it ended, so answer retries accordingly."""

from typing import Annotated

import typer

from retrysafe._core.model import Final, Record
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import sized
from retrysafe.cli.intervene import Intervention, Manner, Which, intervene
from retrysafe.cli.manual_response import Outcome, Said, final
from retrysafe.cli.options import (
    ByOption,
    DoorOption,
    JsonOption,
    KeyArgument,
    ReasonOption,
    ScopeOption,
    ShowKeysOption,
    StoreOption,
    YesOption,
    door_name,
    scope_parts,
)
from retrysafe.stores.admin import Admin, Note

_ANSWER = "How it ended, and what retries get"


def resolve(
    key: KeyArgument,
    done: Annotated[bool, typer.Option("--done", rich_help_panel=_ANSWER, help="It was done.")] = False,
    failed: Annotated[bool, typer.Option("--failed", rich_help_panel=_ANSWER, help="It failed.")] = False,
    status: Annotated[
        int | None,
        typer.Option(
            "--status",
            metavar="N",
            rich_help_panel=_ANSWER,
            help="The status that retries get.",
            show_default="what had begun to leave, else 200 or 500",
        ),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(
            "--body",
            rich_help_panel=_ANSWER,
            metavar="TEXT|@FILE",
            help="The body that retries get; @- is stdin. Without one, retries are told that it is missing.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            rich_help_panel=_ANSWER,
            metavar="'NAME: VALUE'",
            help="A header that retries get. Repeatable.",
        ),
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            metavar="TYPE",
            rich_help_panel=_ANSWER,
            help="Of the body.",
            show_default="guessed from the body",
        ),
    ] = None,
    store: StoreOption = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Settle an abandoned record as you found out: retries are answered so, and nothing runs again."""
    if done == failed:
        raise Failure(
            "say how it ended: either --done or --failed",
            "If nothing happened at all, retrysafe release lets the next retry run.",
            Exit.USAGE,
        )
    outcome: Outcome = "completed" if done else "failed"
    said = Said(status, body, tuple(header or ()), content_type)
    which = Which(key, door_name(door), scope_parts(scope), store)
    intervene(
        which, Manner(by, reason, yes, show_keys, json), lambda seen: _decide(final(outcome, said, seen))
    )


def _decide(kept: Final) -> Intervention:
    again = (
        "The handler will not run again."
        if kept.state == "completed"
        else 'The handler will not run again, unless the service chose failed="retry".'
    )

    def act(admin: Admin, seen: Record, note: Note) -> bool:
        return admin.resolve(seen, kept, note)

    how = "done" if kept.state == "completed" else "failed"
    return Intervention(
        consequence=f"Retries with this key will be answered {_spoken(kept)}. {again}",
        question=f"Resolve it as {how}?",
        act=act,
        done=f"resolved as {how}; retries are answered {_spoken(kept)}",
    )


def _spoken(kept: Final) -> str:
    status = kept.response.status
    if kept.omitted:
        return f"{status} with an empty body that is marked as omitted"
    return (
        f"{status} with {sized(len(kept.response.body))} of body"
        if kept.response.body
        else f"{status} without a body"
    )
