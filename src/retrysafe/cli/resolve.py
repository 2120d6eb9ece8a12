"""`retrysafe resolve KEY`: the operator found out how it ended, so retries get that outcome."""

from typing import Annotated

import typer

from retrysafe._core.model import Record
from retrysafe.cli import consequences
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene, refusal
from retrysafe.cli.manual_response import (
    OperationOptions,
    Outcome,
    ResponseOptions,
    build_final,
    build_outcome,
    refuse_options,
)
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

_ENDED = "How it ended"
_RESPONSE = "What retries of a request get"
_OPERATION = "What retries of an operation get"


def resolve(
    key: KeyArgument,
    done: Annotated[bool, typer.Option("--done", rich_help_panel=_ENDED, help="It was done.")] = False,
    failed: Annotated[bool, typer.Option("--failed", rich_help_panel=_ENDED, help="It failed.")] = False,
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
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            metavar="JSON|@FILE",
            rich_help_panel=_OPERATION,
            help="With --done: what it returned, as JSON; @- is stdin. Without one, retries get no value.",
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            metavar="TEXT",
            rich_help_panel=_OPERATION,
            help="With --failed: what retries are told.",
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
    """Settle an abandoned record as done or failed: retries get that outcome, and nothing runs again."""
    if done == failed:
        raise Failure(
            "either --done or --failed is required",
            "If nothing happened, use retrysafe release: the next retry then runs.",
            Exit.USAGE,
        )
    outcome: Outcome = "completed" if done else "failed"
    given = ResponseOptions(status, body, tuple(header or ()), content_type)
    called = OperationOptions(value, message)
    selection = Selection(key, door_name(door), scope_parts(scope), store)
    intervene(
        selection,
        Settings(by, reason, yes, show_keys, json),
        lambda seen: _decide(seen, outcome, given, called),
    )


def _decide(
    sighting: Sighting, outcome: Outcome, given: ResponseOptions, called: OperationOptions
) -> Intervention:
    record = sighting.record
    if sighting.standing not in ("abandoned", "waiting") or record.state != "in_progress":
        raise refusal(sighting, "Its outcome is known. Only abandoned records can be resolved.")
    if record.door == "operation":
        refuse_options(given, "an operation has no response", "Give --value or --message.")
        final = build_outcome(outcome, called)
    else:
        refuse_options(called, "a request has no value", "Give --status, --body or --header.")
        final = build_final(outcome, given, record)

    def act(admin: Admin, seen: Record, note: Note) -> bool:
        return admin.resolve(seen, final, note)

    result = consequences.result_text(record, final)
    how = "done" if final.state == "completed" else "failed"
    return Intervention(
        consequence=consequences.of_resolution(sighting, final),
        question=f"Resolve it as {how}?",
        act=act,
        done=f"resolved as {how}; retries get {result}",
    )
