"""The customers: who pays what, who double-clicks, and whose request meets which mishap.

Mishaps are dealt like cards and not drawn like lots, so that every run has some of each, whatever its seed.
"""

from random import Random
from typing import NamedTuple

from retrysafe.demo.client import Payment
from retrysafe.demo.mishaps import Fate, Mishaps

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
