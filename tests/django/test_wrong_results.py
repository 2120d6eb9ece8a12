"""What a naive implementation gets wrong in Django: each of these was seen, and each stays right here."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import Context, Template
from django.template.response import TemplateResponse
from django.test import Client, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from retrysafe.django import IdempotentMixin, idempotent
from retrysafe.django.models import Record
from retrysafe.errors import CommitRefused, ConfigurationError
from tests.django import project
from tests.django.shop.models import Line, Order

runs: list[str] = []


def _orders(request: HttpRequest) -> HttpResponse:
    runs.append("run")
    Order.objects.create(label="first")
    match request.GET.get("then"):
        case "deferred":
            Line.objects.create(order_id=10_000_000)
        case "swallowed":
            with connection.cursor() as cursor:
                try:
                    cursor.execute("INSERT INTO no_such_table VALUES (1)")
                except Exception:  # noqa: BLE001 - as a view that swallows it
                    transaction.set_rollback(True)
        case "closed":
            connection.close()
        case "second":
            Order.objects.using("second").create(label="second")
        case "second and fail":
            Order.objects.using("second").create(label="second")
            transaction.set_rollback(True)
        case "read then write":
            Order.objects.create(label=f"after {Order.objects.count()}")
        case "unrendered":
            return TemplateResponse(request, Template("{{ broken }}"), {"broken": _Broken()})  # type: ignore[arg-type]  # a template
        case _:
            pass
    return JsonResponse({"orders": len(runs)}, status=201)


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError("it cannot be rendered")


lease = idempotent(_orders)
in_database = idempotent(effects="database")(_orders)


@method_decorator(idempotent(effects="database"), name="post")
class ByMethod(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return _orders(request)

    def put(self, request: HttpRequest) -> HttpResponse:
        """Not decorated: as atomic as Django makes it."""
        Order.objects.create(label="put")
        raise RuntimeError("the view failed")


class ByMixin(IdempotentMixin, View):
    idempotency_options = {"effects": "database"}  # noqa: RUF012 - as projects write it

    def post(self, request: HttpRequest) -> HttpResponse:
        return _orders(request)


urlpatterns = [
    path("lease/", lease),
    path("database/", in_database),
    path("method/", ByMethod.as_view()),
    path("mixin/", ByMixin.as_view()),
]


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


def post(client: Client, url: str, key: str = "k1") -> Any:
    return client.post(url, "{}", content_type="application/json", headers={"Idempotency-Key": key})


@contextmanager
def atomic_requests(*aliases: str) -> Generator[None]:
    for alias in aliases:
        connections.settings[alias]["ATOMIC_REQUESTS"] = True
    try:
        yield
    finally:
        for alias in aliases:
            connections.settings[alias]["ATOMIC_REQUESTS"] = False


@pytest.mark.parametrize("url", ["/lease/", "/database/", "/method/", "/mixin/"])
def test_a_commit_that_fails_is_never_replayed_as_success(
    client: Client, each_database: str, url: str
) -> None:
    """1. Under ATOMIC_REQUESTS the record was completed before the COMMIT: the retry replayed 201."""
    with atomic_requests("default"):
        first, second = post(client, f"{url}?then=deferred"), post(client, f"{url}?then=deferred")
    assert first.status_code == second.status_code == 500
    assert Order.objects.count() == 0
    if url == "/lease/":  # a failure is replayed: whether the view charged a card is not known
        assert second.headers["Idempotent-Replayed"] == "true"
        assert runs == ["run"]
    else:
        assert "Idempotent-Replayed" not in second.headers
        assert runs == ["run", "run"]
        assert Record.objects.count() == 0


@pytest.mark.parametrize("url", ["/database/", "/method/", "/mixin/"])
@pytest.mark.parametrize("then", ["swallowed", "closed"])
@pytest.mark.parametrize("aliases", [(), ("default",)], ids=["autocommit", "ATOMIC_REQUESTS"])
def test_a_success_that_was_rolled_back(
    client: Client, each_database: str, url: str, then: str, aliases: tuple[str, ...]
) -> None:
    """2. A 2xx of a transaction that is marked for rollback, or lost its connection, is no success."""
    with atomic_requests(*aliases):
        for number in (1, 2):
            response = post(client, f"{url}?then={then}")
            assert response.status_code == 500
            assert len(runs) == number
    assert Order.objects.count() == Record.objects.count() == 0


def test_several_databases(client: Client) -> None:
    """3. What the other database was told is undone when ours is refused, else committed after it."""
    with atomic_requests("default", "second"):
        assert post(client, "/database/?then=second and fail", "failing").status_code == 500
        assert Order.objects.using("second").count() == Order.objects.count() == 0
        for _ in range(2):
            assert post(client, "/database/?then=second").status_code == 201
        assert Order.objects.using("second").count() == Order.objects.count() == 1
        assert post(client, "/lease/?then=second", "lease").status_code == 201
        assert Order.objects.using("second").count() == 2


def test_undecorated_methods_stay_atomic(client: Client, each_database: str) -> None:
    """A class whose `post` claims is not made less atomic for its other methods."""
    with atomic_requests("default"):
        assert post(client, "/method/").status_code == 201
        assert client.put("/method/").status_code == 500
        assert post(client, "/method/").headers["Idempotent-Replayed"] == "true"
    assert list(Order.objects.values_list("label", flat=True)) == ["first"]


def test_reading_then_writing_at_once(client: Client, each_database: str) -> None:
    """4. Of 200 requests that read and then write on SQLite at once, 190 failed with Django's own BEGIN."""
    failed: list[Any] = []

    def work(number: int) -> None:
        mine = Client(raise_request_exception=False, headers={"Authorization": "Bearer alice"})
        for round in range(10):
            response = post(mine, "/database/?then=read then write", f"{number}-{round}")
            if response.status_code != 201:
                failed.append(response.content)
        connections.close_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    assert Order.objects.count() == 160


