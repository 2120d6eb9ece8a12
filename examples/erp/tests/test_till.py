"""What tills and operators see, sentence by sentence; the numbers are those of the profile `erp`."""

import ast
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.sessions import SecureCookieSessionInterface
from itsdangerous import TimestampSigner

from examples.erp import orders, payments, pos, setup, stock
from examples.erp.app import create_app
from examples.erp.database import db
from examples.erp.tests import office
from examples.erp.tests.running import SECRET, TTL_HOURS, Erp
from examples.erp.tests.till import Till
from retrysafe.policy import MIB
from retrysafe.testing.adapters.client import Reply, eventually, until

SALES = "/api/v1/pos/sales"
ORDERS = "/api/v1/orders"
TRANSFERS = "/api/v1/stock/transfers"
CARD = "/api/v1/payments/card"
CASH = "/api/v1/payments/cash"


@pytest.fixture
def till(erp: Erp) -> Till:
    return erp.till("north", "ann")


def sale(receipt: str, **items: int) -> dict[str, object]:
    return {"receipt": receipt, "items": items or {"apples": 1}}


def send_twice(till: Till, method: str, path: str, body: object, key: str) -> Reply:
    """The first response.  The second one is the same, and says so."""
    first, again = (till.ask(method, path, body, key) for _ in range(2))
    assert again.essence == first.essence
    assert [reply.header("X-Idempotent-Replayed") for reply in (first, again)] == [None, "true"]
    assert [reply.header("Idempotency-Key") for reply in (first, again)] == [key, key]
    assert again.header("Original-Request-Id") == first.header("X-Request-Id")
    return first


def test_the_readme(erp: Erp, till: Till) -> None:
    """What it has the reader sell is sold."""
    readme = (Path(setup.__file__).parent / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"8000{SALES} .*\n *--json '(.+)'", readme)
    assert found is not None
    sold = send_twice(till, "POST", SALES, json.loads(found[1]), "my-first-sale")
    assert (sold.status, sold.document["paid"]) == (201, 11)
    assert erp.audit()["north"] == []


def test_every_area(erp: Erp, till: Till) -> None:
    """001-1 to 001-7, 001-10, 001-11, 001-32: POST, PUT and PATCH are replayed, and entered once."""
    before = till.get("/api/v1/stock")
    sold = send_twice(till, "POST", SALES, {**sale("areas-1", apples=2, bread=1), "cash": True}, "areas-1")
    assert (sold.status, sold.document["paid"]) == (201, 11)
    ordered = send_twice(till, "POST", ORDERS, {"reference": "areas-2", "items": {"cheese": 3}}, '"areas-2"')
    order = ordered.document["number"]
    more = {"reference": "areas-3", "items": {"apples": 1}}
    changed = send_twice(till, "PATCH", f"{ORDERS}/{order}", more, "areas-3")
    assert (changed.status, changed.document["total"]) == (200, 36)
    paid = send_twice(till, "POST", CARD, {"bill": order, "receipt": "areas-4", "amount": 30}, "areas-4")
    assert paid.status == 201
    rest = send_twice(till, "POST", CASH, {"bill": order, "receipt": "areas-5", "amount": 6}, "areas-5")
    assert rest.status == 201
    transfer = {"document": "areas-6", "items": {"bread": 5}}
    assert send_twice(till, "POST", TRANSFERS, transfer, "areas-6").status == 201
    assert till.get(f"{ORDERS}/{order}") == {**changed.document, "paid": 36}
    moved = {"shop/apples": -2, "shop/bread": 4, "warehouse/apples": -1, "warehouse/bread": -5}
    moved["warehouse/cheese"] = -3
    after = {place: count + moved.get(place, 0) for place, count in before.items()}
    assert till.get("/api/v1/stock") == after
    assert erp.audit()["north"] == []


def test_a_late_retry_of_a_count(erp: Erp, till: Till) -> None:
    """001-1: a PUT that is sent again after a sale would undo it."""
    counted = {"document": "late-1", "counted": 700}
    path = "/api/v1/stock/shop/cheese"
    assert send_twice(till, "PUT", path, counted, "late-1").status == 200
    till.post(SALES, sale("late-2", cheese=1), key="late-2")
    assert till.ask("PUT", path, counted, "late-1").header("X-Idempotent-Replayed") == "true"
    assert till.get("/api/v1/stock")["shop/cheese"] == 699
    assert erp.audit()["north"] == []


