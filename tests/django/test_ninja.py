"""Operations of django-ninja that claim: after authentication and validation, settled with the response."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from ninja import File, Form, NinjaAPI, Router, Schema, Status, UploadedFile
from ninja.decorators import decorate_view
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.throttling import BaseThrottle
from pydantic import ValidationError

from retrysafe import NotDone, current
from retrysafe.django import scopes
from retrysafe.django.models import Record
from retrysafe.django.ninja import idempotent
from retrysafe.errors import ConfigurationError
from tests.django import project
from tests.django.api import atomic_requests, check_replayed, is_replay, order, runs, send, send_twice
from tests.django.shop.models import Line, Order
from tests.django.signing import Person


class OrderIn(Schema):
    label: str


class OrderOut(Schema):
    label: str
    run: int


class Signed(HttpBearer):
    """The user in `request.auth`, as classes of ninja's have it; `request.user` is not set."""

    def authenticate(self, request: HttpRequest, token: str) -> Person | None:
        return None if token in revoked else Person(token)


class Taken(Exception):
    """The API has a handler for it."""


class Throttle(BaseThrottle):
    def allow_request(self, request: HttpRequest) -> bool:
        return "throttled" not in request.GET

    def wait(self) -> float:
        return 7


revoked: set[str] = set()
around: list[str] = []
meanwhile: list[Any] = []
api = NinjaAPI(auth=Signed(), urls_namespace="tests")
router = Router()


@api.exception_handler(Taken)
def taken(request: HttpRequest, error: Taken) -> HttpResponse:
    return api.create_response(request, {"detail": "taken"}, status=409)


