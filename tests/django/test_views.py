"""Function views that claim: what runs once, what is replayed, and what a transaction takes back."""

import json
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import path

from retrysafe import NotDone, current
from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django.shop.models import Line, Order

runs: list[str] = []


def _begin(request: HttpRequest) -> str:
    label = request.GET.get("label", "-")
    runs.append(label)
    Order.objects.create(label=label)
    return label


@idempotent
def outside(request: HttpRequest) -> HttpResponse:
    return JsonResponse(
        {"label": _begin(request), "run": len(runs)}, status=201, headers={"Location": "/orders/1"}
    )


@idempotent(effects="database")
def in_database(request: HttpRequest) -> HttpResponseBase:
    label = _begin(request)
    match request.GET.get("then"):
        case "404":
            raise Http404("no such thing")
        case "409":
            return JsonResponse({"error": "taken"}, status=409)
        case "500":
            raise RuntimeError("the view failed")
        case "not done":
            raise NotDone("try again", retry_after=3)
        case "marked":
            transaction.set_rollback(True)
        case "closed":
            connection.close()
        case "deferred":
            Line.objects.create(order_id=10_000_000)
        case "caught":
            try:
                Order.objects.create(id=1000, label="one")
                with transaction.atomic():
                    Order.objects.create(id=1000, label="two")
            except IntegrityError:
                Order.objects.create(label="three")
        case "hook":
            transaction.on_commit(lambda: runs.append("hook"))
            current().on_commit(lambda: runs.append("ours"))
        case "failing hook":
            transaction.on_commit(_fail)
            transaction.on_commit(lambda: runs.append("second hook"))
        case "large":
            return HttpResponse(b"x" * 2_000_000)
        case "stream":
            return StreamingHttpResponse(iter([b"a" * 1_000_000, b"b" * 1_000_000]))
        case _:
            pass
    return JsonResponse({"label": label, "run": len(runs)}, status=201)


def _fail() -> None:
    raise RuntimeError("a hook failed")


urlpatterns = [path("outside/", outside), path("database/", in_database)]


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


def post(client: Client, url: str, key: str = "k1", body: object = None) -> Any:
    return client.post(
        url, json.dumps(body or {}), content_type="application/json", headers={"Idempotency-Key": key}
    )


def test_a_retry_is_replayed(client: Client, each_database: str) -> None:
    """The same status, headers and bytes, and the view ran once."""
    first, second = post(client, "/outside/"), post(client, "/outside/")
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert second.headers["Location"] == "/orders/1"
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Original-Request-Id"] == first.headers["X-Request-Id"]
    assert "Idempotent-Replayed" not in first.headers
    assert runs == ["-"]


@pytest.mark.parametrize(("then", "status"), [("", 201), ("409", 409), ("404", 404)])
def test_what_is_kept_in_a_transaction(client: Client, each_database: str, then: str, status: int) -> None:
    """Success and refusals are stored; what was raised is undone first, what was returned is committed."""
    url = f"/database/?then={then}"
    first, second = post(client, url), post(client, url)
    assert first.status_code == second.status_code == status
    assert first.content == second.content
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(runs) == 1
    assert Order.objects.count() == (0 if then == "404" else 1)


@pytest.mark.parametrize(
    ("then", "status"), [("500", 500), ("not done", 503), ("marked", 500), ("closed", 500), ("deferred", 500)]
)
def test_what_is_undone(client: Client, each_database: str, then: str, status: int) -> None:
    """Nothing is left, neither effect nor record, and the retry runs."""
    url = f"/database/?then={then}"
    for number in (1, 2):
        response = post(client, url)
        assert response.status_code == status, response.content
        assert len(runs) == number
        assert Order.objects.count() == 0
        assert Record.objects.count() == 0


def test_an_error_in_a_block_of_its_own(client: Client, each_database: str) -> None:
    """A savepoint is undone, and the rest of the view is committed."""
    assert post(client, "/database/?then=caught").status_code == 201
    assert sorted(Order.objects.values_list("label", flat=True)) == ["-", "one", "three"]


def test_hooks_after_the_commit(client: Client, each_database: str) -> None:
    """Django's come first, then ours; a replay has none."""
    post(client, "/database/?then=hook")
    assert runs == ["-", "hook", "ours"]
    assert post(client, "/database/?then=hook").headers["Idempotent-Replayed"] == "true"
    assert runs == ["-", "hook", "ours"]


def test_a_hook_that_fails(client: Client, each_database: str, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing of what was committed, is in the log, and the hooks after it run."""
    first, second = post(client, "/database/?then=failing hook"), post(client, "/database/?then=failing hook")
    assert first.status_code == second.status_code == 201
    assert second.headers["Idempotent-Replayed"] == "true"
    assert runs == ["-", "second hook"]
    assert "after the commit failed" in caplog.text


@pytest.mark.parametrize("then", ["large", "stream"])
def test_a_large_response_in_a_transaction(client: Client, each_database: str, then: str) -> None:
    """It is sent after the commit, and the retry is told that it was omitted."""
    url = f"/database/?then={then}"
    first, second = post(client, url), post(client, url)
    body = b"".join(first.streaming_content) if first.streaming else first.content
    assert len(body) == 2_000_000
    assert (second.status_code, second.content) == (200, b"")
    assert second.headers["Idempotency-Body"] == "omitted"
    assert Order.objects.count() == 1
