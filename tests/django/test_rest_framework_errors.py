"""REST framework: refusals as the project shows errors, and what becomes of what a view raises or returns."""

import json
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, JsonResponse
from django.test import Client, override_settings
from django.urls import path
from rest_framework import exceptions, renderers, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from retrysafe import NotDone, Wire, current
from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django.api import atomic_requests, check_replayed, order, runs, send, send_twice
from tests.django.shop.models import Order

asked: list[str] = []
"""What the project's exception handler was asked about."""


class Conflict(exceptions.APIException):
    status_code = 409
    default_detail = "taken"
    default_code = "taken"


class BadGateway(exceptions.APIException):
    status_code = 502
    default_detail = "the bank does not respond"


class Broken:
    """JSON has no place for it."""


class Failing(serializers.Serializer[Any]):
    def to_representation(self, instance: Any) -> Any:
        Order.objects.create(label="rendered")
        raise RuntimeError("the serializer failed")


class FailingRenderer(renderers.JSONRenderer):
    media_type = "application/x-failing"
    format = "failing"

    def render(self, data: Any, *args: Any, **named: Any) -> bytes:
        Order.objects.create(label="rendered")
        raise RuntimeError("the renderer failed")


def then(request: Request) -> Response:
    what = request.query_params.get("then")
    order()
    match what:
        case "invalid":
            raise exceptions.ValidationError({"label": ["too short"]})
        case "invalid after derive":
            current().derive("charge")
            raise exceptions.ValidationError({"label": ["too short"]})
        case "unparsed":
            raise exceptions.ParseError
        case "missing":
            raise exceptions.NotFound
        case "404":
            raise Http404
        case "conflict":
            raise Conflict
        case "forbidden":
            raise PermissionDenied
        case "throttled":
            raise exceptions.Throttled(wait=9)
        case "gateway":
            raise BadGateway
        case "failed":
            raise RuntimeError("the view failed")
        case "not done":
            raise NotDone("try again", retry_after=3)
        case "returned":
            return Response({"detail": "taken"}, status=409)
        case "returned 503":
            return Response({"detail": "later"}, status=503)
        case "serializer":
            return Response(Failing({}).data)
        case "unrendered":
            return Response({"broken": Broken()})
        case "nothing":
            return None  # type: ignore[return-value]  # as a view with a bug does
        case _:
            return Response({"run": len(runs)}, status=201)


class Lease(APIView):
    @idempotent(required=True)
    def post(self, request: Request) -> Response:
        return then(request)


class InDatabase(APIView):
    renderer_classes = (renderers.JSONRenderer, FailingRenderer)

    @idempotent(required=True, effects="database")
    def post(self, request: Request) -> Response:
        return then(request)


meanwhile: list[Any] = []


class AskedAgain(APIView):
    """Whose client does not wait for it."""

    @idempotent
    def post(self, request: Request) -> Response:
        headers = {"Authorization": "Bearer alice"}
        meanwhile.append(
            send(Client(), request.path, key=request.headers["Idempotency-Key"], headers=headers)
        )
        return Response(order(), status=201)


class Enveloped(APIView):
    """A project's own `finalize_response`, which looks into the data of responses."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response.data = {"data": response.data}
        response["X-Finalized"] = response.get("X-Finalized", "") + "once"
        return super().finalize_response(request, response, *args, **kwargs)

    @idempotent
    def post(self, request: Request) -> Response:
        return then(request)


urlpatterns = [
    path("lease/", Lease.as_view()),
    path("database/", InDatabase.as_view()),
    path("asked-again/", AskedAgain.as_view()),
    path("enveloped/", Enveloped.as_view()),
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    runs.clear()
    asked.clear()
    meanwhile.clear()


def envelope(error: Exception, context: dict[str, Any]) -> Any:
    """As many projects have one."""
    asked.append(type(error).__name__)
    response = exception_handler(error, context)
    if response is not None and isinstance(error, exceptions.APIException):
        code = error.get_codes() if isinstance(error.detail, str) else "invalid"
        response.data = {"error": {"code": code, "message": error.detail}}
    return response


def adding(error: Exception, context: dict[str, Any]) -> Any:
    """As in REST framework's own documentation."""
    response = exception_handler(error, context)
    if response is not None:
        response.data["status_code"] = response.status_code
    return response


def own(error: Exception, context: dict[str, Any]) -> Any:
    """One that knows its own exceptions alone."""
    asked.append(type(error).__name__)
    return Response({"own": True}, status=409) if isinstance(error, Conflict) else None


def plain(error: Exception, context: dict[str, Any]) -> Any:
    """With a response of Django's, and a status for everything."""
    return JsonResponse({"plain": str(error)}, status=200)


def failing(error: Exception, context: dict[str, Any]) -> Any:
    raise KeyError("a handler with a bug")


def unprocessable(error: Exception, context: dict[str, Any]) -> Any:
    """Refused input is a 422 here."""
    response = exception_handler(error, context)
    if response is not None and isinstance(error, exceptions.ValidationError):
        response.status_code = 422
    return response


