"""The stored payload of a delivery, as operators see it."""

from typing import TYPE_CHECKING

from retrysafe.cli.format import relative
from retrysafe.stores.admin import Sighting

if TYPE_CHECKING:
    from retrysafe.callbacks.payload import Payload


def readable(stored: bytes) -> "Payload":
    """What is not of the form in which payloads are stored is shown as a body all the same."""
    from retrysafe.callbacks.payload import Payload, unpack  # slow to load, and few records have one
    from retrysafe.callbacks.webhooks import PayloadInvalid

    try:
        return unpack(stored)
    except PayloadInvalid:
        return Payload(stored)


def waits(sighting: Sighting) -> str:
    """Whether a worker handles the payload, and since or from when on."""
    due_at, now = sighting.due_at, sighting.now
    if due_at is None:
        return "handled" if sighting.standing == "completed" else "no worker handles it"
    if sighting.standing != "waiting":
        return "a worker handles it, should this attempt die"
    if due_at > now:
        return f"waits for a worker, again {relative(due_at, now)}"
    return f"waits for a worker, since {relative(due_at, now)}"
