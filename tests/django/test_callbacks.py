"""Views that take deliveries: each sentence of the specification of job callbacks that Django can break.

What is the same in every framework is tried in `tests/callbacks/http`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path, re_path
from django.views import View
from pydantic import BaseModel
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.parsers import FormParser, JSONParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from retrysafe import Guard, NotDone, current
from retrysafe.callbacks import Payload, Receipts, receipts, webhooks
from retrysafe.callbacks.worker import Worker
from retrysafe.django import guard, idempotent
from retrysafe.django.guarded.held import Claimants
from retrysafe.django.models import Record
from retrysafe.django.routes import claims, receives
from retrysafe.errors import ConfigurationError
from tests.django import project
from tests.django.shop.models import Finding, Order, Run

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAYLOAD = {"run_id": "run-1", "callback_id": "c-1", "status": "success", "result_uri": "gs://out/1.json"}


class Callback(BaseModel):
    run_id: str
    callback_id: str | None = None
    status: str
    result_uri: str = ""


@dataclass
class Finished:
    run_id: str
    callback_id: str
    status: str
    result_uri: str


class Service:
    """What the views of this module do, and what they have done."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.does: Callable[[Any], Any] = lambda _: None

    def handle(self, event: Any) -> Any:
        self.runs.append(event)
        return self.does(event)


service = Service()


def process(event: Callback) -> None:
    """The handler of the specification: findings, status and their number."""
    run = Run.objects.get(id=event.run_id)
    for message in ("too hot", "too cold"):
        Finding.objects.create(run=run, message=message)
    run.status, run.findings = event.status, Finding.objects.filter(run=run).count()
    run.save()


def exists(event: Callback) -> bool:
    return Run.objects.filter(id=event.run_id).exists()


async def exists_async(event: Callback) -> bool:
    return await Run.objects.filter(id=event.run_id).aexists()


callbacks = guard("job-callbacks")
jobs = receipts(callbacks, source="jobs", check=exists)
exact = receipts(callbacks, source="exact", check=exists, effects="database")
awaited = receipts(callbacks, source="awaited", check=exists)
checked_async = receipts(callbacks, source="checked", check=exists_async)
shared = receipts(callbacks, source="shared")
acknowledging = receipts(callbacks, source="acknowledging", in_progress="acknowledge")
signed = receipts(callbacks, webhook=webhooks.standard(SECRET), subject="data.order_id")
raw = receipts(callbacks, webhook=webhooks.github("a long random text"), name="raw")
inbox = receipts(callbacks, source="inbox", inbox=True, effects="database")


@jobs.django
def function(event: Callback) -> Any:
    return service.handle(event)


@exact.django
def in_database(event: Callback) -> Any:
    return service.handle(event)


@awaited.django
async def asynchronous(event: Callback) -> Any:
    return await sync_to_async(service.handle)(event)


@checked_async.django
def check_is_asynchronous(event: Callback) -> Any:
    return service.handle(event)


@acknowledging.django
def acknowledge(event: Callback) -> Any:
    return service.handle(event)


@shared.django
def takes_request(event: Finished, request: HttpRequest, tenant: str) -> dict[str, str]:
    service.handle(event)
    return {"tenant": tenant, "agent": request.headers["User-Agent"], "run": event.run_id}


@shared.django
def positional(event: dict[str, object], number: str) -> list[str]:
    service.handle(event)
    return [number]


class Callbacks(View):
    @shared.django
    def post(self, event: Callback, tenant: str) -> Any:
        assert self.request.resolver_match is not None
        return service.handle((event.run_id, tenant, self.kwargs["tenant"]))

    def put(self, request: HttpRequest, tenant: str) -> HttpResponse:
        return HttpResponse("put")

    @idempotent(required=True)
    def patch(self, request: HttpRequest, tenant: str) -> HttpResponse:
        service.runs.append("patch")
        return HttpResponse("patched")


class AsyncCallbacks(View):
    @shared.django
    async def post(self, event: Callback) -> Any:
        service.runs.append(event.run_id)


class RunSerializer(ModelSerializer[Run]):
    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # as its documentation has it
        model = Run
        fields = ("id", "status")


