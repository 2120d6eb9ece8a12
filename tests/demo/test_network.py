"""The bad network really loses what it should, and the same with every run of a seed; the client retries."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from retrysafe.demo.client import CUSTOMERS, SLOW, Client, Payment, Stopped, make_workload
from retrysafe.demo.network import Fault, bad_network

TEA = Payment("tea", "ada", 290, "the-key")


class Shop(ThreadingHTTPServer):
    """Responds to every payment, and records what arrived."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.arrived: list[tuple[str, str, bytes]] = []
        self.cut: int | None = None
        """After so many bytes the first response is cut off."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        shop = self.server
        assert isinstance(shop, Shop)
        form = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers.get("Idempotency-Key", "")
        shop.arrived.append((self.headers["X-Request-Id"], key, form))
        body = b'{"receipt": "r-%d"}' % len(shop.arrived)
        whole = b"HTTP/1.0 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
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
    ("fault", "arrived", "unanswered"),
    [("none", 1, 0), ("request lost", 1, 1), ("response lost", 2, 1), ("response late", 2, 1)],
)
def test_the_client_retries_what_was_lost(shop: Shop, fault: Fault, arrived: int, unanswered: int) -> None:
    """The first request meets the fault; the client retries with the same key and the same bytes."""
    with bad_network(
        shop.server_port, lambda order, click, attempt: fault if attempt == 1 else "none"
    ) as port:
        paid = Client(port, keys=True, stop=threading.Event()).pay(TEA)
    assert paid.receipt == f"r-{arrived}"
    assert (paid.sent, paid.unanswered) == (1 + unanswered, unanswered)
    assert len(shop.arrived) == arrived
    assert len({(key, form) for _, key, form in shop.arrived}) == 1
    assert shop.arrived[0][1] == "the-key"
    assert len({request_id for request_id, _, _ in shop.arrived}) == arrived


@pytest.mark.parametrize("cut", [0, 5, 20, 21, 22, 30, 37, 38, 39, 40, 43, 50])
def test_an_incomplete_response_is_none(shop: Shop, cut: int) -> None:
    """A response that is cut off counts as lost, wherever it ends."""
    shop.cut = cut
    with bad_network(shop.server_port, lambda order, click, attempt: "none") as port:
        paid = Client(port, keys=True, stop=threading.Event()).pay(TEA)
    assert (paid.receipt, paid.sent, paid.unanswered) == ("r-2", 2, 1)


def test_without_keys_none_is_sent(shop: Shop) -> None:
    """As the first run says."""
    with bad_network(shop.server_port, lambda order, click, attempt: "none") as port:
        Client(port, keys=False, stop=threading.Event()).pay(TEA)
    assert [key for _, key, _ in shop.arrived] == [""]


def test_a_client_can_be_stopped(shop: Shop) -> None:
    """A client whose requests are all lost does not prevent the demo from ending."""
    stop = threading.Event()
    stop.set()
    with (
        bad_network(shop.server_port, lambda order, click, attempt: "request lost") as port,
        pytest.raises(Stopped),
    ):
        Client(port, keys=True, stop=stop).pay(TEA)


def test_a_seed_repeats_everything() -> None:
    """The same customers, amounts, keys and faults; another seed has others."""

    def everything(seed: int) -> list[object]:
        workload = make_workload(seed)
        faults = [
            workload.faults.fault(payment.order, click, attempt)
            for payment in workload.payments
            for click in (1, 2)
            for attempt in range(1, 7)
        ]
        return [workload.payments, faults]

    assert everything(7) == everything(7)
    assert everything(7) != everything(8)


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_has_some_of_each(seed: int) -> None:
    """Every fault, slow payments, double clicks, and two payments during which the server can be killed."""
    workload = make_workload(seed)
    assert len(workload.payments) == len({payment.key for payment in workload.payments}) == CUSTOMERS
    assert {workload.faults.fault(payment.order, 1, 1) for payment in workload.payments} == {
        "none",
        "request lost",
        "response lost",
        "response late",
    }
    assert any(payment.seconds == SLOW for payment in workload.payments)
    assert any(payment.clicks == 2 for payment in workload.payments)
    for payment in (workload.uncharged, workload.charged):
        assert (payment.seconds, payment.clicks) == (0.0, 1)
        assert workload.faults.fault(payment.order, 1, 1) == "none"
    # Later retries meet no fault: the demo has to end.
    assert all(workload.faults.fault(payment.order, 1, 5) == "none" for payment in workload.payments)
