"""A guarded view on SQLite, where one writes at a time: it takes the write lock with its first statement."""

import sqlite3
from contextlib import closing
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django.shop.models import Order


def _elsewhere(*, timeout: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(settings.DATABASES["default"]["NAME"], isolation_level=None, timeout=timeout)


def _write_elsewhere() -> bool:
    with closing(_elsewhere()) as other:
        try:
            other.execute("INSERT INTO shop_order (label) VALUES ('elsewhere')")
        except sqlite3.OperationalError:
            return False
        return True


@idempotent(effects="database")
def looks_first(request: HttpRequest) -> HttpResponse:
    before = _write_elsewhere()
    seen = Order.objects.count()
    return JsonResponse({"before": before, "seen": seen, "after": _write_elsewhere()}, status=201)


@idempotent(effects="database")
def in_savepoint(request: HttpRequest) -> HttpResponse:
    assert connection.in_atomic_block
    before = _write_elsewhere()
    with transaction.atomic():
        inside = _write_elsewhere()
    return JsonResponse({"before": before, "inside": inside}, status=201)


@idempotent(effects="database")
def past_django(request: HttpRequest) -> HttpResponse:
    driver: Any = connection.connection
    driver.execute("INSERT INTO shop_order (label) VALUES ('past Django')")
    return JsonResponse({"elsewhere": _write_elsewhere()}, status=500 if request.GET.get("fail") else 201)


@idempotent(effects="database")
def writes_nothing(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"elsewhere": _write_elsewhere()}, status=201)


@idempotent(effects="database")
def writes_late(request: HttpRequest) -> HttpResponse:
    with closing(_elsewhere()) as other:
        other.execute("BEGIN IMMEDIATE")
        Order.objects.create(label="never")
    return JsonResponse({}, status=201)


urlpatterns = [
    path("looks-first/", looks_first),
    path("in-savepoint/", in_savepoint),
    path("past-django/", past_django),
    path("writes-nothing/", writes_nothing),
    path("writes-late/", writes_late),
]


def _post(client: Client, target: str) -> Any:
    return client.post(target, headers={"Idempotency-Key": "k1"})


def test_others_can_write_until_its_first_statement(client: Client) -> None:
    """And not after it, although that one only reads: what it writes next belongs to what it has read."""
    for replayed in (None, "true"):
        response = _post(client, "/looks-first/")
        assert response.json() == {"before": True, "seen": 1, "after": False}
        assert response.headers.get("Idempotent-Replayed") == replayed
    assert Order.objects.count() == 1


def test_a_block_of_its_own_is_a_statement(client: Client) -> None:
    """`atomic()` in a view is a savepoint of its transaction, which therefore begins."""
    assert _post(client, "/in-savepoint/").json() == {"before": True, "inside": False}


def test_what_goes_past_django_is_part_of_it(client: Client) -> None:
    """What is written on the driver's connection is undone with the rest, and committed with it."""
    assert _post(client, "/past-django/?fail=1").status_code == 500
    assert not Order.objects.exists()
    assert _post(client, "/past-django/").json() == {"elsewhere": False}
    assert Order.objects.get().label == "past Django"
    assert Record.objects.get().state == "completed"


def test_a_view_that_writes_nothing(client: Client) -> None:
    """Its response is stored all the same, and no other request waited for it."""
    for replayed in (None, "true"):
        response = _post(client, "/writes-nothing/")
        assert response.json() == {"elsewhere": True}
        assert response.headers.get("Idempotent-Replayed") == replayed


def test_a_busy_database(client: Client) -> None:
    """Where another program keeps the write lock, nothing was done: 503, and the key is free."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 10")
    response = _post(client, "/writes-late/")
    assert (response.status_code, response.json()["code"]) == (503, "not-done")
    assert response.headers["Retry-After"]
    assert not Record.objects.exists()


def test_the_connection_is_given_back_as_it_was(client: Client) -> None:
    """Django's connection may serve other requests: it commits by itself, and as durably as before."""

    def state() -> tuple[object, ...]:
        connection.ensure_connection()
        driver: Any = connection.connection
        pragmas = [
            driver.execute(f"PRAGMA {name}").fetchone() for name in ("wal_autocheckpoint", "synchronous")
        ]
        return (driver.isolation_level, connection.get_autocommit(), *pragmas, *connection.execute_wrappers)

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_autocheckpoint = 77")
    before = state()
    for target in ("/looks-first/", "/past-django/?fail=1", "/writes-nothing/"):
        _post(client, target)
        assert state() == before
