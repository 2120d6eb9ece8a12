"""Customers who send each request again until they have its final response."""

import random
import time
from threading import Event
from typing import NamedTuple

import httpx

from examples.orders.tests.running import PATIENCE


class Ended(NamedTuple):
    """A request and its final response."""

    path: str
    key: str
    body: dict[str, object]
    status: int
    content: bytes


class Customer:
    """Orders one cart after the other, and cancels some."""

    def __init__(self, name: str, address: str, closing: Event) -> None:
        self.name = name
        self._address = address
        self._closing = closing
        self._count = 0
        self.ended: list[Ended] = []
        self.broken = 0
        """How often a response was lost."""

    def shop(self) -> None:
        with httpx.Client(base_url=self._address, timeout=PATIENCE) as client:
            while not self._closing.is_set():
                wanted = random.sample(["apples", "bread", "cheese"], random.randint(1, 3))
                ordered = self.request(
                    client, "/orders", items={name: random.randint(1, 4) for name in wanted}
                )
                if ordered.status == 201 and random.random() < 0.3:
                    number = httpx.Response(201, content=ordered.content).json()["order"]
                    self.request(client, f"/orders/{number}/cancel")

    def request(self, client: httpx.Client, path: str, **content: object) -> Ended:
        """A new request, with a key of its own."""
        self._count += 1
        key = f"{self.name}-{self._count}"
        body = {"cart": key, **content} if content else {}
        ended = Ended(path, key, body, *self.send(client, path, key, body))
        self.ended.append(ended)
        return ended

    def send(self, client: httpx.Client, path: str, key: str, body: dict[str, object]) -> tuple[int, bytes]:
        """Until there is a final response.  As long as servers are killed, it may take any time."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self._closing.is_set():
                until = time.monotonic() + PATIENCE
            try:
                response = client.post(
                    path, json=body, headers={"Idempotency-Key": key, "X-Customer": self.name}
                )
            except httpx.TransportError:
                self.broken += 1
            else:
                if response.headers.get("x-should-retry") != "true" and response.status_code < 500:
                    return response.status_code, response.content
            time.sleep(0.05)
        raise AssertionError(f"{key} got no final response")

    def repeat_all(self) -> list[str]:
        """Everything once more.  Gives the keys whose responses differ."""
        with httpx.Client(base_url=self._address, timeout=PATIENCE) as client:
            return [
                one.key
                for one in self.ended
                if self.send(client, one.path, one.key, one.body) != (one.status, one.content)
            ]