class ApiCallbacks(APIView):
    permission_classes = (IsAuthenticated,)
    parser_classes = (JSONParser, FormParser)

    @exact.django
    def post(self, event: Callback, request: Any) -> Any:
        returned = service.handle(event)
        if returned is not None:
            return returned
        run = get_object_or_404(Run, id=event.run_id)
        # What a serializer reads, it reads in the transaction.
        return Response(RunSerializer(run).data | {"user": request.user.pk}, status=201)


class ReadsFirst(APIView):
    """Its permission reads the body, as an authentication by a part of it does."""

    class HasRun(IsAuthenticated):
        def has_permission(self, request: Any, view: Any) -> bool:
            return "run_id" in request.data or "payload" in request.data

    permission_classes = (HasRun,)
    parser_classes = (JSONParser, FormParser)

    @raw.django
    def post(self, event: Payload) -> Any:
        service.handle(event.body)


class InSession(APIView):
    """For people, too, who are known by their session."""

    authentication_classes = (SessionAuthentication,)

    @shared.django
    def post(self, event: Callback) -> Any:
        return service.handle(event)


class Set(ViewSet):
    @shared.django
    def create(self, event: Callback) -> Any:
        return service.handle(event) or Response({"made": event.run_id}, status=201)

    @action(detail=True, methods=["post"])
    @shared.django
    def finish(self, event: Callback, pk: str) -> Any:
        service.handle((event.run_id, pk))
        return Response({"finished": pk})


@api_view(["POST"])
@permission_classes([IsAuthenticated])
@shared.django
def api(event: Callback, request: Any, pk: int) -> Response:
    service.handle((event.run_id, pk))
    return Response({"user": request.user.pk, "pk": pk})


@signed.django
def on_order(event: dict[str, object]) -> Any:
    return service.handle(event)


@raw.django
def on_push(event: Payload) -> Any:
    return service.handle(event.body)


@inbox.django
def later(event: Callback) -> Any:
    return service.handle(event)


@idempotent
def start(request: HttpRequest) -> HttpResponse:
    service.runs.append("started")
    return JsonResponse({"run": len(service.runs)}, status=202)


urlpatterns = [
    path("function/", function),
    path("database/", in_database),
    path("async/", asynchronous),
    path("checked/", check_is_asynchronous),
    path("acknowledge/", acknowledge),
    path("of/<slug:tenant>/", takes_request),
    re_path(r"^numbered/(\d+)/$", positional),
    path("class/<slug:tenant>/", Callbacks.as_view()),
    path("async-class/", AsyncCallbacks.as_view()),
    path("api/", ApiCallbacks.as_view()),
    path("reads/", ReadsFirst.as_view()),
    path("session/", InSession.as_view()),
    path("set/", Set.as_view({"post": "create"})),
    path("set/<pk>/finish/", Set.as_view({"post": "finish"})),
    path("api/<int:pk>/", api),
    path("orders/", on_order),
    path("pushes/", on_push),
    path("inbox/", later),
    path("start/", start),
]


