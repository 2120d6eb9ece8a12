"""REST framework under ATOMIC_REQUESTS and with several databases: what is stored was committed."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework import exceptions
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from retrysafe import NotDone
from retrysafe.django import IdempotentMixin, idempotent
from retrysafe.django.models import Record
from tests.django.api import atomic_requests, check_replayed, is_replay, order, runs, send, send_twice
from tests.django.shop.models import Line, Order


def then(request: Request) -> Response:
    order()
    match request.query_params.get("then"):
        case "deferred":
            Line.objects.create(order_id=10_000_000)
        case "swallowed":
            Order.objects.create(id=1000, label="one")
            try:
                Order.objects.create(id=1000, label="two")
            except IntegrityError:
                transaction.set_rollback(True)
        case "closed":
            connection.close()
        case "second":
            Order.objects.using("second").create(label="second")
        case "second marked":
            Order.objects.using("second").create(label="second")
            transaction.set_rollback(True, using="second")
        case "second and marked":
            Order.objects.using("second").create(label="second")
            transaction.set_rollback(True)
        case "second and refused":
            Order.objects.using("second").create(label="second")
            raise exceptions.NotFound
        case "missing":
            raise exceptions.NotFound
        case "not done":
            raise NotDone("try again")
        case "failed":
            raise RuntimeError("the view failed")
        case _:
            pass
    return Response({"run": len(runs)}, status=201)


class Lease(APIView):
    @idempotent
    def post(self, request: Request) -> Response:
        return then(request)

    def put(self, request: Request) -> Response:
        """Not protected: as atomic as Django makes it."""
        return then(request)


@method_decorator(idempotent(effects="database"), name="post")
class ByMethod(APIView):
    def post(self, request: Request) -> Response:
        return then(request)


class ByMixin(IdempotentMixin, APIView):
    idempotency_options: ClassVar[Any] = {"effects": "database"}

    def post(self, request: Request) -> Response:
        return then(request)


@api_view(["POST"])
@idempotent(effects="database")
def function(request: Request) -> Response:
    return then(request)


urlpatterns = [
    path("lease/", Lease.as_view()),
    path("method/", ByMethod.as_view()),
    path("mixin/", ByMixin.as_view()),
    path("function/", function),
]
IN_DATABASE = ["/method/", "/mixin/", "/function/"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    runs.clear()


@pytest.fixture(params=[(), ("default",)], ids=["autocommit", "ATOMIC_REQUESTS"], autouse=True)
def both_modes(request: pytest.FixtureRequest, each_database: str) -> Iterator[None]:
    with atomic_requests(*request.param):
        yield


@pytest.mark.parametrize("url", ["/lease/", *IN_DATABASE])
def test_a_retry_is_replayed(client: Client, url: str) -> None:
    check_replayed(send(client, url), send(client, url), 201)
    assert len(runs) == Order.objects.count() == 1


@pytest.mark.parametrize("url", IN_DATABASE)
@pytest.mark.parametrize("what", ["deferred", "swallowed", "closed"])
def test_a_commit_that_fails(client: Client, url: str, what: str) -> None:
    """A constraint that is checked at the end, a marked transaction, a closed connection.

    Each is a 500 of which nothing is left, and the retry runs.
    """
    for number in (1, 2):
        response = send(client, f"{url}?then={what}")
        assert (response.status_code, is_replay(response)) == (500, False)
        assert (len(runs), Order.objects.count(), Record.objects.count()) == (number, 0, 0)
    assert send(client, url).status_code == 201


@pytest.mark.parametrize("url", IN_DATABASE)
def test_a_refusal_that_is_raised(client: Client, url: str) -> None:
    """REST framework marks the transaction only under ATOMIC_REQUESTS; it is undone either way."""
    check_replayed(*send_twice(client, f"{url}?then=missing"), 404)
    assert (len(runs), Order.objects.count()) == (1, 0)


def test_without_a_transaction_of_ours(client: Client) -> None:
    """A commit that fails is a failure: under ATOMIC_REQUESTS it comes before the record is completed."""
    first, second = (send(client, "/lease/?then=deferred") for _ in range(2))
    check_replayed(first, second, 500)
    assert Order.objects.count() == (0 if connection.settings_dict["ATOMIC_REQUESTS"] else 1)


@pytest.mark.parametrize("what", ["swallowed", "closed"])
def test_a_success_that_was_undone_without_a_transaction_of_ours(client: Client, what: str) -> None:
    """Under ATOMIC_REQUESTS, Django would send it, and the retry would get it for ever."""
    with atomic_requests("default"):
        first, second = send_twice(client, f"/lease/?then={what}")
    check_replayed(first, second, 500)
    assert (len(runs), Order.objects.count()) == (1, 0)


def test_methods_that_are_not_protected(client: Client) -> None:
    """Of a class, of which another one claims: with and without a key they are what they were."""
    send(client, "/lease/")
    for key in ("k1", "k2"):
        assert send(client, "/lease/?then=failed", method="PUT", key=key).status_code == 500
    assert Order.objects.count() == (1 if connection.settings_dict["ATOMIC_REQUESTS"] else 3)


@pytest.mark.parametrize("url", ["/lease/", *IN_DATABASE])
def test_without_a_key(client: Client, url: str) -> None:
    """As Django makes it: what was raised is undone under ATOMIC_REQUESTS, `NotDone` included."""
    for what, status in (("missing", 404), ("not done", 503), ("failed", 500)):
        response = client.post(f"{url}?then={what}", "{}", content_type="application/json")
        assert response.status_code == status
    assert Order.objects.count() == (0 if connection.settings_dict["ATOMIC_REQUESTS"] else 3)
    assert Record.objects.count() == 0


@pytest.mark.parametrize("url", IN_DATABASE)
def test_several_databases(client: Client, url: str) -> None:
    """The block of another database is undone with ours, and committed with it."""
    with atomic_requests("default", "second"):
        assert send(client, f"{url}?then=second and marked", key="k1").status_code == 500
        assert Order.objects.using("second").count() == Order.objects.count() == 0
        assert send(client, f"{url}?then=second marked", key="k4").status_code == 500
        assert Order.objects.using("second").count() == Order.objects.count() == 0
        check_replayed(*send_twice(client, f"{url}?then=second and refused", key="k2"), 404)
        assert Order.objects.using("second").count() == Order.objects.count() == 0
        check_replayed(*send_twice(client, f"{url}?then=second", key="k3"), 201)
        assert Order.objects.using("second").count() == Order.objects.count() == 1
