"""The bad network really loses what it is told to lose, and the same things with every run of a seed."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from retrysafe.demo import client
from retrysafe.demo.client import Client, Payment, Stopped
from retrysafe.demo.network import Fate, network

TEA = Payment("tea", "ada", 290, "the-key")


class Shop(ThreadingHTTPServer):
    """Answers every payment, and remembers what arrived."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counter)
        self.arrived: list[tuple[str, str, bytes]] = []
        self.cut: int | None = None
        """After so many bytes the first answer breaks off."""


class Counter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        shop = self.server
        assert isinstance(shop, Shop)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers.get("Idempotency-Key", "")
        shop.arrived.append((self.headers["X-Request-Id"], key, body))
        answer = b'{"receipt": "r-%d"}' % len(shop.arrived)
        whole = b"HTTP/1.0 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
        self.wfile.write(whole[: shop.cut] if len(shop.arrived) == 1 else whole)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever, args=[0.02])
        thread.start()
        yield shop
        shop.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("fate", "arrived", "unanswered"),
    [("carried", 1, 0), ("request lost", 1, 1), ("answer lost", 2, 1), ("answer late", 2, 1)],
)
def test_what_is_lost_is_sent_again(shop: Shop, fate: Fate, arrived: int, unanswered: int) -> None:
    """The first request meets its fate; the client retries with the same key and the same bytes."""
    with network(shop.server_port, lambda order, click, tries: fate if tries == 1 else "carried") as port:
        told = Client(port, keys=True, stop=threading.Event()).pay(TEA)
    assert told.receipt == f"r-{arrived}"
    assert (told.sent, told.unanswered) == (1 + unanswered, unanswered)
    assert len(shop.arrived) == arrived
    assert len({(key, body) for _, key, body in shop.arrived}) == 1
    assert shop.arrived[0][1] == "the-key"
    assert len({request_id for request_id, _, _ in shop.arrived}) == arrived


@pytest.mark.parametrize("cut", [0, 5, 20, 21, 22, 30, 37, 38, 39, 40, 43, 50])
def test_half_an_answer_is_none(shop: Shop, cut: int) -> None:
    """A server that dies over its answer has not answered, wherever it broke off."""
    shop.cut = cut
    with network(shop.server_port, lambda order, click, tries: "carried") as port:
        told = Client(port, keys=True, stop=threading.Event()).pay(TEA)
    assert (told.receipt, told.sent, told.unanswered) == ("r-2", 2, 1)


def test_without_keys_none_is_sent(shop: Shop) -> None:
    """The first act is what it says."""
    with network(shop.server_port, lambda order, click, tries: "carried") as port:
        Client(port, keys=False, stop=threading.Event()).pay(TEA)
    assert [key for _, key, _ in shop.arrived] == [""]


def test_a_client_can_be_stopped(shop: Shop) -> None:
    """One that never gets through does not keep the demo from ending."""
    stop = threading.Event()
    stop.set()
    with (
        network(shop.server_port, lambda order, click, tries: "request lost") as port,
        pytest.raises(Stopped),
    ):
        Client(port, keys=True, stop=stop).pay(TEA)


def test_a_seed_repeats_everything() -> None:
    """The same customers, sums, keys and mishaps; another seed has others."""

    def everything(seed: int) -> list[object]:
        gathered = client.gather(seed)
        fates = [
            gathered.mishaps.fate(payment.order, click, tries)
            for payment in gathered.payments
            for click in (1, 2)
            for tries in range(1, 7)
        ]
        return [gathered.payments, fates]

    assert everything(7) == everything(7)
    assert everything(7) != everything(8)


@pytest.mark.parametrize("seed", range(20))
def test_every_crowd_has_some_of_each(seed: int) -> None:
    """Whatever the seed: every mishap, slow payments, double clicks, and two that the server can die over."""
    gathered = client.gather(seed)
    assert len(gathered.payments) == len({payment.key for payment in gathered.payments}) == client.SIZE
    assert {gathered.mishaps.fate(payment.order, 1, 1) for payment in gathered.payments} == {
        "carried",
        "request lost",
        "answer lost",
        "answer late",
    }
    assert any(payment.seconds == client.SLOW for payment in gathered.payments)
    assert any(payment.clicks == 2 for payment in gathered.payments)
    for payment in (gathered.before, gathered.after):
        assert (payment.seconds, payment.clicks) == (0.0, 1)
        assert gathered.mishaps.fate(payment.order, 1, 1) == "carried"
    # A retry gets through in the end: the demo has to end.
    assert all(gathered.mishaps.fate(payment.order, 1, 5) == "carried" for payment in gathered.payments)
