"""Callbacks: events that are delivered more than once, handled once, and none lost.

    finished = receipts(guard, source="jobs", id="callback_id", subject="run_id")

    @app.post("/callbacks")
    @finished.fastapi
    def handle(event: JobFinished, db: Db) -> None: ...

    with suppress(AlreadyHandled), finished.handling(event):      # queues and scripts; `async with`, too
        ...

The second door to the engine, beside requests and operations: the same records, states, leases and
transactions.
"""

from retrysafe.callbacks.handling import AlreadyHandled, Handled, Handling
from retrysafe.callbacks.options import CallbackOptions
from retrysafe.callbacks.payload import Payload
from retrysafe.callbacks.receipt import Receipt
from retrysafe.callbacks.receipts import Receipts, receipts
from retrysafe.callbacks.webhooks import PayloadInvalid, SignatureInvalid, Webhook
from retrysafe.policy import Retries
from retrysafe.refusals import (
    InFlight,
    KeyRefused,
    KeyReused,
    OutcomeUnknown,
    PayloadRefused,
    PreviouslyFailed,
    Refused,
    SubjectUnknown,
    Unavailable,
    Undone,
)

__all__ = [
    "AlreadyHandled",
    "CallbackOptions",
    "Handled",
    "Handling",
    "InFlight",
    "KeyRefused",
    "KeyReused",
    "OutcomeUnknown",
    "Payload",
    "PayloadInvalid",
    "PayloadRefused",
    "PreviouslyFailed",
    "Receipt",
    "Receipts",
    "Refused",
    "Retries",
    "SignatureInvalid",
    "SubjectUnknown",
    "Unavailable",
    "Undone",
    "Webhook",
    "receipts",
]
