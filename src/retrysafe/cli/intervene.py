"""What `release` and `resolve` have in common: look, show, ask, act under what was seen, tell."""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe._core.model import Door, Parts, Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import document, short_id, spoken, spoken_standing
from retrysafe.cli.lookup import one_or_listing
from retrysafe.cli.store import admin_of
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.admin import Admin, Note, Query, Sighting


class Which(NamedTuple):
    """The record that was named, and how."""

    key: str
    door: Door | None
    scope: Parts
    store: str | None


class Manner(NamedTuple):
    """How to go about it."""

    by: str | None
    reason: str | None
    yes: bool
    show_keys: bool
    json: bool


class Intervention(NamedTuple):
    """What is to be done, decided upon the record that was seen."""

    consequence: str
    """Told before the question, in a sentence."""
    question: str
    act: Callable[[Admin, Record, Note], bool]
    done: str
    """Told afterwards."""


def intervene(which: Which, manner: Manner, decide: Callable[[Record], Intervention]) -> None:
    """Do it to the one record, if it is abandoned, if somebody agrees, and if it is still as it was seen."""
    with admin_of(which.store) as admin:
        seen = one_or_listing(admin, which.key, which.door, which.scope, show_keys=manner.show_keys)
        _refuse_unless_abandoned(seen)
        # All that can be wrong is found before anybody is asked anything.
        intervention = decide(seen.record)
        if not manner.yes:
            prompt.refuse_if_nobody_is_there()
            _introduce(seen, intervention, show_keys=manner.show_keys)
        note = prompt.note(manner.by, manner.reason)
        if not manner.yes:
            prompt.agree(intervention.question)
        try:
            done = intervention.act(admin, seen.record, note)
        except StoreUnavailable as trouble:
            # Its answer may have been lost on the way.
            raise Failure(str(trouble), "retrysafe audit tells whether it was done.", Exit.STORE) from trouble
        try:
            now, unseen = _as_it_is(admin, seen.record), ""
        except StoreError as trouble:
            # What was done stays done, whether or not it can be looked at.
            now, unseen = None, f"how it stands now cannot be read: {trouble}"
    if done and unseen:
        output.complain(f"it was done; {unseen}", "retrysafe audit has its entry.")
    if manner.json:
        found = document(now, show_keys=manner.show_keys) if now else None
        output.dump(
            {"done": done, "id": seen.record.id.hex(), "by": note.by, "reason": note.reason, "record": found}
        )
    if not done:
        raise Failure(
            f"record {short_id(seen.record.id)} changed meanwhile: {unseen or _spoken(now)}",
            "Nothing was changed by this command.",
        )
    if not manner.json:
        output.write(f"{short_id(seen.record.id)}: {intervention.done}\n")


def _refuse_unless_abandoned(seen: Sighting) -> None:
    record = seen.record
    if seen.standing == "abandoned":
        return
    if seen.standing == "in_progress":
        left = (
            ""
            if record.lease_until is None
            else f" for another {spoken(record.lease_until - seen.now)}, or longer"
        )
        advice = f"Its owner has it{left}. Only abandoned records can be settled by hand."
    else:
        advice = "Its outcome is known. Only abandoned records can be settled by hand."
    raise Failure(
        f"record {short_id(record.id)} is {_spoken(seen)}", f"{advice} Nothing was changed.", Exit.FOUND
    )


def _introduce(seen: Sighting, intervention: Intervention, *, show_keys: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from retrysafe.cli.render_record import panel

    consequence = Padding(Text(intervention.consequence), (1, 0, 1, 2))
    output.tell(panel(seen, show_keys=show_keys), consequence)


def _as_it_is(admin: Admin, record: Record) -> Sighting | None:
    found = admin.list(Query(id=record.id.hex()), 1)
    return found[0] if found else None


def _spoken(sighting: Sighting | None) -> str:
    if sighting is None:
        return "it is gone"
    response = sighting.record.response
    status = f" ({response.status})" if response and sighting.record.state != "in_progress" else ""
    return f"{spoken_standing(sighting.standing)}{status}"