@pytest.fixture(autouse=True)
def runs(clean: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Two runs, in whichever database a test has."""
    if "each_database" in request.fixturenames:
        request.getfixturevalue("each_database")
    service.__init__()  # type: ignore[misc]  # as it was
    for id in ("run-1", "run-2"):
        Run.objects.create(id=id)
    yield
    callbacks.close()  # what it has counted is of this test
    Run.objects.all().delete()


def post(client: Client, url: str = "/function/", payload: object = None, **sent: Any) -> Any:
    body = payload if isinstance(payload, bytes) else json.dumps({**PAYLOAD, **(payload or {})})  # type: ignore[dict-item]  # a mapping
    return client.post(url, body, content_type=sent.pop("content_type", "application/json"), **sent)


def is_duplicate(response: Any) -> bool:
    return bool(response.status_code == 200 and response.json()["idempotent_replayed"])


def receipt_of(found: Receipts[Any], id: str = "c-1") -> Any:
    found.guard.runtime.leases.close()  # what was counted is stored
    return found.find(id)


def state() -> tuple[str, int, int]:
    """The run's status, the number of findings in its summary, and how many there are."""
    run = Run.objects.get(id="run-1")
    return run.status, run.findings, Finding.objects.filter(run=run).count()


SYNC = ("/function/", "/database/")


# --- what a sender is told


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/checked/", "/api/"])
def test_a_retried_callback_changes_nothing(client: Client, each_database: str, url: str) -> None:
    """Findings once, status once, counts right, nothing processed again; a duplicate is told three things."""
    service.does = process
    replies = [post(client, url) for _ in range(4)]
    assert [is_duplicate(reply) for reply in replies] == [False, True, True, True]
    assert replies[0].status_code == (201 if url == "/api/" else 200)
    assert state() == ("success", 2, 2)
    assert len(service.runs) == 1
    duplicate = replies[1]
    assert set(duplicate.json()) == {"message", "idempotent_replayed", "original_received_at"}
    assert duplicate.json()["message"] == "Callback already processed"
    assert duplicate.headers["Idempotent-Replayed"] == "true"
    assert duplicate.headers["Cache-Control"] == "no-store"
    assert duplicate.headers["Original-Request-Id"] == replies[0].headers["X-Request-Id"]
    received = datetime.fromisoformat(duplicate.json()["original_received_at"])
    assert abs((received - datetime.now(UTC)).total_seconds()) < 60


def test_what_a_view_returns(client: Client) -> None:
    """Nothing is the standard acknowledgement, a dictionary JSON, a response itself."""
    assert post(client).json() == {"message": "Callback processed", "idempotent_replayed": False}
    for number, (returned, content) in enumerate(
        [({"a": 1}, b'{"a": 1}'), ([1], b"[1]"), (HttpResponse("made", status=201), b"made")]
    ):
        service.does = lambda _, returned=returned: returned  # type: ignore[misc]  # its default is of the loop
        assert post(client, payload={"callback_id": f"c-{number + 2}"}).content == content
        assert is_duplicate(post(client, payload={"callback_id": f"c-{number + 2}"}))


def test_what_is_no_response(client: Client) -> None:
    """It is an error of the view, as any view's, and the event is handled again."""
    service.does = lambda _: object()
    assert post(client).status_code == 500
    service.does = lambda _: None
    assert post(client).status_code == 200
    assert len(service.runs) == 2


def test_the_id_is_that_of_a_message(client: Client, each_database: str) -> None:
    """New ids for the same run flow through, retries of them do not; a run's receipts are listed."""
    for id in ("c-1", "c-2", "c-1", "c-3", "c-2"):
        assert post(client, payload={"callback_id": id}).status_code == 200
    assert len(service.runs) == 3
    assert [receipt.id for receipt in jobs.list("run-1")] == ["c-3", "c-2", "c-1"]
    assert jobs.list("run-2") == []


def test_the_receipt(client: Client, each_database: str) -> None:
    """Processing first, then the payload's status; result, run and deliveries are there to be read."""
    seen: list[Any] = []
    service.does = lambda _: seen.append(jobs.find("c-1"))
    for _ in range(3):
        post(client, payload={"status": "failed_validation"}, headers={"X-Correlation-Id": "trace-1"})
    [before] = seen
    assert (before.status, before.result_uri, before.state) == (
        "processing",
        "gs://out/1.json",
        "in_progress",
    )
    found = receipt_of(jobs)
    assert (found.status, found.subject, found.source) == ("failed_validation", "run-1", "jobs")
    assert (found.deliveries, len(found.delivered_at)) == (3, 2)
    assert found.correlation_id == "trace-1"


@pytest.mark.parametrize("url", [*SYNC, "/async/"])
@pytest.mark.parametrize(
    "payload", [b"{}", b'{"run_id": 5}', b"[]", b"", b"\xff", b'{"a": NaN}', b"[" * 100_000]
)
def test_an_invalid_payload(client: Client, url: str, payload: bytes) -> None:
    """It is validated before anything, and leaves no receipt."""
    reply = post(client, url, payload)
    assert (reply.status_code, reply.json()["code"]) == (422, "payload-invalid")
    assert (Record.objects.count(), service.runs) == (0, [])


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/checked/", "/api/"])
def test_an_unknown_run(client: Client, each_database: str, url: str) -> None:
    """404 before anything is reserved; once the run is there, the same id is handled."""
    reply = post(client, url, {"run_id": "run-9"})
    assert (reply.status_code, reply.json()["code"]) == (404, "subject-unknown")
    assert (Record.objects.count(), service.runs) == (0, [])
    Run.objects.create(id="run-9")
    assert post(client, url, {"run_id": "run-9"}).status_code in (200, 201)


@pytest.mark.parametrize("url", [*SYNC, "/async/"])
def test_without_an_id(client: Client, url: str) -> None:
    """Handled as always, each time; jobs that echo no id go on working."""
    old = json.dumps({name: value for name, value in PAYLOAD.items() if name != "callback_id"}).encode()
    for payload in (old, old, {"callback_id": None}):
        assert post(client, url, payload).json()["message"] == "Callback processed"
    assert (len(service.runs), Record.objects.count()) == (3, 0)


@pytest.mark.parametrize(("length", "status"), [(255, 200), (256, 422)])
def test_the_longest_id(client: Client, each_database: str, length: int, status: int) -> None:
    assert post(client, payload={"callback_id": "x" * length}).status_code == status
    assert Record.objects.count() == (status == 200)


def test_another_payload(client: Client) -> None:
    """The second would be lost silently otherwise."""
    post(client)
    reply = post(client, payload={"status": "failed"})
    assert (reply.status_code, reply.json()["code"]) == (422, "key-reused")


def test_a_large_payload(client: Client) -> None:
    """Django's own limit for what a view reads into memory holds."""
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1000):
        reply = post(client, payload={"result_uri": "x" * 1000})
        assert (reply.status_code, reply.json()["code"]) == (413, "body-too-large")
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=None):
        assert post(client, payload={"result_uri": "x" * 3_000_000}).status_code == 200
        assert is_duplicate(post(client, payload={"result_uri": "x" * 3_000_000}))