def test_without_a_key(erp: Erp) -> None:
    """001-8: as if there were no guard, so what is sent twice is entered twice; cards need a key."""
    till = erp.till("keyless", "gil")
    first, again = (till.post(SALES, sale("no key")) for _ in range(2))
    assert first.document["number"] != again.document["number"]
    ours = {"idempotency-key", "x-idempotent-replayed", "original-request-id", "x-request-id"}
    assert not ours & {name.lower() for reply in (first, again) for name, _ in reply.fields}
    assert "sale no key was entered 2 times" in erp.audit()["keyless"]
    by_card = {"bill": first.document["number"], "receipt": "no key", "amount": 3}
    assert till.post(CARD, by_card).code == "key-missing"


def test_reading_is_not_covered(till: Till) -> None:
    """001-1: a GET is not changed by a key."""
    reply = till.ask("GET", "/api/v1/stock", key="reading")
    assert (reply.status, reply.header("Idempotency-Key")) == (200, None)


@pytest.mark.parametrize("key", ["k" * 256, "two,keys", '"open'], ids=["256 characters", "two keys", "open"])
def test_a_key_that_is_none(till: Till, key: str) -> None:
    """001-9: 422 before anything is processed."""
    before = till.get("/api/v1/stock")
    reply = till.post(SALES, sale("malformed"), key=key)
    assert (reply.status, reply.code, till.get("/api/v1/stock")) == (422, "key-invalid", before)


def test_the_longest_key(erp: Erp, till: Till) -> None:
    """001-9, 001-17: 255 characters are a key."""
    assert send_twice(till, "POST", SALES, sale("longest"), "k" * 255).status == 201
    assert [found.record.key for found in erp.records("k" * 255)] == ["k" * 255]


def test_the_same_key_for_something_else(till: Till) -> None:
    """001-6: the first response stays as it was; another body is refused."""
    first = till.post(SALES, sale("else-1"), key="else")
    other = till.post(SALES, sale("else-2"), key="else")
    assert (other.status, other.code) == (422, "key-reused")
    assert till.post(SALES, sale("else-1"), key="else").essence == first.essence


def test_tenants_and_users_share_nothing(erp: Erp) -> None:
    """001-15, 001-16, 001-22, 001-33: a key belongs to a user of a tenant, at whichever till."""
    owners = [(tenant, user) for tenant, users in setup.USERS.items() for user in users]
    tills = {owner: erp.till(*owner) for owner in owners}
    sent = {owner: sale(f"shared {' '.join(owner)}") for owner in owners}
    first = {owner: till.post(SALES, sent[owner], key="shared") for owner, till in tills.items()}
    assert len({reply.document["number"] for reply in first.values()}) == 4
    for owner, till in tills.items():
        again = till.post(SALES, sent[owner], key="shared")
        assert (again.essence, again.header("X-Idempotent-Replayed")) == (first[owner].essence, "true")
    found = [dict(one.record.scope) for one in erp.records("shared")]
    assert sorted(scope["tenant"] for scope in found) == ["north", "north", "south", "south"]
    assert len({scope["user"] for scope in found}) == 4