@api.exception_handler(ValidationError)
def not_shown(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Of a result that is not what the operation declares."""
    return api.create_response(request, {"detail": "not what was declared"}, status=418)


def then(what: str) -> Any:
    match what:
        case "missing":
            raise HttpError(404, "no such thing")
        case "404":
            raise Http404("no such thing")
        case "unavailable":
            raise HttpError(503, "the bank is closed")
        case "taken":
            raise Taken
        case "failed":
            raise RuntimeError("the operation failed")
        case "not done":
            raise NotDone("try again", retry_after=3)
        case "retry":
            raise ConnectionError("nothing was sent")
        case "returned":
            return Status(409, OrderOut(label="taken", run=0))
        case "response":
            return HttpResponse(b"\x00\xff", content_type="application/octet-stream", status=202)
        case "not shown":
            return Status(201, {"label": "-"})
        case "deferred":
            Line.objects.create(order_id=10_000_000)
        case "marked":
            transaction.set_rollback(True)
        case "swallowed":
            try:
                Order.objects.create(id=1000, label="one")
                with transaction.atomic():
                    Order.objects.create(id=1000, label="two")
            except IntegrityError:
                pass
        case _:
            pass
    return None


@router.post("/lease", response={201: OrderOut, 409: OrderOut}, throttle=Throttle())
@idempotent(retry_on=(ConnectionError,))
def lease(request: HttpRequest, body: OrderIn) -> Any:
    made = order(body.label)
    return then(request.GET.get("then", "")) or Status(201, made)


@router.post("/database", response={201: OrderOut, 409: OrderOut}, throttle=Throttle())
@idempotent(required=True, effects="database", retry_on=(ConnectionError,))
def in_database(request: HttpRequest, body: OrderIn) -> Any:
    made = order(body.label)
    return then(request.GET.get("then", "")) or Status(201, made)


@router.put("/database", response=OrderOut)
def unprotected(request: HttpRequest, body: OrderIn) -> Any:
    """By another method of the same path."""
    order(body.label)
    raise RuntimeError("the operation failed")


@router.post("/lazy", response=list[OrderIn])
@idempotent(effects="database")
def lazy(request: HttpRequest) -> Any:
    """What is returned is read from the database when the response is made."""
    order("lazy")
    return Order.objects.filter(label="lazy")


@router.post("/asked-again")
@idempotent
def asked_again(request: HttpRequest) -> Any:
    """Whose client does not wait for it."""
    order()
    headers = {"Authorization": "Bearer alice"}
    meanwhile.append(send(Client(), request.path, key=request.headers["Idempotency-Key"], headers=headers))
    return ""


@router.post("/form")
@idempotent(effects="database")
def form(request: HttpRequest, label: Form[str], file: File[UploadedFile]) -> Any:
    return order(f"{label} {file.size}")


@router.post("/plain")
@idempotent
def plain(request: HttpRequest) -> Any:
    return order()


def log_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    def logged(request: HttpRequest, *args: Any, **named: Any) -> Any:
        around.append(request.path)
        return function(request, *args, **named)

    return logged


@router.post("/decorated")
@decorate_view(log_calls)
@idempotent
@decorate_view(log_calls)
def decorated(request: HttpRequest) -> Any:
    return order()


@router.post("/stream")
@idempotent
def stream(request: HttpRequest) -> Any:
    order()
    return StreamingHttpResponse(iter([b"a", b"b"]), content_type="text/plain")


@router.post("/key")
@idempotent(scope=scopes.argument("body.label"))
def by_argument(request: HttpRequest, body: OrderIn) -> Any:
    return order(body.label)


@router.post("/derived")
@idempotent
def derived(request: HttpRequest) -> Any:
    order(current().derive("charge"))
    raise NotDone("not believed any more")


@router.post("/awaited", response={201: OrderOut, 409: OrderOut})
@idempotent(required=True, retry_on=(ConnectionError,))
async def awaited(request: HttpRequest, body: OrderIn) -> Any:
    runs.append(body.label)
    await asyncio.sleep(0)
    if request.GET.get("then") == "cancelled":
        raise asyncio.CancelledError
    return then(request.GET.get("then", "")) or Status(201, {"label": body.label, "run": len(runs)})


@router.post("/awaited-by-choice")
@idempotent
async def awaited_by_choice(request: HttpRequest) -> Any:
    return then(request.GET.get("then", "")) or ""


@router.patch("/awaited")
@idempotent(effects="database")
def beside_awaited(request: HttpRequest) -> Any:
    """Blocking, and of the same path, so that it is called in a thread."""
    return order()


api.add_router("/v1", router)
api.add_router("/v2", router, url_name_prefix="v2")
urlpatterns = [path("api/", api.urls)]

BODY = {"label": "-"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    runs.clear()
    around.clear()
    meanwhile.clear()
    yield
    revoked.clear()


@pytest.mark.parametrize("url", ["lease", "database", "lazy", "plain", "stream"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_retry_is_replayed(client: Client, each_database: str, url: str, version: str) -> None:
    """From one run; also of a router that is in an API twice."""
    first, second = (send(client, f"/api/{version}/{url}", BODY) for _ in range(2))
    check_replayed(first, second, 201 if url in ("lease", "database") else 200)
    assert len(runs) == Order.objects.count() == 1


def test_authentication_comes_first(client: Client, each_database: str) -> None:
    """Before a claim, and before a replay; and the key is that of the user whom ninja has found."""
    first = send(client, "/api/v1/database", BODY)
    revoked.add("alice")
    assert send(client, "/api/v1/database", BODY).status_code == 401
    assert Record.objects.count() == 1
    revoked.clear()
    check_replayed(first, send(client, "/api/v1/database", BODY), 201)
    assert send(Client(), "/api/v1/database", BODY).status_code == 401
    assert not is_replay(send(client, "/api/v1/database", BODY, headers={"Authorization": "Bearer bob"}))
    with override_settings(MIDDLEWARE=[one for one in settings.MIDDLEWARE if "SignIn" not in one]):
        check_replayed(first, send(client, "/api/v1/database", BODY), 201)


@pytest.mark.parametrize("url", ["lease", "database"])
def test_what_ninja_refuses_leaves_no_record(client: Client, each_database: str, url: str) -> None:
    """A body that does not validate, and a throttled request."""
    response = send(client, f"/api/v1/{url}", {"lable": "-"})
    assert (response.status_code, response.json()["detail"][0]["type"]) == (422, "missing")
    assert send(client, f"/api/v1/{url}?throttled", BODY).status_code == 429
    assert Record.objects.count() == 0
    assert send(client, f"/api/v1/{url}", BODY).status_code == 201


def test_refusals_are_problems(client: Client) -> None:
    """400 without a key, 422 for another body, 409 while the first one runs."""
    url = "/api/v1/database"
    missing = client.post(url, json.dumps(BODY), content_type="application/json")
    assert (missing.status_code, missing.json()["code"]) == (400, "key-missing")
    send(client, url, BODY)
    reused = send(client, url, {"label": "other"})
    assert (reused.status_code, reused.json()["code"]) == (422, "key-reused")
    assert send(client, "/api/v1/asked-again", key="k2").status_code == 200
    [busy] = meanwhile
    assert (busy.status_code, busy.json()["code"]) == (409, "in-flight")
    assert busy.headers["Content-Type"] == "application/problem+json"
    assert busy.headers["X-Should-Retry"] == "true"
    assert int(busy.headers["Retry-After"]) >= 1
    assert runs == ["-", "-"]


@pytest.mark.parametrize(
    ("what", "status"), [("missing", 404), ("404", 404), ("taken", 409), ("not shown", 418)]
)
def test_what_was_raised_is_undone_and_replayed(
    client: Client, each_database: str, what: str, status: int
) -> None:
    """In a transaction: ninja makes a response of an exception, which alone would take nothing back."""
    first, second = (send(client, f"/api/v1/database?then={what}", BODY) for _ in range(2))
    check_replayed(first, second, status)
    assert (len(runs), Order.objects.count()) == (1, 0)


@pytest.mark.parametrize(("what", "status"), [("returned", 409), ("response", 202), ("swallowed", 201)])
def test_what_was_returned_is_committed(client: Client, each_database: str, what: str, status: int) -> None:
    first, second = (send(client, f"/api/v1/database?then={what}", BODY) for _ in range(2))
    check_replayed(first, second, status)
    assert len(runs) == 1
    assert Order.objects.exists()


@pytest.mark.parametrize("aliases", [(), ("default",)], ids=["autocommit", "ATOMIC_REQUESTS"])
@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("failed", 500),
        ("unavailable", 503),
        ("not done", 503),
        ("retry", 503),
        ("deferred", 500),
        ("marked", 500),
    ],
)
def test_what_is_undone(
    client: Client, each_database: str, what: str, status: int, aliases: tuple[str, ...]
) -> None:
    """Neither an effect nor a record is left, and the retry runs."""
    with atomic_requests(*aliases):
        for number in (1, 2):
            response = send(client, f"/api/v1/database?then={what}", BODY)
            assert response.status_code == status, response.content
            assert (len(runs), Order.objects.count(), Record.objects.count()) == (number, 0, 0)


@pytest.mark.parametrize(("what", "status"), [("failed", 500), ("unavailable", 503), ("taken", 409)])
def test_what_is_kept_without_a_transaction(client: Client, what: str, status: int) -> None:
    """What came of it is not known, or was refused: it is not run again."""
    first, second = (send(client, f"/api/v1/lease?then={what}", BODY) for _ in range(2))
    check_replayed(first, second, status)
    assert len(runs) == 1


@pytest.mark.parametrize("what", ["not done", "retry"])
def test_what_is_released_without_a_transaction(client: Client, what: str) -> None:
    for number in (1, 2):
        response = send(client, f"/api/v1/lease?then={what}", BODY)
        assert (response.status_code, response.headers["X-Should-Retry"]) == (503, "true")
        assert (len(runs), Record.objects.count()) == (number, 0)


def test_a_derived_key_may_have_been_used(client: Client) -> None:
    """So `NotDone` after it is not believed."""
    first, second = send(client, "/api/v1/derived"), send(client, "/api/v1/derived")
    check_replayed(first, second, 500)
    assert len(runs) == 1


def test_atomic_requests_without_a_transaction_of_ours(client: Client, each_database: str) -> None:
    """The commit comes before the completion: one that fails is never replayed as a success."""
    with atomic_requests("default"):
        first, second = (send(client, "/api/v1/lease?then=deferred", BODY) for _ in range(2))
        check_replayed(first, second, 500)
        check_replayed(*send_twice(client, "/api/v1/lease?then=marked", BODY, key="k3"), 500)
        assert Order.objects.count() == 0
        assert send(client, "/api/v1/lease", BODY, key="k2").status_code == 201
        assert Order.objects.count() == 1
        # By another method of the same path, which is not protected, it is as atomic as Django makes it.
        assert send(client, "/api/v1/database", BODY, "PUT").status_code == 500
    assert Order.objects.count() == 1


def test_several_databases(client: Client) -> None:
    """What another database was told is undone when ours is refused."""
    with atomic_requests("default", "second"):
        assert send(client, "/api/v1/database?then=marked", BODY).status_code == 500
        check_replayed(*send_twice(client, "/api/v1/database", BODY), 201)
    assert Order.objects.count() == 1


def test_without_a_key(client: Client) -> None:
    """An operation is as without the decorator; `NotDone` is a 503, of which nothing is left."""
    with atomic_requests("default"):
        for number in (1, 2):
            assert (
                client.post("/api/v1/lease", json.dumps(BODY), content_type="application/json").status_code
                == 201
            )
            assert Order.objects.count() == number
        response = client.post(
            "/api/v1/lease?then=not done", json.dumps(BODY), content_type="application/json"
        )
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
    assert Order.objects.count() == 2
    assert Record.objects.count() == 0


def test_uploads_and_forms(client: Client) -> None:
    """4 MB, which are in the fingerprint: another file is another request."""
    from django.core.files.uploadedfile import SimpleUploadedFile

    def upload(letter: bytes) -> Any:
        file = SimpleUploadedFile("a.bin", letter * 4_000_000)
        headers = {"Idempotency-Key": "k1"}
        return client.post("/api/v1/form", {"label": "a", "file": file}, headers=headers)

    check_replayed(upload(b"a"), upload(b"a"), 200)
    assert runs == ["a 4000000"]
    assert upload(b"b").status_code == 422


def test_the_function_s_arguments_may_be_the_scope(client: Client) -> None:
    """They are what ninja has validated."""
    assert send(client, "/api/v1/key", {"label": "a"}).status_code == 200
    assert not is_replay(send(client, "/api/v1/key", {"label": "b"}))
    assert is_replay(send(client, "/api/v1/key", {"label": "a"}))


def test_other_decorators_of_views(client: Client) -> None:
    """Those above see a replay as any response, and those below are asked before it."""
    check_replayed(send(client, "/api/v1/decorated"), send(client, "/api/v1/decorated"), 200)
    assert around == ["/api/v1/decorated"] * 4
    assert len(runs) == 1


def test_pages_for_developers_are_not_stored(client: Client) -> None:
    """Under DEBUG, ninja responds with a traceback."""
    with override_settings(DEBUG=True):
        first = send(client, "/api/v1/lease?then=failed", BODY)
        second = send(client, "/api/v1/lease?then=failed", BODY)
    assert b"Traceback" in first.content
    assert (second.status_code, second.json()["code"]) == (500, "handler-failed")
    assert runs == ["-"]


# --- asynchronous operations


def twice(client: AsyncClient, url: str, method: str = "POST", body: object = None) -> tuple[Any, Any]:
    """The responses to a request and its retry."""
    headers = {"Idempotency-Key": "k1", "Authorization": "Bearer alice"}

    async def run() -> tuple[Any, Any]:
        # Django's thread for blocking code outlives a test, and the next one's database is another.
        await sync_to_async(project.drop_connection)("default")
        try:
            sent = json.dumps(body or BODY)
            first = await client.generic(method, url, sent, "application/json", headers=headers)
            return first, await client.generic(method, url, sent, "application/json", headers=headers)
        finally:
            await sync_to_async(project.drop_connection)("default")

    return asyncio.run(run())


@pytest.mark.parametrize(("what", "status"), [("", 201), ("returned", 409), ("taken", 409), ("failed", 500)])
@pytest.mark.parametrize("is_async", [True, False], ids=["ASGI", "WSGI"])
def test_awaited(
    client: Client, async_client: AsyncClient, each_database: str, what: str, status: int, is_async: bool
) -> None:
    """From one run, whichever the server is."""
    url = f"/api/v1/awaited?then={what}"
    first, second = twice(async_client, url) if is_async else [send(client, url, BODY) for _ in range(2)]
    check_replayed(first, second, status)
    assert runs == ["-"]


@pytest.mark.parametrize("what", ["not done", "retry"])
def test_awaited_and_released(async_client: AsyncClient, what: str) -> None:
    """Nothing has happened, and the retry runs."""
    assert [one.status_code for one in twice(async_client, f"/api/v1/awaited?then={what}")] == [503, 503]
    assert runs == ["-", "-"]


def test_awaited_and_cancelled_from_inside(async_client: AsyncClient) -> None:
    """A failure like any other."""
    check_replayed(*twice(async_client, "/api/v1/awaited?then=cancelled"), 500)
    assert runs == ["-"]


def test_awaited_without_what_it_needs(client: Client, async_client: AsyncClient) -> None:
    """No key, and a body that does not validate: nothing is claimed."""
    response = client.post("/api/v1/awaited", json.dumps(BODY), content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "key-missing")
    refused = twice(async_client, "/api/v1/awaited", body={"lable": "-"})
    assert [one.status_code for one in refused] == [422, 422]
    assert "Idempotent-Replayed" not in refused[1].headers
    assert runs == []


def test_awaited_without_a_key(client: Client) -> None:
    """As without the decorator; `NotDone` is a 503."""
    body = json.dumps(BODY)
    assert client.post("/api/v1/awaited-by-choice", body, content_type="application/json").status_code == 200
    response = client.post("/api/v1/awaited-by-choice?then=not done", body, content_type="application/json")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")


def test_a_blocking_operation_beside_one_that_is_awaited(
    async_client: AsyncClient, each_database: str
) -> None:
    """It is called in a thread, and has its transaction there."""
    check_replayed(*twice(async_client, "/api/v1/awaited", "PATCH"), 200)
    assert runs == ["-"]


# --- misuse


def test_misuse_is_refused_when_it_is_decorated() -> None:
    """Where the decorator would have no effect, or none that holds."""

    def function(request: HttpRequest) -> str:
        return ""

    def generator(request: HttpRequest) -> Iterator[str]:
        yield ""

    with pytest.raises(ConfigurationError, match="above the decorator of the route"):
        idempotent(Router().post("/")(function))
    with pytest.raises(ConfigurationError, match="generator"):
        idempotent(generator)
    with pytest.raises(ConfigurationError, match="expected the function"):
        idempotent(OrderIn)
    with pytest.raises(ConfigurationError, match="expected a Guard"):
        idempotent("default")  # type: ignore[call-overload]  # what is refused


def test_database_effects_of_a_coroutine_are_refused() -> None:
    """Django's transactions are for blocking code."""

    async def function(request: HttpRequest) -> str:
        return ""

    guarded: Any = idempotent(effects="database")(function)
    from retrysafe._http.marked import marked
    from retrysafe.django import guard

    with pytest.raises(ConfigurationError, match="async def"):
        marked(guarded, guard())


def test_a_function_may_be_called_by_other_code() -> None:
    """Without ninja it is the function that was decorated."""
    assert plain(HttpRequest()) == {"label": "-", "run": 1}


def test_nothing_else_imports_ninja() -> None:
    """It reads Django's settings when it is imported, and a project need not have it."""
    code = (
        "import sys\n"
        "import retrysafe.django.views, retrysafe.django.middleware, retrysafe.django.rest_framework\n"
        "assert 'ninja' not in sys.modules, 'imported'"
    )
    script = f"from django.conf import settings\nsettings.configure()\n{code}"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
