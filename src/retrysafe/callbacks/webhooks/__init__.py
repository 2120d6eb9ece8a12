"""What is known about senders of webhooks: how they sign, where their id is, what a redelivery has in common.

    from retrysafe.callbacks import webhooks

    payments = webhooks.stripe(secret)
    payments.verify(headers, body, now)                     # SignatureInvalid
    payments.identify(headers, body)                        # Identity, or PayloadInvalid

Functions of headers and raw bytes: nothing here waits, reads a clock or knows a framework.
"""

from retrysafe.callbacks.webhooks.cloudevents import cloudevents
from retrysafe.callbacks.webhooks.github import github
from retrysafe.callbacks.webhooks.signatures import Algorithm, Encoding, Secrets
from retrysafe.callbacks.webhooks.signed import signed
from retrysafe.callbacks.webhooks.slack import slack
from retrysafe.callbacks.webhooks.standard import sign, standard
from retrysafe.callbacks.webhooks.stripe import stripe
from retrysafe.callbacks.webhooks.webhook import Headers, Identity, PayloadInvalid, SignatureInvalid, Webhook

__all__ = [
    "Algorithm",
    "Encoding",
    "Headers",
    "Identity",
    "PayloadInvalid",
    "Secrets",
    "SignatureInvalid",
    "Webhook",
    "cloudevents",
    "github",
    "sign",
    "signed",
    "slack",
    "standard",
    "stripe",
]
