"""The story in three acts: without keys, with keys, and with keys while the server is killed.

The customers, what they pay and the mishaps they meet are the same in all three.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from retrysafe.demo.accident import Accident, Settled
from retrysafe.demo.books import Balance, balance
from retrysafe.demo.client import Client, Experience, Payment, Refused, Stopped
from retrysafe.demo.crowd import Crowd
from retrysafe.demo.display import Display
from retrysafe.demo.mishaps import network
from retrysafe.demo.process import PROGRAM, Server
from retrysafe.demo.stopping import PAUSE, stop_if_asked

AT_ONCE = 16
"""Customers who pay at the same time: enough to get in each other's way, few enough for two busy cores."""

LEASE, SHORT_LEASE = 30.0, 1.5
"""Seconds until a dead server's payments count as unknown: the default, and one that a demo can wait for."""

PATIENCE = 20.0
"""Seconds for one act.  It takes three; whoever has no answer by then never gets one, which is a failure."""

Tick = Callable[[int], None]


class Act(NamedTuple):
    """How one act went."""

    title: str
    keys: bool
    intended: int
    sent: int
    unanswered: int
    counts: Counter[str]
    """What the server saw: "arrived", and how often the guard came to which verdict."""
    balance: Balance
    refused: tuple[str, ...]
    """What customers were told who got no receipt."""
    seconds: float
    killed: bool = False
    settled: tuple[Settled, ...] = ()
    """What an operator had to settle."""
    left: int = 0
    """What is still in doubt."""


class Evening(NamedTuple):
    """What the customers of one act met, before anybody looks at the books."""

    sent: int
    unanswered: int
    receipts: dict[str, list[str]]
    refused: tuple[str, ...]
    seconds: float


def tell(crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...] = PROGRAM) -> list[Act]:
    """Play all three acts, each with new books.  `program` is the server that Python runs."""
    return [
        _undisturbed(crowd, _new(folder, "without"), display, program, keys=False),
        _undisturbed(crowd, _new(folder, "with"), display, program, keys=True),
        _killed(crowd, _new(folder, "killed"), display, program),
    ]


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _undisturbed(
    crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...], *, keys: bool
) -> Act:
    title = "with keys" if keys else "without keys"
    with display.act(title, len(crowd.payments)):
        with Server(folder, lease=LEASE, program=program) as server:
            evening = _play(crowd, server, display.paid, keys=keys)
        act = _count(title, crowd, server, evening, keys=keys)
    display.played(act)
    return act


def _killed(crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...]) -> Act:
    title = "with keys, server killed"
    hold = (f"--hold=before:{crowd.before.order}", f"--hold=after:{crowd.after.order}")
    with display.act(title, len(crowd.payments)):
        server = Server(folder, *hold, lease=SHORT_LEASE, program=program)
        with closing(Accident(server, crowd, display.say)) as accident:

            def tick(paid: int) -> None:
                display.paid(paid)
                accident.go_on(paid)

            with server:
                evening = _play(crowd, server, tick, keys=True)
            act = _count(title, crowd, server, evening, keys=True)
            act = act._replace(killed=True, settled=tuple(accident.settled), left=accident.left())
    display.played(act)
    return act


def _play(crowd: Crowd, server: Server, tick: Tick, *, keys: bool) -> Evening:
    """Let everybody pay."""
    began = time.monotonic()
    stop = threading.Event()
    with network(server.port, crowd.mishaps.fate) as port, ThreadPoolExecutor(AT_ONCE) as pool:
        client = Client(port, keys=keys, stop=stop)
        clicks = {
            pool.submit(client.pay, payment, click): payment
            for payment in crowd.payments
            for click in range(1, payment.clicks + 1)
        }
        try:
            _watch(clicks, began + PATIENCE, tick)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    experiences: list[Experience] = []
    receipts: dict[str, list[str]] = {}
    refused: list[str] = []
    for click, payment in clicks.items():
        try:
            experience = click.result()
        except Refused as refusal:
            refused.append(str(refusal))
        except (Stopped, CancelledError):
            refused.append(f"{payment.order}: no answer within {PATIENCE:.0f} seconds")
        else:
            experiences.append(experience)
            receipts.setdefault(payment.order, []).append(experience.receipt)
    return Evening(
        sum(experience.sent for experience in experiences),
        sum(experience.unanswered for experience in experiences),
        receipts,
        tuple(refused),
        time.monotonic() - began,
    )


def _watch(clicks: Mapping[Future[Experience], Payment], deadline: float, tick: Tick) -> None:
    """Call `tick` with the number of payments that are through, until all are or the time is over."""
    pending = set(clicks)
    while pending and time.monotonic() < deadline:
        stop_if_asked()
        _, pending = wait(pending, timeout=PAUSE, return_when=FIRST_COMPLETED)
        unpaid = {clicks[click].order for click in pending}
        tick(len({payment.order for payment in clicks.values()} - unpaid))


def _count(title: str, crowd: Crowd, server: Server, evening: Evening, *, keys: bool) -> Act:
    """Look at the books.  The server has ended: whatever was still running in it has come to its end too."""
    return Act(
        title,
        keys,
        len(crowd.payments),
        evening.sent,
        evening.unanswered,
        server.counts(),
        balance(crowd.payments, evening.receipts, server.ledger.charges()),
        evening.refused,
        evening.seconds,
    )