def test_sessions(erp: Erp, till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not logged in gets 401: no record, and no replay; after the next login it runs, once."""
    fresh = till.cookie
    till.cookie = aged(fresh, monkeypatch)
    assert till.post(SALES, sale("session"), key="session").status == 401
    assert erp.records("session") == []
    till.log_in("north", "ann")
    first = till.post(SALES, sale("session"), key="session")
    assert (first.status, first.header("X-Idempotent-Replayed")) == (201, None)
    till.log_out()
    assert till.post(SALES, sale("session"), key="session").status == 401
    till.cookie = aged(fresh, monkeypatch)
    assert till.post(SALES, sale("session"), key="session").status == 401
    till.log_in("north", "ann")
    assert till.post(SALES, sale("session"), key="session").essence == first.essence


def two_months_ago(_: TimestampSigner) -> int:
    return int(time.time()) - 60 * 86400


def aged(cookie: str | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same session, by a cookie that was made two months ago."""
    app = Flask("any with the same secret")
    app.secret_key = SECRET
    serializer = SecureCookieSessionInterface().get_signing_serializer(app)
    assert serializer is not None
    with monkeypatch.context() as patched:
        patched.setattr(TimestampSigner, "get_timestamp", two_months_ago)
        return str(serializer.dumps(serializer.loads(cookie or "")))


def test_a_refused_sale(erp: Erp, till: Till) -> None:
    """001-11: stock was too low; the retry gets that 409, although there is enough by now."""
    path = "/api/v1/stock/shop/bread"
    till.ask("PUT", path, {"document": "refused-0", "counted": 1})
    wanted = sale("refused", apples=1, bread=3)
    before = till.get("/api/v1/stock")
    refused = send_twice(till, "POST", SALES, wanted, "refused-1")
    assert (refused.status, refused.code) == (409, None)
    assert refused.document == {"error": "there is not enough bread in the shop"}
    assert till.get("/api/v1/stock") == before, "a part of it was sold"
    transfer = {"document": "refused-2", "items": {"bread": 100}}
    assert till.post(TRANSFERS, transfer, key="refused-2").status == 201
    assert till.post(SALES, wanted, key="refused-1").essence == refused.essence
    assert till.post(SALES, wanted, key="refused-3").status == 201
    assert erp.audit()["north"] == []


def test_a_declined_card(erp: Erp, till: Till) -> None:
    """001-11: the 402 is replayed, nothing is paid, and cash may be."""
    sold = till.post(SALES, sale("declined-1", apples=1, bread=2), key="declined-1").document
    by_card = {"bill": sold["number"], "receipt": "declined-2", "amount": sold["total"]}
    assert sold["total"] == 13, "which the provider declines"
    declined = send_twice(till, "POST", CARD, by_card, "declined-2")
    assert (declined.status, declined.document) == (402, {"error": "the card was declined"})
    cash = {**by_card, "receipt": "declined-3"}
    assert send_twice(till, "POST", CASH, cash, "declined-3").status == 201
    assert erp.audit()["north"] == []


def test_a_worker_that_dies_while_the_card_is_charged(erp: Erp, till: Till) -> None:
    """001-12, 001-29: first in flight, then unknown; an operator looks, and then it is paid, once."""
    sold = till.post(SALES, sale("dying-1", apples=3), key="dying-1").document
    by_card = {"bill": sold["number"], "receipt": "dying-2", "amount": sold["total"]}

    def pay() -> Reply:
        return till.post(CARD, by_card, key="dying-2")

    with ThreadPoolExecutor(1) as threads, erp.silent_provider():
        first = threads.submit(pay)
        until(lambda: bool(erp.records("dying-2")))
        in_flight = pay()
        assert (in_flight.status, in_flight.code) == (409, "in-flight")
        assert in_flight.header("X-Should-Retry") == "true"
        for worker in erp.workers():
            erp.kill(worker)
        with pytest.raises((OSError, HTTPException)):
            first.result()
    unknown = eventually(pay, lambda reply: reply.code != "in-flight")
    assert (unknown.status, unknown.code) == (409, "outcome-unknown")
    assert unknown.header("X-Should-Retry") == "false"
    assert office.settle(erp) == ["released"]
    paid = send_twice(till, "POST", CARD, by_card, "dying-2")
    assert paid.status == 201
    assert till.get(f"{ORDERS}/{sold['number']}")["paid"] == sold["total"]
    assert erp.audit()["north"] == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_that_dies_while_a_sale_is_committed(erp: Erp, till: Till, moment: str) -> None:
    """001-32: with it, or without it; the retry replays, or runs."""
    wanted = {**sale(f"commit {moment}", apples=2), "cash": True}

    def sell() -> Reply:
        return till.post(SALES, wanted, key=f"commit-{moment}")

    erp.trap(f"{moment} Commit")
    with pytest.raises((OSError, HTTPException)):
        sell()
    again = eventually(sell, lambda reply: reply.code != "in-flight")
    assert (again.status, again.document["paid"]) == (201, 6)
    assert again.header("X-Idempotent-Replayed") == ("true" if moment == "after" else None)
    assert erp.audit()["north"] == []


def test_a_worker_that_dies_when_the_payment_is_entered(erp: Erp, till: Till) -> None:
    """The payment is in the books, and its response is not stored: an operator finds it, and settles that."""
    sold = till.post(SALES, sale("entered-1", apples=3), key="entered-1").document
    by_card = {"bill": sold["number"], "receipt": "entered-2", "amount": sold["total"]}

    def pay() -> Reply:
        return till.post(CARD, by_card, key="entered-2")

    erp.trap("before Finish")
    with pytest.raises((OSError, HTTPException)):
        pay()
    assert eventually(pay, lambda reply: reply.code != "in-flight").code == "outcome-unknown"
    assert office.settle(erp) == ["resolved"]
    paid = pay()
    assert (paid.status, paid.document["receipt"]) == (201, "entered-2")
    assert paid.header("X-Idempotent-Replayed") == "true"
    assert erp.audit()["north"] == []


def test_a_large_response(erp: Erp, till: Till) -> None:
    """001-23, 001-24: over 1 MiB the status is stored; the retry says that the body is not there."""
    large = {"reference": "large", "items": {"apples": 1}, "remarks": "x" * MIB}
    first, again = (till.post(ORDERS, large, key="large") for _ in range(2))
    assert (first.status, first.document["remarks"]) == (201, "x" * MIB)
    assert again.essence == (201, b"")
    assert (again.header("Idempotency-Body"), again.header("X-Idempotent-Replayed")) == ("omitted", "true")
    assert erp.audit()["north"] == []


def test_an_expired_key(erp: Erp, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-13, 001-21, 001-27: after `IDEMPOTENCY_TTL_HOURS` the same key is a new request."""
    till = erp.till("keyless", "gil")
    monkeypatch.setenv("ERP_DATABASE", erp.url)
    monkeypatch.setenv("ERP_SECRET", SECRET)
    monkeypatch.setenv("IDEMPOTENCY_TTL_HOURS", "0.000001")
    app = create_app()
    client = app.test_client()
    client.post("/login", json={"tenant": "keyless", "user": "gil", "password": setup.PASSWORD})
    document = {"document": "expired", "counted": 500}
    sent = client.put("/api/v1/stock/shop/apples", json=document, headers={"Idempotency-Key": "expired"})
    assert sent.status_code == 200
    fresh = eventually(
        lambda: till.ask("PUT", "/api/v1/stock/shop/apples", document, "expired"),
        lambda reply: reply.header("X-Idempotent-Replayed") is None,
    )
    assert fresh.document["before"] == 500
    with app.app_context():
        db.engine.dispose()
    app.extensions["retrysafe"].guard.close()


def test_compliance(erp: Erp, till: Till) -> None:
    """001-14 to 001-21, 001-26: each record is listed and exported, with its owner, request and response."""
    first = till.post(SALES, sale("compliance"), key="compliance")
    (listed,) = [
        one
        for one in erp.listed("--scope", "tenant=north", "--path", SALES, "--state", "completed")
        if one["key"] == "compliance"
    ]
    lines = [json.loads(line) for line in erp.command("export").splitlines()]
    (exported,) = [one for one in lines if one["key"] == "compliance"]
    scope = dict(exported["scope"])
    assert (scope["tenant"], listed["scope"]) == ("north", scope)
    assert (exported["id"], len(exported["id"])) == (listed["id"], 64)
    assert (exported["action"], exported["target"], exported["mode"]) == ("POST", SALES, "tx")
    assert (exported["response"]["status"], exported["response"]["body"]) == (201, first.body.decode())
    created, processed, expires = (
        datetime.fromisoformat(exported[name]) for name in ("created_at", "completed_at", "expires_at")
    )
    assert created <= processed < expires
    assert expires - created == timedelta(hours=TTL_HOURS)


def test_all_of_the_api_is_covered(till: Till) -> None:
    """001-2: the routes that change something are those that the server says are protected."""
    changing = {
        rule.rule
        for rule in create_app().url_map.iter_rules()
        if rule.rule.startswith("/api/") and (rule.methods or set()) & {"POST", "PUT", "PATCH", "DELETE"}
    }
    assert {route["path"] for route in till.get("/idempotency")["routes"]} == changing
    assert len(changing) == 7


@pytest.mark.parametrize("module", [pos, orders, stock, payments], ids=lambda module: module.__name__)
def test_views_know_nothing_of_it(module: Any) -> None:
    """001-25: what a view has of the library is its decorator; a card payment also has a derived key."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("retrysafe")
        for alias in node.names
    }
    assert imported == {"idempotent"} | ({"current"} if module is payments else set())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    decorators = [node for function in functions for node in function.decorator_list]
    in_decorators = [node for one in decorators for node in ast.walk(one)]
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "idempotent"]
    assert used
    assert all(node in in_decorators for node in used)
