"""Operations on the project's database: by themselves, in the caller's transaction, in a guarded view."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from retrysafe import current, scopes
from retrysafe.django import guard, idempotent
from retrysafe.errors import ConfigurationError, NotJoined
from retrysafe.operations import PreviouslyFailed, Refused, operation
from tests.django.shop.models import Order

calls: list[str] = []
project = guard()
OWNER = {"user": "alice"}
DATABASE = scopes.service("tests")


def _write(label: str) -> int:
    calls.append(label)
    Order.objects.create(label=label)
    return len(calls)


@operation(project, action="ship", effects="database", scope=DATABASE)
def ship(label: str, then: str = "") -> int:
    number = _write(label)
    transaction.on_commit(lambda: calls.append("hook"))
    current().on_commit(lambda: calls.append("ours"))
    if then == "fail":
        raise ConnectionError("no carrier")
    return number


@operation(project, action="charge", scope=DATABASE)
def charge(label: str) -> str:
    """Outside: at a card network."""
    calls.append(f"charged {label}")
    return f"charge of {label}"


@operation(project, action="ship_async", effects="database", scope=DATABASE)
async def ship_async(label: str) -> int:
    return await sync_to_async(_write)(label)


@idempotent(project, effects="database")
def order(request: HttpRequest) -> HttpResponse:
    label, then = request.GET["label"], request.GET.get("then")
    if then == "charge first":
        charge.once(label, key=current().derive("charge"))
        _write(label)
        raise RuntimeError("the view failed")
    _write(label)
    if then == "charge":
        charge.once(label, key=current().derive("charge"))
    else:
        ship.once(f"ship {label}", "fail" if then == "fail" else "", key=f"ship {label}")
    if then == "raise":
        raise RuntimeError("the view failed")
    return HttpResponse(label)


@idempotent(project, effects="database")
def catching(request: HttpRequest) -> HttpResponse:
    try:
        ship.once("caught", "fail", key="caught")
    except ConnectionError:
        return HttpResponse("as if nothing were wrong")
    raise AssertionError


urlpatterns = [path("orders/", order), path("catching/", catching)]


@pytest.fixture(autouse=True)
def no_calls(request: pytest.FixtureRequest, clean: None) -> None:
    if "each_database" in request.fixturenames:
        request.getfixturevalue("each_database")
    calls.clear()


def post(client: Client, label: str, then: str = "", url: str = "/orders/") -> Any:
    return client.post(f"{url}?label={label}&then={then}", headers={"Idempotency-Key": label + url})


def orders() -> list[str]:
    return sorted(Order.objects.values_list("label", flat=True))


def test_by_itself(each_database: str) -> None:
    """Nothing is said of Django in it: its writes are committed with its record, and undone with it."""
    with pytest.raises(ConnectionError):
        ship.once("tea", "fail", key="k1")
    assert orders() == []
    assert ship.once("tea", "", key="k2").value == 2
    assert ship.once("tea", "", key="k2").replayed
    assert orders() == ["tea"]
    assert calls == ["tea", "tea", "hook", "ours"]
    assert not connection.in_atomic_block


def test_in_the_callers_transaction(each_database: str) -> None:
    """Its record is a part of that: undone with it, and committed with it, after which hooks are called."""
    with pytest.raises(RuntimeError), transaction.atomic():  # noqa: PT012 - the block is what is tried
        assert not ship.once("tea", key="k1").replayed
        assert ship.once("tea", key="k1").replayed
        raise RuntimeError
    assert orders() == []
    with transaction.atomic():
        assert not ship.once("tea", key="k1").replayed
    assert ship.once("tea", key="k1").replayed
    assert orders() == ["tea"]
    assert calls.count("hook") == 1


def test_a_failure_in_the_callers_transaction(each_database: str) -> None:
    """A savepoint is undone, and the rest of the transaction goes on."""
    with transaction.atomic():
        _write("before")
        with pytest.raises(ConnectionError):
            ship.once("tea", "fail", key="k1")
        _write("after")
    assert orders() == ["after", "before"]
    assert not ship.once("tea", "fail2", key="k1").replayed


def test_in_a_guarded_view(client: Client, each_database: str) -> None:
    """Both records and both effects are in the view's transaction; hooks run once, after its commit."""
    assert post(client, "tea").status_code == 200
    assert post(client, "tea").headers["Idempotent-Replayed"] == "true"
    assert orders() == ["ship tea", "tea"]
    assert calls.count("hook") == calls.count("ours") == 1
    for then in ("raise", "fail"):
        assert post(client, "rum", then).status_code == 500
    assert orders() == ["ship tea", "tea"]
    assert calls.count("hook") == calls.count("ours") == 1


def test_a_failure_that_the_view_catches(client: Client, each_database: str) -> None:
    """Nothing is committed, whatever the view makes of it: the operation's writes are in its transaction."""
    assert post(client, "x", url="/catching/").status_code == 500
    assert orders() == []


def test_an_operation_outside_of_the_database(client: Client, on_postgresql: None) -> None:
    """In a guarded view its record is not a part of the view's transaction, and not undone with it."""
    for _ in range(2):
        assert post(client, "tea", "charge first").status_code == 500
    assert orders() == []
    assert calls.count("charged tea") == 1
    assert post(client, "rum", "charge").status_code == 200
    assert (calls.count("charged rum"), orders()) == (1, ["rum"])


def test_an_operation_outside_of_sqlite(client: Client) -> None:
    """It has one writer: the charge comes before the first write, and is refused after it."""
    for _ in range(2):
        assert post(client, "tea", "charge first").status_code == 500
    assert (calls.count("charged tea"), orders()) == (1, [])
    client.raise_request_exception = True
    with pytest.raises(NotJoined, match="Call it before the first write"):
        post(client, "rum", "charge")
    assert "charged rum" not in calls


def test_what_has_to_be_awaited() -> None:
    """Django's transactions are blocking, and the message says so."""
    with pytest.raises(Refused) as refused:
        asyncio.run(ship_async.once("tea", key="k1"))
    assert isinstance(refused.value.__cause__, ConfigurationError)
    assert "blocking code" in str(refused.value.__cause__)
    assert calls == []
    assert not isinstance(refused.value, PreviouslyFailed)