# --- races


def race(client: Client, url: str) -> tuple[Any, Any]:
    """A delivery while another one is handled, and the other one's response."""
    entered, leave, replies = Event(), Event(), list[Any]()
    before = service.does

    def slow(event: Any) -> Any:
        entered.set()
        assert leave.wait(30)
        return before(event)

    def deliver() -> None:
        replies.append(post(client, url))
        connection.close()

    service.does = slow
    first = Thread(target=deliver)
    first.start()
    assert entered.wait(30)
    service.does = before
    second = post(client, url)
    leave.set()
    first.join()
    return second, replies[0]


@pytest.mark.parametrize("url", SYNC)
def test_the_loser_of_a_race(client: Client, each_database: str, url: str) -> None:
    """One handles it; the other one is to come again, because the winner may die yet."""
    loser, winner = race(client, url)
    assert (loser.status_code, winner.status_code) == (503, 200)
    assert loser.json()["code"] == "in-flight"
    assert int(loser.headers["Retry-After"]) >= 1
    assert len(service.runs) == 1
    assert is_duplicate(post(client, url))


def test_the_loser_of_a_race_as_the_original(client: Client) -> None:
    """`in_progress="acknowledge"` responds as the original did."""
    loser, winner = race(client, "/acknowledge/")
    assert (loser.status_code, winner.status_code) == (200, 200)
    assert is_duplicate(loser)
    assert len(service.runs) == 1