def handled_by(function: Any) -> Any:
    path = f"{__name__}.{function.__name__}"
    return override_settings(REST_FRAMEWORK={**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": path})


def refusals(client: Client) -> dict[str, Any]:
    """One response of each kind that is sent instead of running a view."""
    missing = client.post("/lease/", "{}", content_type="application/json")
    send(client, "/lease/", {"a": 1})
    reused = send(client, "/lease/", {"a": 2})
    send(client, "/asked-again/", key="k2")
    return {"key-missing": missing, "key-reused": reused, "in-flight": meanwhile[0]}


STATUSES = {"key-missing": 400, "key-reused": 422, "in-flight": 409}


def check_hints(code: str, response: Any) -> None:
    assert response.status_code == STATUSES[code]
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Request-Id"]
    if code == "in-flight":
        assert int(response.headers["Retry-After"]) >= 1
        assert int(response.headers["Retry-After-Ms"]) >= 1
        assert response.headers["X-Should-Retry"] == "true"
    elif code == "key-reused":
        assert response.headers["X-Should-Retry"] == "false"
        assert "Retry-After" not in response.headers


# --- refusals


@pytest.mark.parametrize("handler", [exception_handler, own, failing])
def test_refusals_are_problems(client: Client, handler: Any) -> None:
    """With a handler that has no form for them: REST framework's, one that knows others, one that fails."""
    name = f"{handler.__module__}.{handler.__name__}"
    with override_settings(REST_FRAMEWORK={**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": name}):
        for code, response in refusals(client).items():
            check_hints(code, response)
            assert response.headers["Content-Type"] == "application/problem+json"
            found = response.json()
            assert (found["code"], found["status"]) == (code, STATUSES[code])
            assert found["type"].endswith(f"/idempotency#{code}")


def test_refusals_in_an_envelope(client: Client) -> None:
    """The project's body, with our status and hints."""
    with handled_by(envelope):
        for code, response in refusals(client).items():
            check_hints(code, response)
            assert response.headers["Content-Type"] == "application/json"
            assert response.json()["error"]["code"] == code
            assert isinstance(response.json()["error"]["message"], str)
    assert asked == ["Refused"] * 3


def test_refusals_with_something_added(client: Client) -> None:
    """A handler that adds to REST framework's body has its own."""
    with handled_by(adding):
        for code, response in refusals(client).items():
            check_hints(code, response)
            assert set(response.json()) == {"detail", "status_code"}
            assert response.json()["status_code"] == STATUSES[code]


def test_refusals_as_a_response_of_django_s(client: Client) -> None:
    """Whichever status it has: a refusal is not to be taken for a success."""
    with handled_by(plain):
        for code, response in refusals(client).items():
            check_hints(code, response)
            assert list(response.json()) == ["plain"]


def test_the_form_of_problems_that_a_project_has_said(client: Client) -> None:
    """`Wire(render_problem=…)` is about problems and nothing else, and so it has precedence."""
    wire = Wire(render_problem=lambda problem: {"problem": problem.code})
    said = {**settings.RETRYSAFE, "WIRE": wire}
    with handled_by(envelope), override_settings(RETRYSAFE=said):
        for code, response in refusals(client).items():
            check_hints(code, response)
            assert response.json() == {"problem": code}


def test_a_refusal_in_a_test_s_transaction(client: Client) -> None:
    """REST framework's handler marks a transaction, and that of a test is not the view's."""
    with atomic_requests("default"), transaction.atomic():
        for code, response in refusals(client).items():
            check_hints(code, response)
        assert send(client, "/lease/?then=missing", key="k3").status_code == 404
        assert (
            send(client, "/lease/", key="k4", headers={"Authorization": "Bearer revoked"}).status_code == 401
        )
        assert send(client, "/lease/", key="k5").status_code == 201
        assert Order.objects.count() == 3


# --- what a view raises


@pytest.mark.parametrize("url", ["/lease/", "/database/"])
@pytest.mark.parametrize("then", ["invalid", "unparsed"])
def test_refused_input_releases_the_key(client: Client, each_database: str, url: str, then: str) -> None:
    """The framework's own validation: nothing has begun, and the corrected request may have the key."""
    for number in (1, 2):
        response = send(client, f"{url}?then={then}")
        assert response.status_code == 400
        assert (len(runs), Record.objects.count()) == (number, 0)
    assert send(client, url, {"label": "corrected"}).status_code == 201


@pytest.mark.parametrize("url", ["/lease/", "/database/"])
def test_refused_input_with_another_status(client: Client, url: str) -> None:
    """By the exception and not by the status: a kept 422 releases the key as well."""
    with handled_by(unprocessable):
        for number in (1, 2):
            response = send(client, f"{url}?then=invalid")
            assert (response.status_code, response.json()) == (422, {"label": ["too short"]})
            assert (len(runs), Record.objects.count()) == (number, 0)


def test_refused_input_after_a_derived_key(client: Client, each_database: str) -> None:
    """Something may have happened elsewhere, unless it can be undone here."""
    first, second = (send(client, "/lease/?then=invalid after derive") for _ in range(2))
    check_replayed(first, second, 400)
    for _ in range(2):
        response = send(client, "/database/?then=invalid after derive", key="k2")
        assert (response.status_code, response.headers.get("Idempotent-Replayed")) == (400, None)
    assert len(runs) == 3


@pytest.mark.parametrize(("then", "status"), [("missing", 404), ("404", 404), ("conflict", 409)])
@pytest.mark.parametrize("url", ["/lease/", "/database/"])
def test_a_refusal_that_is_raised(
    client: Client, each_database: str, url: str, then: str, status: int
) -> None:
    """It is kept; in a transaction, what had been done is undone first, as Django does."""
    first, second = (send(client, f"{url}?then={then}") for _ in range(2))
    check_replayed(first, second, status)
    assert len(runs) == 1
    assert Order.objects.count() == (1 if url == "/lease/" else 0)


@pytest.mark.parametrize("url", ["/lease/", "/database/"])
def test_a_refusal_that_is_returned(client: Client, each_database: str, url: str) -> None:
    """It is committed, and kept."""
    check_replayed(*send_twice(client, f"{url}?then=returned"), 409)
    assert len(runs) == Order.objects.count() == 1


@pytest.mark.parametrize(("then", "status"), [("forbidden", 403), ("throttled", 429)])
@pytest.mark.parametrize("url", ["/lease/", "/database/"])
def test_what_says_that_nothing_was_done(client: Client, url: str, then: str, status: int) -> None:
    """By its status: the key is released."""
    for number in (1, 2):
        response = send(client, f"{url}?then={then}")
        assert (response.status_code, len(runs), Record.objects.count()) == (status, number, 0)


@pytest.mark.parametrize(("then", "status"), [("gateway", 502), ("failed", 500), ("returned 503", 503)])
def test_a_failure_without_a_transaction(client: Client, each_database: str, then: str, status: int) -> None:
    """What came of it is not known: it is kept."""
    first, second = (send(client, f"/lease/?then={then}") for _ in range(2))
    check_replayed(first, second, status)
    assert (len(runs), Order.objects.count()) == (1, 1)
    assert Record.objects.get().state == "failed"
    if then == "gateway":
        assert second.json() == {"detail": "the bank does not respond"}


@pytest.mark.parametrize(
    ("then", "status"),
    [
        ("gateway", 502),
        ("failed", 500),
        ("returned 503", 503),
        ("not done", 503),
        ("serializer", 500),
        ("unrendered", 500),
        ("nothing", 500),
    ],
)
def test_a_failure_in_a_transaction(client: Client, each_database: str, then: str, status: int) -> None:
    """It is undone, and the key is released; also what fails when the response is made."""
    for number in (1, 2):
        response = send(client, f"/database/?then={then}")
        assert response.status_code == status, response.content
        assert (len(runs), Order.objects.count(), Record.objects.count()) == (number, 0, 0)
    assert send(client, "/database/").status_code == 201


@pytest.mark.parametrize("then", ["serializer", "unrendered", "nothing"])
def test_what_fails_when_the_response_is_made(client: Client, then: str) -> None:
    """Without a transaction it is a failure of the view's, and its record is settled."""
    first, second = (send(client, f"/lease/?then={then}") for _ in range(2))
    check_replayed(first, second, 500)
    assert Record.objects.get().state == "failed"


def test_rendering_is_a_part_of_the_transaction(client: Client, each_database: str) -> None:
    """What a renderer has written is undone with the rest, and later requests of this thread are served."""
    for number in (1, 2):
        response = send(client, "/database/", headers={"Accept": "application/x-failing"})
        assert response.status_code == 500
        assert (len(runs), Order.objects.count(), Record.objects.count()) == (number, 0, 0)
    assert send(client, "/database/", key="k2").status_code == 201


def test_an_exception_handler_is_asked_once(client: Client) -> None:
    """Also about what it has no response to, which then is Django's to show."""
    with handled_by(own):
        assert send(client, "/lease/?then=failed").status_code == 500
        assert send(client, "/database/?then=conflict", key="k2").json() == {"own": True}
    assert asked == ["RuntimeError", "Conflict"]


def test_without_a_key_not_done_is_a_503_too(client: Client) -> None:
    response = client.post("/enveloped/?then=not done", "{}", content_type="application/json")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")


@pytest.mark.parametrize("then", ["", "missing", "not done"])
def test_a_response_is_finalized_once(client: Client, then: str) -> None:
    """Replays and problems not at all: they have no data that a project's own method could look into."""
    first, second = (send(client, f"/enveloped/?then={then}") for _ in range(2))
    if then == "not done":
        assert first.json()["code"] == second.json()["code"] == "not-done"
    else:
        check_replayed(first, second, 404 if then else 201)
        assert list(json.loads(first.content)) == ["data"]
        assert first.headers["X-Finalized"] == second.headers["X-Finalized"] == "once"
    assert send(client, f"/enveloped/?then={then}", {"another": 1}, key="k1").status_code in (422, 503)
