"""`retrysafe resolve KEY`: the operator found out how it ended, so retries get that outcome."""

from typing import Annotated

import typer

from retrysafe._core.model import Final, Record
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import size_text
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene, refusal
from retrysafe.cli.manual_response import Outcome, ResponseOptions, build_final
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
from retrysafe.stores.admin import Admin, Note, Sighting

_RESPONSE = "How it ended, and what retries get"


def resolve(
    key: KeyArgument,
    done: Annotated[bool, typer.Option("--done", rich_help_panel=_RESPONSE, help="It was done.")] = False,
    failed: Annotated[bool, typer.Option("--failed", rich_help_panel=_RESPONSE, help="It failed.")] = False,
    status: Annotated[
        int | None,
        typer.Option(
            "--status",
            metavar="N",
            rich_help_panel=_RESPONSE,
            help="The status that retries get.",
            show_default="what was sent, else 200 or 500",
        ),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(
            "--body",
            rich_help_panel=_RESPONSE,
            metavar="TEXT|@FILE",
            help="The body that retries get; @- is stdin. Without one, a header says that it is missing.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            rich_help_panel=_RESPONSE,
            metavar="'NAME: VALUE'",
            help="A header that retries get. Repeatable.",
        ),
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            metavar="TYPE",
            rich_help_panel=_RESPONSE,
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
    """Settle an abandoned record as done or failed: retries get that response, and nothing runs again."""
    if done == failed:
        raise Failure(
            "either --done or --failed is required",
            "If nothing happened, use retrysafe release: the next retry then runs.",
            Exit.USAGE,
        )
    outcome: Outcome = "completed" if done else "failed"
    given = ResponseOptions(status, body, tuple(header or ()), content_type)
    selection = Selection(key, door_name(door), scope_parts(scope), store)
    intervene(
        selection,
        Settings(by, reason, yes, show_keys, json),
        lambda seen: _decide(seen, outcome, given),
    )


def _decide(sighting: Sighting, outcome: Outcome, given: ResponseOptions) -> Intervention:
    if sighting.standing != "abandoned":
        raise refusal(sighting, "Its outcome is known. Only abandoned records can be resolved.")
    final = build_final(outcome, given, sighting.record)
    again = (
        "The handler will not run again."
        if final.state == "completed"
        else 'The handler will not run again, unless the service chose failed="retry".'
    )

    def act(admin: Admin, seen: Record, note: Note) -> bool:
        return admin.resolve(seen, final, note)

    how = "done" if final.state == "completed" else "failed"
    return Intervention(
        consequence=f"Retries with this key will get {_describe(final)}. {again}",
        question=f"Resolve it as {how}?",
        act=act,
        done=f"resolved as {how}; retries get {_describe(final)}",
    )


def _describe(final: Final) -> str:
    status = final.response.status
    if final.omitted:
        return f"{status} with an empty body that is marked as omitted"
    return (
        f"{status} with {size_text(len(final.response.body))} of body"
        if final.response.body
        else f"{status} without a body"
    )
