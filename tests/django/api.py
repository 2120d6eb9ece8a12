"""What tests of REST framework and ninja share: how they ask, and what an effect is."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.test import Client

from tests.django.shop.models import Order

runs: list[str] = []
"""Of whatever a test protects, one entry for each run."""


def order(label: str = "-") -> dict[str, Any]:
    """The effect of a view."""
    runs.append(label)
    Order.objects.create(label=label)
    return {"label": label, "run": len(runs)}


def send(
    client: Client, url: str, body: object = None, method: str = "POST", key: str = "k1", **more: Any
) -> Any:
    """A request with a key."""
    headers = {"Idempotency-Key": key, **more.pop("headers", {})}
    given: dict[str, Any] = {"data": json.dumps({} if body is None else body), **more}
    given.setdefault("content_type", "application/json")
    return client.generic(method, url, headers=headers, **given)


def send_twice(client: Client, url: str, body: object = None, **more: Any) -> tuple[Any, Any]:
    """A request and its retry."""
    return send(client, url, body, **more), send(client, url, body, **more)


def is_replay(response: Any) -> bool:
    return bool(response.headers.get("Idempotent-Replayed") == "true")


def check_replayed(first: Any, second: Any, status: int) -> None:
    """The same status and bytes, from one run."""
    assert (first.status_code, second.status_code) == (status, status), (first.content, second.content)
    assert not is_replay(first)
    assert is_replay(second)
    assert first.content == second.content


@contextmanager
def atomic_requests(*aliases: str) -> Generator[None]:
    for alias in aliases:
        connections.settings[alias]["ATOMIC_REQUESTS"] = True
    try:
        yield
    finally:
        for alias in aliases:
            connections.settings[alias]["ATOMIC_REQUESTS"] = False
