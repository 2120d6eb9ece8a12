"""`retrysafe release KEY`: delete an abandoned record, so that the next request with its key runs."""

from retrysafe._core.model import Record
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene, refusal
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


def release(
    key: KeyArgument,
    store: StoreOption = None,
    door: DoorOption = None,
    scope: ScopeOption = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a record: the next request with its key RUNS. For when it is known that nothing was done."""
    selection = Selection(key, door_name(door), scope_parts(scope), store)
    intervene(selection, Settings(by, reason, yes, show_keys, json), _decide)


def _decide(seen: Sighting) -> Intervention:
    if seen.standing != "abandoned":
        raise refusal(seen, "Its outcome is known. Only abandoned records can be released.")
    return Intervention(
        consequence="The record will be deleted, and the next request with this key will RUN the handler "
        f"again. {_danger(seen.record)}",
        question="Release it?",
        act=_release,
        done="released; the next request with this key runs",
    )


def _danger(seen: Record) -> str:
    if seen.checkpointed:
        return "Part of its response was sent: whatever leads to that response will then be done twice."
    if seen.mode == "tx":
        return (
            "What the first attempt did in its transaction was rolled back; other effects would be repeated."
        )
    return "If the first attempt did anything, it will then be done twice."


def _release(admin: Admin, seen: Record, note: Note) -> bool:
    return admin.release(seen, note)
