"""The customers, and a client that retries for them as a good client does.

One key per *intent*, made before the first attempt; the same key and the same bytes with every retry; a pause
that grows, or the one that the server asks for; and no guessing: a response that did not arrive says nothing
about whether the payment was made.
"""

import json
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import NamedTuple
from urllib.parse import urlencode

from retrysafe.demo.network import Fault, Faults

CUSTOMERS = 60
"""Enough for some of every fault, few enough for a run of three seconds."""

SLOW = 0.9
"""Seconds: longer than the client's timeout, so that the retry comes while the first request still runs."""

TIMEOUT = 0.6
"""Seconds until the client gives up on its first request; twice that for the second, and so on: a short
timeout does not help a slow server.  Real clients start with more; a demo should not take minutes."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between attempts: the pause doubles from one to the other."""

_NAMES = "ada bob cleo dan eve finn gwen hugo iris jon kira leo mia noah olga paul rosa sam tess uma".split()

_FAULTS: list[tuple[Fault, float, int, int]] = [
    # what the network does to the first request, seconds at the card network, clicks, how many customers
    ("response lost", 0.0, 1, 12),
    ("response late", 0.0, 1, 5),
    ("request lost", 0.0, 1, 7),
    ("none", SLOW, 1, 6),
    ("none", 0.05, 2, 8),
]


class Payment(NamedTuple):
    """What a customer means to pay, once."""

    order: str
    customer: str
    cents: int
    key: str
    """Belongs to the intent: made when the customer sees the form, not when a request is sent."""
    seconds: float = 0.0
    """How long the card network takes to charge it."""
    clicks: int = 1
    """Two: a double click."""


class Workload(NamedTuple):
    payments: list[Payment]
    faults: Faults

    @property
    def uncharged(self) -> Payment:
        """In progress when the server is killed: its money has not been taken yet."""
        return self.payments[2]

    @property
    def charged(self) -> Payment:
        """In progress when the server is killed: its money has just been taken."""
        return self.payments[3]


def make_workload(seed: int) -> Workload:
    """Who pays what, who double-clicks, and whose request meets which fault.

    The number of each fault is fixed and only their order is random, so that every run has some of each,
    whatever its seed.
    """
    random = Random(seed)  # noqa: S311 - no secret; and repeatable
    cases: list[tuple[Fault, float, int]]
    cases = [(fault, seconds, clicks) for fault, seconds, clicks, number in _FAULTS for _ in range(number)]
    plain: tuple[Fault, float, int] = ("none", 0.0, 1)
    cases += [plain] * (CUSTOMERS - len(cases) - 2)
    random.shuffle(cases)
    # The two payments during which the server is killed come early and meet no other fault.
    cases[2:2] = [plain, plain]
    payments: list[Payment] = []
    first: dict[str, Fault] = {}
    for number, (fault, seconds, clicks) in enumerate(cases, 1):
        order = f"order-{number:02}"
        cents = random.randrange(250, 9_999)
        # A real customer's key is random (`uuid4`); here the whole run can be repeated from its seed.
        key = f"{random.getrandbits(64):016x}"
        payments.append(Payment(order, random.choice(_NAMES), cents, key, seconds, clicks))
        first[order] = fault
    return Workload(payments, Faults(seed, first))


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Paid(NamedTuple):
    """A receipt, and how many requests it took."""

    receipt: str
    sent: int
    unanswered: int
    """Requests without a response."""


class Refused(Exception):
    """The server refused the payment, and a retry would not change that."""


class Stopped(Exception):
    """The demo ends."""


class Client:
    def __init__(self, port: int, *, keys: bool, stop: threading.Event) -> None:
        self._port = port
        self._keys = keys
        self._stop = stop

    def pay(self, payment: Payment, click: int = 1) -> Paid:
        """Send the payment until there is a receipt for it."""
        jitter = Random(f"{payment.order} {click}")  # noqa: S311 - no secret; and repeatable
        pause, unanswered, attempts = FIRST_PAUSE, 0, 0
        while True:
            attempts += 1
            response = self._send(payment, f"{payment.order}.{click}.{attempts}", TIMEOUT * attempts)
            if response is None:
                # Was the request lost, or the response?  With a key it does not matter: send it again.
                unanswered += 1
                wait = pause
            elif response.status == 201:
                return Paid(json.loads(response.body)["receipt"], attempts, unanswered)
            elif (hint := response.headers.get("retry-after-ms")) is not None:
                # 409 in-flight, or 503: the server says when a retry makes sense.
                wait = int(hint) / 1000
            elif response.status == 409:
                # outcome-unknown: an operator has to find out.  The customer waits, and does not pay again.
                wait = LONGEST_PAUSE
            else:
                raise Refused(f"{payment.order}: {response.status} {response.body.decode(errors='replace')}")
            # Jitter, or all clients that failed together retry together.
            if self._stop.wait(min(wait, LONGEST_PAUSE) * jitter.uniform(0.8, 1.2)):
                raise Stopped
            pause = min(pause * 2, LONGEST_PAUSE)

    def _send(self, payment: Payment, request_id: str, timeout: float) -> Response | None:
        """One request.  `None`: no response arrived, for whatever reason."""
        form = urlencode({"order": payment.order, "cents": payment.cents, "seconds": payment.seconds})
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Customer": payment.customer,
            "X-Request-Id": request_id,
        }
        if self._keys:
            headers["Idempotency-Key"] = payment.key
        connection = HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        try:
            connection.request("POST", "/payments", form, headers)
            response = connection.getresponse()
            length = response.length
            body = response.read()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()
        if length is None:
            # A server that is killed while it sends headers leaves half of them, which `http.client` takes
            # for all.  This API always sends Content-Length, so a response without it is incomplete.
            return None
        return Response(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
