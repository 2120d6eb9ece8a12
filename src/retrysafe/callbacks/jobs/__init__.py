"""Jobs that call back: the launch, the envelope that the job reads, and the delivery of its callback.

    envelope = Envelope.launch(run_id=run.id, callback_url="https://service.example/callbacks")
    envelope.write("envelope.json")                     # in the service

    envelope = Envelope.read("envelope.json")           # in the job
    callback = envelope.callback(status="completed", result_uri="s3://results/1.json")
    deliver(callback, url=envelope.context.callback_url, folder="callbacks")

Needs the extra `callbacks`.
"""

from retrysafe.callbacks.jobs.backoff import BackOff
from retrysafe.callbacks.jobs.delivery import (
    AttemptOptions,
    DeliveryOptions,
    NotDelivered,
    deliver,
    deliver_async,
    deliver_pending,
    deliver_pending_async,
)
from retrysafe.callbacks.jobs.envelope import Callback, Envelope, ExecutionContext, new_callback_id
from retrysafe.callbacks.jobs.errors import (
    CallbackChanged,
    DamagedFile,
    DeliveryError,
    DeliveryFailed,
    DeliveryRefused,
    FolderError,
)
from retrysafe.callbacks.jobs.flow import Delivered
from retrysafe.callbacks.jobs.pending import PendingCallback

__all__ = [
    "AttemptOptions",
    "BackOff",
    "Callback",
    "CallbackChanged",
    "DamagedFile",
    "Delivered",
    "DeliveryError",
    "DeliveryFailed",
    "DeliveryOptions",
    "DeliveryRefused",
    "Envelope",
    "ExecutionContext",
    "FolderError",
    "NotDelivered",
    "PendingCallback",
    "deliver",
    "deliver_async",
    "deliver_pending",
    "deliver_pending_async",
    "new_callback_id",
]
