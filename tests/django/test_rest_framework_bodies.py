"""REST framework: what is read of requests before and after a claim, and responses of every kind."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import path
from rest_framework import generics, parsers, renderers, serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django import project
from tests.django.api import check_replayed, order, runs, send
from tests.django.shop.models import Order

LARGE = 4_000_000


def _short(value: Any) -> str:
    found = value.read() if hasattr(value, "read") else str(value).encode()
    return found.decode() if len(found) < 100 else hashlib.sha256(found).hexdigest()


class Parsed(APIView):
    parser_classes = (parsers.JSONParser, parsers.FormParser, parsers.MultiPartParser)

    @idempotent(effects="database")
    def post(self, request: Request) -> Response:
        order()
        data: Any = request.data
        return Response({name: _short(value) for name, value in data.items()}, status=201)


class ByName(APIView):
    parser_classes = (parsers.FileUploadParser,)

    @idempotent
    def put(self, request: Request, filename: str) -> Response:
        order()
        data: Any = request.data
        with data["file"] as file:  # which REST framework closes for forms alone
            return Response({"size": file.size})


class OfSession(Parsed):
    authentication_classes = (SessionAuthentication,)


class Streamed(APIView):
    @idempotent
    def post(self, request: Request) -> Any:
        order()
        name = project.folder() / "download.bin"
        name.write_bytes(b"x" * int(request.query_params.get("size", "10")))
        if "iterator" in request.query_params:
            return StreamingHttpResponse(iter([b"a", b"b"]), content_type="text/csv")
        return FileResponse(Path.open(name, "rb"), as_attachment=True, filename="download.bin")


class OrderSerializer(serializers.ModelSerializer[Order]):
    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # as projects write it
        model = Order
        fields = ("id", "label")


class Browsable(generics.ListCreateAPIView[Order]):
    renderer_classes = (renderers.JSONRenderer, renderers.BrowsableAPIRenderer)
    queryset = Order.objects.all()
    serializer_class = OrderSerializer

    @idempotent(effects="database")
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        runs.append("-")
        return self.create(request, *args, **kwargs)


class Text(renderers.BaseRenderer):
    media_type = "text/plain"
    format = "txt"
    charset = "utf-16"

    def render(self, data: Any, *args: Any, **named: Any) -> str:
        return json.dumps(data)


class Negotiated(APIView):
    renderer_classes = (renderers.JSONRenderer, Text)

    @idempotent
    def post(self, request: Request) -> Any:
        if "native" in request.query_params:
            return HttpResponse(b"\x00\xff", content_type="application/octet-stream", status=202)
        return Response(order(), status=201, headers={"Location": "/orders/1", "ETag": '"1"'})


urlpatterns = [
    path("parsed/", Parsed.as_view()),
    path("named/<str:filename>/", ByName.as_view()),
    path("session/", OfSession.as_view()),
    path("streamed/", Streamed.as_view()),
    path("browsable/", Browsable.as_view()),
    path("negotiated/", Negotiated.as_view()),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    runs.clear()
    yield
    User.objects.all().delete()


def upload(letter: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("a.bin", letter * LARGE)


def test_json(client: Client, each_database: str) -> None:
    """More than is held in memory, and compared as a whole."""
    bodies: list[Any] = [{"text": letter * 2_000_000} for letter in "aab"]
    first, second, other = (send(client, "/parsed/", body) for body in bodies)
    check_replayed(first, second, 201)
    assert other.status_code == 422
    assert len(runs) == 1


def test_forms(client: Client) -> None:
    """One field is different in the third."""
    forms = ["label=a&label=b", "label=a&label=b", "label=a&label=c"]
    first, second, other = (
        send(client, "/parsed/", data=form, content_type="application/x-www-form-urlencoded")
        for form in forms
    )
    check_replayed(first, second, 201)
    assert first.json() == {"label": "b"}
    assert other.status_code == 422


@pytest.mark.parametrize("is_in_form", [True, False], ids=["token in the form", "token in a header"])
def test_an_upload_under_a_session(client: Client, each_database: str, *, is_in_form: bool) -> None:
    """The CSRF check reads a form of 4 MB before the claim, which has all of it, and so has the view."""
    user = User.objects.create_user("carol")
    browser = Client(enforce_csrf_checks=True, raise_request_exception=False)
    browser.force_login(user)
    token = "a" * 32
    browser.cookies["csrftoken"] = token

    def post(letter: bytes, *, token: str = token) -> Any:
        form = {"label": "one", "file": upload(letter)} | (
            {"csrfmiddlewaretoken": token} if is_in_form else {}
        )
        headers = {"Idempotency-Key": "k1"} | ({} if is_in_form else {"X-CSRFToken": token})
        return browser.post("/session/", form, headers=headers)

    assert post(b"a", token="b" * 32).status_code == 403
    assert Record.objects.count() == 0
    first, second = post(b"a"), post(b"a")
    check_replayed(first, second, 201)
    assert first.json()["file"] == hashlib.sha256(b"a" * LARGE).hexdigest()
    assert post(b"b").status_code == 422
    # Before a replay, too.
    assert post(b"a", token="b" * 32).status_code == 403
    assert len(runs) == 1


def test_an_upload_with_another_boundary(client: Client) -> None:
    """A client that sends the same form again makes a new one; the parts are compared."""

    def post(boundary: str) -> Any:
        lines = [
            f"--{boundary}",
            'Content-Disposition: form-data; name="label"',
            "",
            "one",
            f"--{boundary}--",
            "",
        ]
        return send(
            client,
            "/parsed/",
            data="\r\n".join(lines),
            content_type=f"multipart/form-data; boundary={boundary}",
        )

    check_replayed(post("first"), post("second"), 201)


def test_a_file_as_the_body(client: Client) -> None:
    def put(letter: bytes) -> Any:
        return send(
            client,
            "/named/a.bin/",
            data=letter * LARGE,
            content_type="application/octet-stream",
            method="PUT",
        )

    first, second = put(b"a"), put(b"a")
    check_replayed(first, second, 200)
    assert first.json() == {"size": LARGE}
    assert put(b"b").status_code == 422


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b'{"a": ', 400),
        ("application/xml", b"<a/>", 415),
        ("application/json", b"\xff", 400),
    ],
)
def test_a_body_that_cannot_be_parsed(client: Client, content_type: str, body: bytes, status: int) -> None:
    """The framework's own refusal: the key is free for the corrected request."""
    assert send(client, "/parsed/", data=body, content_type=content_type).status_code == status
    assert Record.objects.count() == 0
    assert send(client, "/parsed/", {"label": "a"}).status_code == 201


