"""Cashiers whose network loses responses, who click twice, and who try again until they know."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from threading import Event
from typing import Literal, NamedTuple

from examples.erp.tests.till import Till
from retrysafe.testing.adapters.client import Reply

PATIENCE = 60.0
"""Seconds until a request that gets no final response is given up."""

TROUBLE: list[Literal["none", "lost", "hung up", "double click"]] = [
    "none",
    "none",
    "lost",
    "hung up",
    "double click",
]
"""What may happen to a request: its response is lost, or its connection before that, or it is sent twice."""


class Request(NamedTuple):
    method: str
    path: str
    body: dict[str, object]
    reference: str
    key: str | None


class Ended(NamedTuple):
    """A request and its final response."""

    request: Request
    reply: Reply


class Cashier:
    def __init__(self, name: str, till: Till, *, keys: bool) -> None:
        self.name = name
        self._till = till
        self._keys = keys
        self._random = random.Random(name)
        self._count = 0
        self.ended: list[Ended] = []
        self.lost = 0
        """Responses that were there, and were not read."""
        self.broken = 0
        """Connections that the server broke."""

    def work(self, customers: int, closing: Event) -> None:
        """Serve at least so many, and until it closes."""
        served = 0
        while served < customers or not closing.is_set():
            for serve in (self.sell, self.sell_by_card, self.take_order, self.transfer):
                serve()
                served += 1

    def sell(self) -> None:
        self.send("POST", "/pos/sales", "receipt", items=self.items(), cash=True)

    def sell_by_card(self) -> None:
        sale = self.send("POST", "/pos/sales", "receipt", items=self.items())
        if sale.status == 201:
            self.pay(sale, by="card" if self._keys else "cash")  # without a key, cards are refused

    def take_order(self) -> None:
        order = self.send("POST", "/orders", "reference", items=self.items())
        if order.status == 201:
            number = order.document["number"]
            changed = self.send("PATCH", f"/orders/{number}", "reference", items=self.items())
            self.pay(changed, by="cash")

    def transfer(self) -> None:
        self.send("POST", "/stock/transfers", "document", items=self.items())

    def pay(self, bill: Reply, by: str) -> None:
        shown = bill.document
        self.send("POST", f"/payments/{by}", "receipt", bill=shown["number"], amount=shown["total"])

    def items(self) -> dict[str, int]:
        wanted = self._random.sample(["apples", "bread", "cheese"], self._random.randint(1, 3))
        return {name: self._random.randint(1, 3) for name in wanted}

    def send(self, method: str, path: str, named: str, **content: object) -> Reply:
        """A new request, with a reference and a key of its own; its final response."""
        self._count += 1
        reference = f"{self.name}-{self._count}"
        body = {named: reference, **content}
        request = Request(method, f"/api/v1{path}", body, reference, reference if self._keys else None)
        match self._random.choice(TROUBLE):
            case "none":
                pass
            case "lost" | "hung up" as trouble:
                self.lose(request, at_once=trouble == "hung up")
            case "double click":
                with ThreadPoolExecutor(2) as fingers:
                    clicks = [fingers.submit(self.repeat, request) for _ in range(2)]
                replies = [click.result() for click in clicks]
                # Where a worker was killed, a click may come before its outcome is known.
                known = {reply.essence for reply in replies if reply.code != "outcome-unknown"}
                assert not self._keys or len(known) <= 1, replies
        reply = self.repeat(request)
        self.ended.append(Ended(request, reply))
        return reply

    def lose(self, request: Request, *, at_once: bool) -> None:
        try:
            self._till.lose(request.method, request.path, request.body, request.key, at_once=at_once)
        except OSError:
            self.broken += 1
        else:
            self.lost += not at_once

    def repeat(self, request: Request) -> Reply:
        """Until there is a final response."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                reply = self._till.ask(request.method, request.path, request.body, request.key)
            except (OSError, HTTPException):
                self.broken += 1
            else:
                advice = reply.header("X-Should-Retry")
                if advice == "false" or (advice is None and reply.status < 500):
                    return reply
            time.sleep(0.1)
        raise AssertionError(f"{request} got no final response")
