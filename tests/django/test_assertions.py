"""`assert_idempotent` with Django's clients and REST framework's, in the tests of a project."""

import sqlite3
from types import ModuleType
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.urls import path
from rest_framework.test import APIClient, APIRequestFactory

from retrysafe.django import idempotent
from retrysafe.testing import assert_idempotent, assert_idempotent_async
from tests.django import assertion_cases, project
from tests.django.assertion_cases import FORM, JSON
from tests.django.shop.models import Order
from tests.django.test_test_tools import environment, run

__all__ = ["environment"]


@pytest.mark.parametrize("case", [assertion_cases.InTestCase, assertion_cases.InTransactionTestCase])
def test_in_tests_of_a_project(case: type[TestCase] | type[TransactionTestCase], each_database: str) -> None:
    """Every client, by sessions, by forced authentication and by headers, on each database."""
    run(case)


@pytest.fixture
def shop() -> Any:
    with override_settings(ROOT_URLCONF=assertion_cases):
        yield Client(headers={"Authorization": "Bearer alice"})


def test_a_view_without_protection(shop: Client) -> None:
    """It is said which step found it."""
    with pytest.raises(AssertionError, match="the repeated request ran again: effects went from 1 to 2"):
        assert_idempotent(shop, "POST", "/unprotected/", effects=Order.objects.count, **FORM)


def test_an_exception_of_a_view(shop: Client) -> None:
    """What the test client raises is raised, with a note that says when."""
    with pytest.raises(RuntimeError, match="the view failed") as caught:
        assert_idempotent(shop, "POST", "/failing/", **FORM)
    assert caught.value.__notes__ == ["assert_idempotent was sending POST /failing/"]


def test_threads_leave_no_connection_open(shop: Client) -> None:
    """A test database that is in use cannot be dropped."""
    opened: list[Any] = []

    def made(connection: Any, **_: object) -> None:
        opened.append(connection)

    connection_created.connect(made)
    try:
        assert_idempotent(shop, "POST", "/outside/", effects=Order.objects.count, **FORM)
    finally:
        connection_created.disconnect(made)
    mine = set(map(id, connections.all(initialized_only=True)))
    theirs = [one for one in opened if id(one) not in mine]
    assert len(theirs) >= 5
    assert [one for one in theirs if one.connection is not None] == []


def test_a_view_on_sqlite_has_the_write_lock_from_its_beginning() -> None:
    """In tests, too: one that reads first could not write any more once a duplicate waits to reserve."""
    locked: list[bool] = []

    @idempotent(effects="database")
    def view(request: HttpRequest) -> HttpResponse:
        other = sqlite3.connect(connection.settings_dict["NAME"], timeout=0)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            locked.append(True)
        finally:
            other.close()
        return HttpResponse(status=201)

    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("view/", view)]
    with override_settings(ROOT_URLCONF=urls):
        client = Client(headers={"Authorization": "Bearer alice"})
        assert client.post("/view/", headers={"Idempotency-Key": "k1"}).status_code == 201
    assert locked
    of_sqlite: Any = connection
    assert of_sqlite.transaction_mode is None, "the connection is as it was"


# --- what it refuses


def test_inside_of_a_transaction(shop: Client) -> None:
    with (
        transaction.atomic(),
        pytest.raises(RuntimeError, match="concurrent requests in other threads do not see"),
    ):
        assert_idempotent(shop, "POST", "/outside/", **FORM)


def test_a_database_in_memory(shop: Client) -> None:
    """Duplicates in threads would fail there by chance."""
    said = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:shop?mode=memory&cache=shared"}
    with project.database("default", said):
        with pytest.raises(RuntimeError) as caught:
            assert_idempotent(shop, "POST", "/outside/", **FORM)
        assert_idempotent(shop, "POST", "/outside/", effects=Order.objects.count, concurrent=0, **FORM)
    assert str(caught.value) == (
        "the test database 'default' is SQLite in memory, where concurrent requests in other threads fail "
        'with "database table is locked": give it a file, as in DATABASES["default"]["TEST"] = '
        '{"NAME": BASE_DIR / "test.sqlite3"}, or pass concurrent=0'
    )


@pytest.mark.parametrize("factory", [RequestFactory, APIRequestFactory])
def test_a_factory_of_requests(factory: Any) -> None:
    """It sends nothing."""
    with pytest.raises(TypeError, match=r"RequestFactory makes requests and sends none: expected a client"):
        assert_idempotent(factory(), "POST", "/outside/", **FORM)


def test_the_test_client_of_ninja() -> None:
    """It goes around the middleware."""
    from ninja import NinjaAPI
    from ninja.testing import TestClient

    client: Any = TestClient(NinjaAPI())
    with pytest.raises(TypeError, match=r"past Django's middlewares: expected django\.test\.Client\(\)"):
        assert_idempotent(client, "POST", "/outside/", **FORM)


def test_an_async_client_that_is_not_awaited() -> None:
    client: Any = AsyncClient()
    with pytest.raises(TypeError, match=r"use `await assert_idempotent_async\(client, ...\)`"):
        assert_idempotent(client, "POST", "/outside/", **FORM)


def test_a_blocking_client_that_is_awaited() -> None:
    import asyncio

    with pytest.raises(TypeError, match="it blocks: call assert_idempotent"):
        asyncio.run(assert_idempotent_async(Client(), "POST", "/outside/", **FORM))  # type: ignore[arg-type]  # which is refused


def test_credentials_that_replace_headers(shop: Client) -> None:
    """Another user's header would be replaced by the client's own credentials, and test nothing."""
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION="Bearer alice")
    other: Any = {"headers": {"Authorization": "Bearer bob"}}
    with pytest.raises(TypeError, match=r"credentials\(\) of the client, which sends its own instead"):
        assert_idempotent(client, "POST", "/api/orders/", other=other, concurrent=0, **JSON)