def test_limits_of_django_s(client: Client) -> None:
    """They are validation as well: of a body in memory, and of a form's fields."""
    with override_settings(DATA_UPLOAD_MAX_NUMBER_FIELDS=1, DATA_UPLOAD_MAX_MEMORY_SIZE=1000):
        many = send(client, "/parsed/", data="a=1&b=2", content_type="application/x-www-form-urlencoded")
        large = send(client, "/parsed/", {"text": "a" * 1000})
    assert many.status_code == large.status_code == 400
    assert Record.objects.count() == 0


# --- responses


def test_a_file_as_the_response(client: Client) -> None:
    """It is read, stored and replayed with its headers."""
    first, second = send(client, "/streamed/"), send(client, "/streamed/")
    assert b"".join(first) == b"".join(second) == b"x" * 10
    assert first.headers["Content-Disposition"] == second.headers["Content-Disposition"]
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(runs) == 1


def test_a_large_file_as_the_response(client: Client) -> None:
    """It is sent, and the retry is told that it was not stored."""
    url = f"/streamed/?size={LARGE}"
    first = send(client, url)
    assert len(b"".join(first.streaming_content)) == LARGE
    second = send(client, url)
    assert (second.status_code, second.content, second.headers["Idempotency-Body"]) == (200, b"", "omitted")
    assert len(runs) == 1


def test_an_iterator_as_the_response(client: Client) -> None:
    first, second = (send(client, "/streamed/?iterator") for _ in range(2))
    assert b"".join(first) == b"".join(second) == b"ab"
    assert second.headers["Content-Type"] == "text/csv"


def test_the_browsable_api(client: Client, each_database: str) -> None:
    """Its page of a response is a replay like any other, forms and buttons included."""
    accept = {"Accept": "text/html"}
    first, second = (send(client, "/browsable/", {"label": "one"}, headers=accept) for _ in range(2))
    check_replayed(first, second, 201)
    assert b"<!DOCTYPE html>" in second.content
    assert b"one" in second.content
    assert Order.objects.count() == 1
    # A form that does not validate is shown again, with what is wrong in it.
    refused = send(client, "/browsable/", {"label": ""}, key="k2", headers=accept)
    assert (refused.status_code, Record.objects.count()) == (400, 1)
    assert b"This field may not be blank" in refused.content


def test_the_first_response_counts_whatever_is_accepted(client: Client) -> None:
    """A retry that would rather have another form gets what was stored: that is no new request."""
    first = send(client, "/negotiated/")
    second = send(client, "/negotiated/", headers={"Accept": "text/plain"})
    check_replayed(first, second, 201)
    assert second.headers["Content-Type"] == "application/json"
    assert second.headers["Location"] == "/orders/1"
    assert second.headers["ETag"] == '"1"'
    assert send(client, "/negotiated/", headers={"Accept": "image/png"}).status_code == 406
    text = send(client, "/negotiated/", key="k2", headers={"Accept": "text/plain"})
    again = send(client, "/negotiated/", key="k2", headers={"Accept": "text/plain"})
    check_replayed(text, again, 201)
    assert again.headers["Content-Type"] == "text/plain; charset=utf-16"


def test_a_response_of_django_s(client: Client) -> None:
    """Bytes that are no text, unchanged."""
    first, second = (send(client, "/negotiated/?native") for _ in range(2))
    check_replayed(first, second, 202)
    assert second.content == b"\x00\xff"
