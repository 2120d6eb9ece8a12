"""`retrysafe release KEY`: it is known that nothing happened, so let the next retry run."""

from retrysafe._core.model import Record
from retrysafe.cli.intervene import Intervention, Manner, Which, intervene
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
    """Forget an abandoned record: the next retry RUNS. For when it is known that nothing was done."""
    which = Which(key, door_name(door), scope_parts(scope), store)
    intervene(which, Manner(by, reason, yes, show_keys, json), _decide)


def _release(admin: Admin, seen: Record, note: Note) -> bool:
    return admin.release(seen, note)


def _decide(seen: Record) -> Intervention:
    return Intervention(
        consequence="The record will be forgotten, and the next retry with this key will RUN the handler "
        f"again. {_danger(seen)}",
        question="Release it?",
        act=_release,
        done="released; the next retry runs",
    )


def _danger(seen: Record) -> str:
    if seen.checkpointed:
        return "Part of its answer had been sent: whatever leads to that answer will then be done twice."
    if seen.mode == "tx":
        return (
            "What the first attempt did in its transaction was rolled back; other effects would be repeated."
        )
    return "If the first attempt did anything, it will then have been done twice."