# --- failures


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/api/"])
def test_a_failure(client: Client, each_database: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """500 as Django says it, the receipt says why, and the next delivery is handled."""

    def fail(event: Callback) -> None:
        process(event)
        raise ConnectionError("the bucket is gone")

    service.does = fail
    assert [post(client, url).status_code for _ in range(2)] == [500, 500]
    found = receipt_of(awaited if url == "/async/" else jobs if url == "/function/" else exact)
    assert (found.state, found.status, found.attempt) == ("failed", "failed", 2)
    assert "the bucket is gone" in found.details["error"]
    service.does = process if url != "/async/" and url != "/function/" else lambda _: None
    assert post(client, url).status_code in (200, 201)
    if url in ("/database/", "/api/"):
        assert state() == ("success", 2, 2), "nothing of the attempts that failed is left"
    assert is_duplicate(post(client, url))


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/api/"])
def test_a_refusal(client: Client, each_database: str, url: str) -> None:
    """What the handler refuses it has not handled: no receipt, nothing written in a transaction."""

    def missing(event: Callback) -> None:
        process(event)
        get_object_or_404(Run, id="run-99")

    def denied(event: Callback) -> None:
        process(event)
        raise PermissionDenied

    for does, status in (
        (missing, 404),
        (denied, 403),
        (lambda _: JsonResponse({"error": 1}, status=409), 409),
    ):
        service.does = does
        assert post(client, url).status_code == status
        assert Record.objects.count() == 0
        if url in ("/database/", "/api/"):
            assert Finding.objects.count() == 0
    service.does = lambda _: None
    assert post(client, url).status_code in (200, 201)
    assert is_duplicate(post(client, url))


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/api/"])
def test_nothing_was_done(client: Client, url: str) -> None:
    """`NotDone` is a 503, and says when it is to come again."""

    def not_now(_: object) -> None:
        raise NotDone("the bucket is locked", retry_after=7)

    service.does = not_now
    for payload in (None, {"callback_id": None}):
        if payload is None or url != "/api/":
            reply = post(client, url, payload)
            assert (reply.status_code, reply.headers.get("Retry-After")) == (503, "7"), reply.content
    service.does = lambda _: None
    assert post(client, url).status_code in (200, 201)


def test_an_error_that_marked_the_transaction(client: Client, each_database: str) -> None:
    """A response of success in a transaction that cannot be committed is none."""
    service.does = lambda _: transaction.set_rollback(True)
    assert post(client, "/database/").status_code == 500
    service.does = process
    assert post(client, "/database/").status_code == 200
    assert state() == ("success", 2, 2)


def test_a_large_response(client: Client, each_database: str) -> None:
    """It is sent whole, and not before it is known that the event was handled."""
    service.does = lambda _: HttpResponse(b"x" * 3_000_000)
    reply = post(client, "/database/")
    assert len(b"".join(reply.streaming_content) if reply.streaming else reply.content) == 3_000_000
    assert is_duplicate(post(client, "/database/"))


# --- where views may stand


def test_path_variables_and_the_request(client: Client) -> None:
    """By name; the request to a parameter of this name; without names in their order."""
    reply = post(client, "/of/acme/", headers={"User-Agent": "job"})
    assert reply.json() == {"tenant": "acme", "agent": "job", "run": "run-1"}
    assert isinstance(service.runs[0], Finished)
    assert post(client, "/numbered/17/", {"callback_id": "c-2"}).json() == ["17"]
    assert is_duplicate(post(client, "/numbered/17/", {"callback_id": "c-2"}))


def test_class_based_views(client: Client) -> None:
    """A method takes deliveries, beside methods that claim keys and that do neither."""
    assert [is_duplicate(post(client, "/class/acme/")) for _ in range(2)] == [False, True]
    assert service.runs == [("run-1", "acme", "acme")]
    assert client.put("/class/acme/").content == b"put"
    assert client.patch("/class/acme/").status_code == 400
    for _ in range(2):
        assert client.patch("/class/acme/", headers={"Idempotency-Key": "k"}).content == b"patched"
    assert service.runs.count("patch") == 1
    assert [is_duplicate(post(client, "/async-class/", {"callback_id": "c-9"})) for _ in range(2)] == [
        False,
        True,
    ]


def test_view_sets_and_actions(client: Client) -> None:
    assert post(client, "/set/").json() == {"made": "run-1"}
    assert is_duplicate(post(client, "/set/"))
    assert post(client, "/set/7/finish/", {"callback_id": "c-2"}).json() == {"finished": "7"}
    assert is_duplicate(post(client, "/set/7/finish/", {"callback_id": "c-2"}))
    assert service.runs[1:] == [("run-1", "7")]


def test_below_api_view(client: Client) -> None:
    """Next to the function; authentication and permissions come before the event is even read."""
    assert post(client, "/api/3/").json() == {"user": "alice", "pk": 3}
    assert is_duplicate(post(client, "/api/3/"))
    assert post(client, "/api/3/", headers={"Authorization": "Bearer revoked"}).status_code == 401
    assert post(client, "/api/3/", b"{", headers={"Authorization": ""}).status_code in (401, 403)
    assert len(service.runs) == 1


def test_permissions_come_first(client: Client, each_database: str) -> None:
    """Before a duplicate is acknowledged, too: who may not deliver learns nothing."""
    post(client, "/api/")
    for authorization, status in (("Bearer revoked", 401), ("", 401), ("Bearer bob", 200)):
        assert post(client, "/api/", headers={"Authorization": authorization}).status_code == status
    assert len(service.runs) == 1


def test_the_response_of_rest_framework(client: Client, each_database: str) -> None:
    """Rendered in the transaction, by whichever renderer was negotiated."""
    service.does = process
    reply = post(client, "/api/")
    assert (reply.status_code, reply.json()) == (201, {"id": "run-1", "status": "success", "user": "alice"})


@pytest.mark.parametrize("url", ["/function/", "/class/acme/", "/api/", "/async-class/"])
def test_machines_have_no_csrf_token(url: str) -> None:
    """A delivery needs none; other methods of a class do, and whoever is known by a session does."""
    with override_settings(ROOT_URLCONF=__name__):
        client = Client(enforce_csrf_checks=True, headers={"Authorization": "Bearer alice"})
        assert post(client, url).status_code in (200, 201)
        assert client.put("/class/acme/").status_code == 403
        assert client.post("/start/").status_code == 403
        assert post(client, "/session/").status_code == 403


def test_the_first_request_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middleware knows that a view takes deliveries before Django has imported any."""
    monkeypatch.setattr(Claimants, "receive", False)
    monkeypatch.delitem(sys.modules, "tests.django.late_urls", raising=False)
    with override_settings(ROOT_URLCONF="tests.django.late_urls"):
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        assert post(client, "/late/").status_code == 200


# --- who has sent it


def sign(body: bytes, id: str = "msg_1") -> dict[str, str]:
    return webhooks.sign(SECRET, id, time.time(), body)


def test_signatures(client: Client) -> None:
    """401 before anything is looked up; nothing is planted under the id, and the genuine event is handled."""
    body = json.dumps({"type": "order.paid", "data": {"order_id": "o-1"}}).encode()
    for headers in ({}, sign(b"other"), {**sign(body), "webhook-id": "msg_2"}):
        reply = post(client, "/orders/", body, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (401, "signature-invalid")
    assert (Record.objects.count(), service.runs) == (0, [])
    assert [is_duplicate(post(client, "/orders/", body, headers=sign(body))) for _ in range(2)] == [
        False,
        True,
    ]
    assert signed.list("o-1")[0].id == "msg_1"


def github(body: bytes, id: str = "d-1") -> dict[str, str]:
    import hashlib
    import hmac

    code = hmac.new(b"a long random text", body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={code}", "X-GitHub-Delivery": id, "X-GitHub-Event": "push"}


@pytest.mark.parametrize("url", ["/pushes/", "/reads/"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_what_was_signed_are_the_bytes(client: Client, url: str, kind: str) -> None:
    """Also where a middleware or REST framework has read the body, and made a form or data of it."""
    body = b'{"run_id":  "run-1"}' if kind == "application/json" else b"payload=%7B%7D&x=1"
    with override_settings(MIDDLEWARE=_reading_middlewares()):
        replies = [post(client, url, body, content_type=kind, headers=github(body)) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 200], replies[0].content
        assert is_duplicate(replies[1])
        assert post(client, url, body + b" ", content_type=kind, headers=github(body)).status_code == 401
    assert service.runs == [body]


def _reading_middlewares() -> list[str]:
    from django.conf import settings

    return [*settings.MIDDLEWARE, f"{__name__}.ReadForm"]


def ReadForm(get_response: Any) -> Any:
    def middleware(request: HttpRequest) -> Any:
        _ = request.POST
        return get_response(request)

    return middleware


# --- with requests that have keys


def test_keys_and_callbacks_together(client: Client, each_database: str) -> None:
    """Runs are created with keys of clients, callbacks have ids of the launcher, and each keeps its time."""
    for _ in range(2):
        reply = client.post("/start/", headers={"Idempotency-Key": "c-1"})
        assert (reply.status_code, reply.json()) == (202, {"run": 1})
        assert post(client).status_code == 200
    assert service.runs == ["started", Callback(**PAYLOAD)]
    days = {record.door: (record.expires_at - record.created_at) / 86400 for record in _records()}
    assert round(days["callback"], 3) == 30
    assert round(days["request"], 3) == 1


def _records() -> list[Any]:
    callbacks.runtime.leases.close()
    admin = callbacks.store.open_admin()
    try:
        return list(admin.export())
    finally:
        admin.close()


def test_below_a_middleware_that_claims(client: Client) -> None:
    """It leaves views alone that take deliveries: their ids are not in its header."""
    with override_settings(RETRYSAFE={"DATABASE": "default", "PATHS": ["/*"]}):
        for id in ("c-1", "c-2", "c-1"):
            reply = post(client, payload={"callback_id": id}, headers={"Idempotency-Key": "k"})
            assert reply.status_code == 200
    assert len(service.runs) == 2


@pytest.mark.parametrize(("days", "seconds"), [(7, 7 * 86400), ("0.5", 43200)])
def test_how_long_receipts_last(days: object, seconds: float) -> None:
    """As the settings say, in the words of the profile."""
    with override_settings(CALLBACK_RECEIPT_TTL_DAYS=days):
        assert receipts(guard("job-callbacks"), source="jobs").rules.policy.retention == seconds
    assert receipts(guard("job-callbacks"), source="jobs").rules.policy.retention == 30 * 86400


def test_a_wrong_time_for_receipts() -> None:
    with (
        override_settings(CALLBACK_RECEIPT_TTL_DAYS="a month"),
        pytest.raises(ConfigurationError, match="CALLBACK_RECEIPT_TTL_DAYS"),
    ):
        guard("job-callbacks")


def test_views_that_receive_are_known() -> None:
    """To the middleware, and to those who list the routes of a project."""
    from django.urls import get_resolver

    found = {str(one.pattern): one.callback for one in get_resolver(__name__).url_patterns}
    taking = {name for name, callback in found.items() if receives(callback, "POST")}
    assert set(found) - taking == {"start/"}
    assert not receives(found["class/<slug:tenant>/"], "PATCH")
    assert claims(found["class/<slug:tenant>/"], "PATCH")
    assert not claims(found["class/<slug:tenant>/"], "POST")


# --- transactions of the project


@pytest.mark.parametrize("url", SYNC)
def test_atomic_requests(client: Client, each_database: str, url: str) -> None:
    """Django's block of a request begins after the claim, so that others see it, and is undone as ever."""
    loser, winner = _with_atomic_requests(lambda: race(client, url))
    assert (loser.status_code, winner.status_code) == (503, 200)

    def fail(event: Callback) -> None:
        process(event)
        raise ConnectionError

    service.does = fail
    reply = _with_atomic_requests(lambda: post(client, url, {"callback_id": "c-2"}))
    assert reply.status_code == 500
    assert Finding.objects.count() == 0
    service.does = process
    reply = _with_atomic_requests(lambda: post(client, url, {"callback_id": None}))
    assert (reply.status_code, Finding.objects.count()) == (200, 2)


def _with_atomic_requests(call: Callable[[], Any]) -> Any:
    from django.db import connections

    connections.settings["default"]["ATOMIC_REQUESTS"] = True
    try:
        return call()
    finally:
        connections.settings["default"]["ATOMIC_REQUESTS"] = False


def test_after_the_commit(client: Client, each_database: str) -> None:
    """Django's hooks and ours, once, when the receipt is stored."""
    seen: list[str] = []

    def handle(event: Callback) -> None:
        Order.objects.create(label="made")
        transaction.on_commit(lambda: seen.append(receipt_of(exact).state))
        current().on_commit(lambda: seen.append("ours"))
        assert seen == []

    service.does = handle
    for _ in range(2):
        assert post(client, "/database/").status_code == 200
    assert seen == ["completed", "ours"]


# --- inbox and worker


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_inbox(client: Client, each_database: str, concurrency: int) -> None:
    """Acknowledged as soon as it is stored; the worker's effects are committed with its outcome."""
    service.does = process
    replies = [post(client, "/inbox/") for _ in range(2)]
    assert [reply.status_code for reply in replies] == [202, 202]
    assert service.runs == []
    Worker(inbox, concurrency=concurrency).run(until_idle=True)
    assert state() == ("success", 2, 2)
    assert is_duplicate(post(client, "/inbox/"))


def test_a_worker_fails(client: Client, each_database: str) -> None:
    """What a failed attempt of a worker wrote is gone, and the receipt says why it failed."""

    def fail(event: Callback) -> None:
        process(event)
        raise ConnectionError("the bucket is gone")

    service.does = fail
    post(client, "/inbox/")
    worker = Worker(inbox, concurrency=1)
    worker.run(until_idle=True)
    assert (worker.handled, worker.failed) == (0, 1)
    assert state() == ("running", 0, 0)
    assert "the bucket is gone" in receipt_of(inbox).details["error"]


def test_outside_of_http(each_database: str) -> None:
    """A block and a function join a transaction of Django's as a view does."""
    found = receipts(callbacks, source="blocks", effects="database")
    event = Callback(**PAYLOAD)
    with pytest.raises(ConnectionError), found.handling(event):  # noqa: PT012 - the block is what is tried
        process(event)
        raise ConnectionError
    assert state() == ("running", 0, 0)
    with found.handling(event):
        assert connection.in_atomic_block
        process(event)
    assert state() == ("success", 2, 2)
    assert not connection.in_atomic_block
    found.handler(process)
    assert found.handle(event).duplicate


# --- misuse


def test_what_cannot_be_decorated(tmp_path: Path) -> None:
    """Each message says what to do instead."""

    def request_first(request: HttpRequest, event: Callback) -> None: ...

    async def coroutine(event: Callback) -> None: ...

    other = Guard(f"sqlite:///{tmp_path / 'other.db'}", profile="job-callbacks")
    elsewhere = receipts(other, source="x", effects="database")

    def handle(event: Callback) -> None: ...

    for found, function, message in (
        (shared, request_first, "the first one is the event"),
        (exact, coroutine, "async def"),
        (elsewhere, handle, "a database of Django's"),
        (shared, Callbacks, "expected a function of the event"),
        (shared, start, "takes one of them"),
        (shared, takes_request, "takes one of them"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            found.django(function)
    other.close()


def test_without_the_middleware(client: Client) -> None:
    """Nothing would settle what the view raises."""
    from django.conf import settings

    kept = [name for name in settings.MIDDLEWARE if not name.startswith("retrysafe")]
    with override_settings(MIDDLEWARE=kept), pytest.raises(ConfigurationError, match="add 'retrysafe"):
        Client(headers={"Authorization": "Bearer alice"}).post(
            "/function/", json.dumps(PAYLOAD), content_type="application/json"
        )


def test_called_by_a_test(client: Client) -> None:
    """By its event it is the function itself; by a request of Django's factory it is the view."""
    function(Callback(**PAYLOAD))
    assert Record.objects.count() == 0
    request = RequestFactory().post("/function/", json.dumps(PAYLOAD), content_type="application/json")
    assert function(request).status_code == 200
    assert Record.objects.count() == 1


async def _twice(client: AsyncClient, url: str) -> list[Any]:
    body = json.dumps(PAYLOAD)
    headers = {"Authorization": "Bearer alice"}
    # Django's thread is that of the process, and may have had the database of another test.
    await sync_to_async(project.drop_connection)("default")
    try:
        return [
            await client.post(url, body, content_type="application/json", headers=headers) for _ in range(2)
        ]
    finally:
        await sync_to_async(project.drop_connection)("default")


@pytest.mark.parametrize("url", [*SYNC, "/async/", "/checked/", "/class/acme/", "/async-class/", "/api/"])
def test_under_asgi(async_client: AsyncClient, each_database: str, url: str) -> None:
    """Blocking views run in Django's thread, with the same outcome."""
    service.does = lambda event: process(event) if isinstance(event, Callback) else None
    first, second = asyncio.run(_twice(async_client, url))
    assert first.status_code in (200, 201), first.content
    assert is_duplicate(second)
    assert len(service.runs) == 1
