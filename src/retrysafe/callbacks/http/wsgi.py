"""A delivery over WSGI: held like a request that its view claims, and claimed by the id of its event."""

from typing import Any

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Request, Response
from retrysafe._core.steps import Delivery
from retrysafe.callbacks.http.exchange import CallbackExchange
from retrysafe.callbacks.receipts import Receipts
from retrysafe.wsgi.held import HeldExchange


class ReceivingExchange(CallbackExchange, HeldExchange):
    def claim_event(
        self, receipts: Receipts[Any], delivery: Delivery, request: Request, route: str
    ) -> Attempt | Response:
        """Claim an event: what runs from now on, or what its sender is to be sent instead."""
        self.begin_delivery(receipts, delivery)
        return self.claim_key(receipts.rules, request, route)
