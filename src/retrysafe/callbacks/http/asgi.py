"""A delivery over ASGI: held like a request that its endpoint claims, and claimed by the id of its event."""

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Response
from retrysafe._core.steps import Delivery
from retrysafe.asgi.held import HeldExchange
from retrysafe.asgi.types import Connection
from retrysafe.callbacks.http.exchange import CallbackExchange
from retrysafe.callbacks.receipts import Receipts


class ReceivingExchange(CallbackExchange, HeldExchange):
    async def claim_event(
        self, receipts: "Receipts[object]", delivery: Delivery, scope: Connection
    ) -> Attempt | Response:
        """Claim an event: what runs from now on, or what its sender is to be sent instead."""
        self.begin_delivery(receipts, delivery)
        return await self.claim_key(receipts.rules, scope)
