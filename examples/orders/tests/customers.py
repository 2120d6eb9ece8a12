"""Customers who want something, and send it again until they know what became of it."""

import random
import time
from threading import Event
from typing import NamedTuple

import httpx

from examples.orders.tests.running import PATIENCE


class Told(NamedTuple):
    """What became of one wish."""

    path: str
    key: str
    body: dict[str, object]
    status: int
    answer: bytes


class Customer:
    """Orders one cart after the other, and cancels some."""

    def __init__(self, name: str, address: str, closing: Event) -> None:
        self.name = name
        self._address = address
        self._closing = closing
        self._count = 0
        self.told: list[Told] = []
        self.broken = 0
        """How often an answer was lost."""

    def shop(self) -> None:
        with httpx.Client(base_url=self._address, timeout=PATIENCE) as client:
            while not self._closing.is_set():
                wanted = random.sample(["apples", "bread", "cheese"], random.randint(1, 3))
                ordered = self.want(client, "/orders", items={name: random.randint(1, 4) for name in wanted})
                if ordered.status == 201 and random.random() < 0.3:
                    number = httpx.Response(201, content=ordered.answer).json()["order"]
                    self.want(client, f"/orders/{number}/cancel")

    def want(self, client: httpx.Client, path: str, **content: object) -> Told:
        """Something new, with a key of its own."""
        self._count += 1
        key = f"{self.name}-{self._count}"
        body = {"cart": key, **content} if content else {}
        told = Told(path, key, body, *self.send(client, path, key, body))
        self.told.append(told)
        return told

    def send(self, client: httpx.Client, path: str, key: str, body: dict[str, object]) -> tuple[int, bytes]:
        """Until there is an answer that settles it.  As long as servers are killed, it may take any time."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self._closing.is_set():
                until = time.monotonic() + PATIENCE
            try:
                answer = client.post(
                    path, json=body, headers={"Idempotency-Key": key, "X-Customer": self.name}
                )
            except httpx.TransportError:
                self.broken += 1
            else:
                if answer.headers.get("x-should-retry") != "true" and answer.status_code < 500:
                    return answer.status_code, answer.content
            time.sleep(0.05)
        raise AssertionError(f"nobody tells what became of {key}")

    def ask_again(self) -> list[str]:
        """Everything once more.  Gives the keys that are not answered as they were."""
        with httpx.Client(base_url=self._address, timeout=PATIENCE) as client:
            return [
                one.key
                for one in self.told
                if self.send(client, one.path, one.key, one.body) != (one.status, one.answer)
            ]