def test_the_same_key_at_once(client: Client, each_database: str) -> None:
    """Fifty duplicates: one run, and the others are told that it is in progress, or get its response."""
    seen: list[int] = []

    def work() -> None:
        mine = Client(raise_request_exception=False, headers={"Authorization": "Bearer alice"})
        seen.append(post(mine, "/database/").status_code)
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= {201, 409}, seen
    assert runs == ["run"]
    assert Order.objects.count() == 1


def test_the_pool_of_the_application_is_left_alone(database: str) -> None:
    """5. With OPTIONS["pool"] a copied connection drew from the pool, and each request waited for itself."""
    said = project.postgresql(database) | {"OPTIONS": {"pool": {"min_size": 1, "max_size": 2, "timeout": 2}}}
    with project.database("default", said):
        with override_settings(ROOT_URLCONF=__name__):
            statuses: list[int] = []

            def work(number: int) -> None:
                mine = Client(raise_request_exception=False, headers={"Authorization": "Bearer alice"})
                statuses.append(post(mine, "/database/", f"k{number}").status_code)
                connections.close_all()

            threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert statuses == [201, 201]
        pool: Any = connection
        connection.close()
        pool.close_pool()


# 6. Tests inside of TestCase: see test_test_tools.py.


@pytest.mark.parametrize("url", ["/lease/", "/database/", "/method/"])
def test_a_response_that_cannot_be_rendered(client: Client, each_database: str, url: str) -> None:
    """7. Rendering comes after the claim: a failure is settled, no transaction and no lock stays open."""
    assert post(client, f"{url}?then=unrendered").status_code == 500
    assert not connection.in_atomic_block
    assert not Record.objects.filter(state="in_progress").exists()
    assert post(client, url, "another").status_code == 201
    assert Order.objects.count() == (2 if url == "/lease/" else 1)


def test_templates_are_rendered() -> None:
    """The template of the test above renders what can be rendered."""
    assert Template("{{ broken }}").render(Context({"broken": 1})) == "1"


def test_why_a_commit_was_refused(client: Client, each_database: str) -> None:
    """What the database said is the cause of what tests and monitoring are told."""
    client.raise_request_exception = True
    if each_database == "mariadb":  # it defers no constraint, and refuses the statement
        with pytest.raises(IntegrityError):
            post(client, "/database/?then=deferred")
        return
    with pytest.raises(CommitRefused) as raised:
        post(client, "/database/?then=deferred")
    assert isinstance(raised.value.__cause__, IntegrityError)


def test_the_middleware_is_missing(client: Client) -> None:
    """A view that claims says so, instead of settling without knowing what Django makes of exceptions."""
    without = [path for path in settings.MIDDLEWARE if not path.startswith("retrysafe")]
    mine = Client(headers={"Authorization": "Bearer alice"})
    with (
        override_settings(MIDDLEWARE=without, ROOT_URLCONF=__name__),
        pytest.raises(ConfigurationError, match=r"retrysafe\.django\.Middleware"),
    ):
        post(mine, "/database/")
    assert json.dumps(runs) == "[]"
