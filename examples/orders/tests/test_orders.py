"""The shop when nothing goes wrong; then it is killed, again and again, and its books are audited."""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx
import pytest
from sqlalchemy import orm, select

from examples.orders.audit import audit
from examples.orders.models import Order
from examples.orders.tests.customers import Customer
from examples.orders.tests.running import PATIENCE, Shop

KILLS = 200 if os.environ.get("RETRYSAFE_LONG") else 10

REQUESTS: list[tuple[str, dict[str, object], int]] = [
    ("/orders", {"cart": "one", "items": {"apples": 2, "bread": 1}}, 201),
    ("/orders", {"cart": "two", "items": {"apples": 1, "bread": 2}}, 402),  # an amount that is declined
    ("/orders", {"cart": "three", "items": {"bread": 1, "cheese": 101}}, 409),
    ("/orders", {"cart": "four", "items": {"pears": 1}}, 404),
    ("/orders", {"cart": "five", "items": {"apples": 0}}, 422),
    ("/orders/1000000/cancel", {}, 404),
]


def test_the_readme() -> None:
    """What it asks the reader to order is what is ordered first here."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    path, body, _ = REQUESTS[0]
    assert f"8000{path} --json '{json.dumps(body)}'" in readme


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"], indirect=True)
def test_shop(shop: Shop) -> None:
    """A quiet day, then a bad one; in one test, because to open the shop takes longer than either."""
    have_a_quiet_day(shop)
    have_a_bad_day(shop)


def have_a_quiet_day(shop: Shop) -> None:
    """Ordered, declined, sold out, cancelled: each response is replayed, and the books agree."""
    with httpx.Client(base_url=shop.address, timeout=PATIENCE, headers={"X-Customer": "ann"}) as client:
        for number, (path, body, status) in enumerate(REQUESTS):
            assert send_twice(client, f"request-{number}", path, body).status_code == status
        order = send_twice(client, "request-0", *REQUESTS[0][:2]).json()["order"]
        assert send_twice(client, "cancel", f"/orders/{order}/cancel", {}).status_code == 200
        assert send_twice(client, "cancel again", f"/orders/{order}/cancel", {}).status_code == 409
        shown = client.get(f"/orders/{order}")
        assert shown.json() == {"order": order, "total": 11, "state": "cancelled"}
        assert client.get(f"/orders/{order}", headers={"X-Customer": "bob"}).status_code == 404
        assert client.post("/orders", json={}).json()["code"] == "key-missing"
    shop.wait_for_outbox()
    assert audit(shop.engine, shop.books) == []


def send_twice(client: httpx.Client, key: str, path: str, body: dict[str, object]) -> httpx.Response:
    """The first response; the second one is the same."""
    first, again = (client.post(path, json=body, headers={"Idempotency-Key": f'"{key}"'}) for _ in range(2))
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    return first


def have_a_bad_day(shop: Shop) -> None:
    """SIGKILL at random moments: one order per cart that got 201, paid once, and no others."""
    closing = Event()
    customers = [Customer(name, shop.address, closing) for name in ("bob", "cy", "dee", "eve", "flo", "gus")]
    with ThreadPoolExecutor(len(customers)) as threads:
        shopping = [threads.submit(customer.shop) for customer in customers]
        try:
            for _ in range(KILLS):
                wait_for_a_response(customers)
                time.sleep(random.uniform(0, 0.2))
                shop.start()
                shop.kill()
        finally:
            closing.set()
        for one in shopping:
            one.result()
    assert [key for customer in customers for key in customer.repeat_all()] == []
    shop.wait_for_outbox()
    assert audit(shop.engine, shop.books) == []
    ended = [one for customer in customers for one in customer.ended if one.path == "/orders"]
    names = [customer.name for customer in customers]
    with orm.Session(shop.engine) as session:
        orders = set(session.scalars(select(Order.cart).where(Order.customer.in_(names))))
    assert orders == {one.key for one in ended if one.status == 201}
    assert sum(customer.broken for customer in customers) > 0, "no response was lost"


def wait_for_a_response(customers: list[Customer]) -> None:
    """Until a customer gets one: a server that has served no request yet is not worth killing."""
    before = sum(len(customer.ended) for customer in customers)
    until = time.monotonic() + PATIENCE
    while sum(len(customer.ended) for customer in customers) == before:
        assert time.monotonic() < until, "no request gets a response any more"
        time.sleep(0.01)
