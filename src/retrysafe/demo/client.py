"""A client that retries as a good client does.

One key per *intent*, made before the first try; the same key and the same bytes with every retry; a pause
that grows, or the one that the server asks for; and no guessing: an answer that did not come says nothing
about whether the payment was made.
"""

import json
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import NamedTuple
from urllib.parse import urlencode

from retrysafe.demo.network import Fate, Mishaps

PATIENCE = 0.6
"""Seconds until a client gives up on its first request; twice that for the second, and so on: impatience does
not help a slow server.  Real clients begin with more, but nobody watches a demo so long."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""The pause doubles from one to the other."""


class Payment(NamedTuple):
    """What a customer means to pay, once."""

    order: str
    customer: str
    cents: int
    key: str
    """Belongs to the intent: made when the customer sees the form, not when a request is sent."""
    seconds: float = 0.0
    """How long the card network takes over it."""
    clicks: int = 1
    """Two: an impatient customer."""


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Experience(NamedTuple):
    """What it took until the customer knew."""

    receipt: str
    sent: int
    unanswered: int


class Refused(Exception):
    """The server said no, and saying the same again would not help."""


class Stopped(Exception):
    """The demo ends."""


class Client:
    def __init__(self, port: int, *, keys: bool, stop: threading.Event) -> None:
        self._port = port
        self._keys = keys
        self._stop = stop

    def pay(self, payment: Payment, click: int = 1) -> Experience:
        """Send the payment until there is an answer to it."""
        jitter = Random(f"{payment.order} {click}")  # noqa: S311 - no secret; and repeatable
        pause, unanswered, tries = FIRST_PAUSE, 0, 0
        while True:
            tries += 1
            answer = self._send(payment, f"{payment.order}.{click}.{tries}", PATIENCE * tries)
            if answer is None:
                # Lost on the way there, or on the way back?  With a key it does not matter: send it again.
                unanswered += 1
                wait = pause
            elif answer.status == 201:
                return Experience(json.loads(answer.body)["receipt"], tries, unanswered)
            elif (hint := answer.headers.get("retry-after-ms")) is not None:
                # 409 in-flight, or 503: the server says when it makes sense to ask again.
                wait = int(hint) / 1000
            elif answer.status == 409:
                # outcome-unknown: an operator has to find out.  The customer waits, and does not pay again.
                wait = LONGEST_PAUSE
            else:
                raise Refused(f"{payment.order}: {answer.status} {answer.body.decode(errors='replace')}")
            # Jitter, or all who failed together come back together.
            if self._stop.wait(min(wait, LONGEST_PAUSE) * jitter.uniform(0.8, 1.2)):
                raise Stopped
            pause = min(pause * 2, LONGEST_PAUSE)

    def _send(self, payment: Payment, request_id: str, patience: float) -> Reply | None:
        """One request.  `None`: no answer came, for whatever reason."""
        form = urlencode({"order": payment.order, "cents": payment.cents, "seconds": payment.seconds})
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Customer": payment.customer,
            "X-Request-Id": request_id,
        }
        if self._keys:
            headers["Idempotency-Key"] = payment.key
        connection = HTTPConnection("127.0.0.1", self._port, timeout=patience)
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
            # A server that dies over its headers leaves half of them, which `http.client` takes for all of
            # them; this API always says how long its body is, so what does not is no answer.
            return None
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


SIZE = 60

SLOW = 0.9
"""Seconds: longer than a customer's patience, so that the retry comes while the first request still runs."""

_NAMES = "ada bob cleo dan eve finn gwen hugo iris jon kira leo mia noah olga paul rosa sam tess uma".split()

_CARDS: list[tuple[Fate, float, int, int]] = [
    # what the network does to the first request, seconds at the card network, clicks, how many of them
    ("answer lost", 0.0, 1, 12),
    ("answer late", 0.0, 1, 5),
    ("request lost", 0.0, 1, 7),
    ("carried", SLOW, 1, 6),
    ("carried", 0.05, 2, 8),
]


class Crowd(NamedTuple):
    payments: list[Payment]
    mishaps: Mishaps

    @property
    def before(self) -> Payment:
        """Under way when the server is killed: its money has not been taken yet."""
        return self.payments[2]

    @property
    def after(self) -> Payment:
        """The same, but its money has just been taken."""
        return self.payments[3]

    @property
    def cents(self) -> int:
        """What should be taken."""
        return sum(payment.cents for payment in self.payments)


def gather(seed: int) -> Crowd:
    chance = Random(seed)  # noqa: S311 - no secret; and repeatable
    cards: list[tuple[Fate, float, int]]
    cards = [(fate, seconds, clicks) for fate, seconds, clicks, number in _CARDS for _ in range(number)]
    plain: tuple[Fate, float, int] = ("carried", 0.0, 1)
    cards += [plain] * (SIZE - len(cards) - 2)
    chance.shuffle(cards)
    # The two that the server will die over come early and meet no other mishap.
    cards[2:2] = [plain, plain]
    payments: list[Payment] = []
    dealt: dict[str, Fate] = {}
    for number, (fate, seconds, clicks) in enumerate(cards, 1):
        order = f"order-{number:02}"
        cents = chance.randrange(250, 9_999)
        # A real customer's key is random (`uuid4`); here the whole run can be repeated from its seed.
        key = f"{chance.getrandbits(64):016x}"
        payments.append(Payment(order, chance.choice(_NAMES), cents, key, seconds, clicks))
        dealt[order] = fate
    return Crowd(payments, Mishaps(seed, dealt))
