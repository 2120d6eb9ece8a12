"""The payment provider, as the shop calls it.  Every call carries a key, so that it may be repeated."""

import os
from typing import Literal

import httpx

_provider = httpx.Client(base_url=os.environ.get("SHOP_PROVIDER", "http://127.0.0.1:9000"), timeout=5)


class Declined(Exception):
    """The provider will not charge this."""


def charge(amount: int, reference: str, key: str) -> str:
    """Reserve money, to be captured later.  Gives the charge's id.  What is never captured, expires."""
    response = _provider.post(
        "/charges", json={"amount": amount, "reference": reference}, headers={"Idempotency-Key": key}
    )
    if response.status_code == 402:
        raise Declined
    id: str = response.raise_for_status().json()["id"]
    return id


def send(what: Literal["capture", "refund"], charge: str, key: str) -> None:
    response = _provider.post(f"/charges/{charge}/{what}", headers={"Idempotency-Key": key})
    response.raise_for_status()
