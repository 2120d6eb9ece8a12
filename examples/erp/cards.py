"""The card provider, as the ERP calls it.  `examples/orders/provider.py` is one to try it with."""

from typing import Any, cast

import httpx
from flask import current_app


class Declined(Exception):
    """The card does not pay this."""


def charge(amount: int, reference: str, key: str) -> str:
    """Take money from a card; gives the provider's id of it.  With the same key, it is taken once."""
    config = cast("dict[str, Any]", current_app.config)
    with httpx.Client(base_url=config["CARD_PROVIDER"], timeout=5) as provider:
        reserved = provider.post(
            "/charges", json={"amount": amount, "reference": reference}, headers={"Idempotency-Key": key}
        )
        if reserved.status_code == 402:
            raise Declined
        id: str = reserved.raise_for_status().json()["id"]
        captured = provider.post(f"/charges/{id}/capture", headers={"Idempotency-Key": f"{key}-capture"})
        captured.raise_for_status()
        return id
