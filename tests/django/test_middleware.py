"""The middleware: requests of views that are not decorated, bodies of any size, and what passes by."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import _get_new_csrf_string
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.views.decorators.gzip import gzip_page

from retrysafe import NotDone
from retrysafe.coverage import exempt
from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django.shop.models import Order

runs: list[str] = []


def plain(request: HttpRequest) -> HttpResponseBase:
    runs.append(request.method or "")
    match request.GET.get("then"):
        case "fail":
            raise RuntimeError("the view failed")
        case "404":
            raise Http404("nothing here")
        case "stream":
            return StreamingHttpResponse(iter([b"a" * 40, b"b" * 40]))
        case "cookie":
            response = HttpResponse("signed in")
            response.set_cookie("session", "secret")
            return response
        case _:
            pass
    return JsonResponse({"run": len(runs)}, status=201)


async def plain_async(request: HttpRequest) -> HttpResponse:
    runs.append(request.method or "")
    if request.GET.get("then") == "fail":
        raise RuntimeError("the view failed")
    return JsonResponse({"run": len(runs)}, status=201)


@gzip_page
def zipped(request: HttpRequest) -> HttpResponse:
    runs.append("zipped")
    return HttpResponse("compressible " * 100)


@idempotent(required=True)
def decorated(request: HttpRequest) -> HttpResponse:
    runs.append("decorated")
    return HttpResponse("once")


@idempotent
def upload(request: HttpRequest) -> HttpResponse:
    runs.append("upload")
    [file] = request.FILES.values()
    return JsonResponse({"size": file.size, "note": request.POST["note"]})  # type: ignore[union-attr]  # one file


@idempotent
def reads_the_body(request: HttpRequest) -> HttpResponse:
    runs.append("body")
    return JsonResponse({"size": len(request.body)})


@idempotent(max_response=50)
def streams(request: HttpRequest) -> HttpResponseBase:
    runs.append("stream")

    def pieces() -> Any:
        for number in range(10):
            if number == 7 and request.GET.get("then") == "break":
                raise RuntimeError("the stream broke off")
            yield b"0123456789"

    return StreamingHttpResponse(pieces())


@idempotent
def not_done(request: HttpRequest) -> HttpResponse:
    runs.append("not done")
    raise NotDone("the warehouse is closed", retry_after=7)


@exempt("a second login does no harm")
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("welcome")


urlpatterns = [
    path("api/plain/", plain),
    path("api/async/", plain_async),
    path("api/zipped/", zipped),
    path("api/decorated/", decorated),
    path("elsewhere/", plain),
    path("upload/", upload),
    path("body/", reads_the_body),
    path("streams/", streams),
    path("not-done/", not_done),
    path("login/", login),
    path("orders/<int:pk>/", decorated),
]

COVERED = {"DATABASE": "default", "PATHS": ["/api/*"], "MAX_RESPONSE": 10_000}


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


def post(client: Client, url: str, key: str | None = "k1", body: str = "{}", **headers: str) -> Any:
    keyed = headers if key is None else {"Idempotency-Key": key, **headers}
    return client.post(url, body, content_type="application/json", headers=keyed)


class TestCovering:
    """By path and method, where nothing is decorated."""

    @pytest.fixture(autouse=True)
    def covered(self) -> Iterator[None]:
        with override_settings(RETRYSAFE=COVERED):
            yield

    def test_a_retry_is_replayed(self, client: Client, each_database: str) -> None:
        first, second = post(client, "/api/plain/"), post(client, "/api/plain/")
        assert (
            (first.status_code, first.content) == (second.status_code, second.content) == (201, b'{"run": 1}')
        )
        assert second.headers["Idempotent-Replayed"] == "true"
        assert post(client, "/api/plain/", body='{"other": 1}').status_code == 422
        assert runs == ["POST"]

    def test_other_paths_and_methods_pass(self, client: Client) -> None:
        for _ in range(2):
            assert "Idempotent-Replayed" not in post(client, "/elsewhere/").headers
            client.get("/api/plain/", headers={"Idempotency-Key": "k1"})
            post(client, "/api/plain/", key=None)
        assert runs == ["POST", "GET", "POST"] * 2

    @pytest.mark.parametrize(("then", "status"), [("fail", 500), ("404", 404)])
    def test_what_the_view_raised(self, client: Client, then: str, status: int) -> None:
        first, second = post(client, f"/api/plain/?then={then}"), post(client, f"/api/plain/?then={then}")
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert first.status_code == status
        assert second.headers["Idempotent-Replayed"] == "true"
        assert first.headers["Content-Type"].startswith(
            "application/problem+json" if status == 500 else "text/html"
        )
        assert runs == ["POST"]

    def test_decorated_views_claim_themselves(self, client: Client) -> None:
        assert post(client, "/api/decorated/", key=None).status_code == 400
        post(client, "/api/decorated/")
        assert post(client, "/api/decorated/").headers["Idempotent-Replayed"] == "true"
        assert runs == ["decorated"]

    def test_a_compressing_view_inside(self, client: Client) -> None:
        """What is stored is for every client, and so is not compressed."""
        sent = {"Accept-Encoding": "gzip"}
        first, second = post(client, "/api/zipped/", **sent), post(client, "/api/zipped/")
        assert "Content-Encoding" not in first.headers
        assert first.content == second.content == b"compressible " * 100

    @override_settings(
        MIDDLEWARE=[
            "django.middleware.gzip.GZipMiddleware",
            "tests.django.signing.SignIn",
            "retrysafe.django.Middleware",
        ]
    )
    def test_a_compressing_middleware_outside(self, client: Client) -> None:
        sent = {"Accept-Encoding": "gzip"}
        first, second, third = (post(client, "/api/zipped/", **one) for one in (sent, sent, {}))
        assert gzip.decompress(first.content) == gzip.decompress(second.content) == third.content
        assert runs == ["zipped"]

    def test_cookies_are_not_stored(self, client: Client) -> None:
        first, second = post(client, "/api/plain/?then=cookie"), post(client, "/api/plain/?then=cookie")
        assert first.cookies["session"].value == "secret"
        assert not second.cookies
        assert second.content == b"signed in"

    def test_effects_in_the_database_of_decorated_views_alone(self, client: Client) -> None:
        """The middleware cannot join a view's transaction, and says so where it is asked to."""
        with override_settings(RETRYSAFE=COVERED | {"EFFECTS": "database"}):
            assert post(client, "/api/plain/").status_code == 201
            assert Record.objects.get().mode == "lease"
        from retrysafe.errors import ConfigurationError

        client.raise_request_exception = True
        routes = {"/api/plain/": {"effects": "database"}}
        with (
            override_settings(RETRYSAFE=COVERED | {"ROUTES": routes}),
            pytest.raises(ConfigurationError, match="put @idempotent"),
        ):
            post(client, "/api/plain/")

    def test_reauthorise(self, client: Client) -> None:
        """Whoever has lost a permission since is not shown a replay."""
        allowed = [True]
        with override_settings(
            RETRYSAFE=COVERED | {"REAUTHORISE": lambda request: allowed[0] and request.user.pk}
        ):
            assert post(client, "/api/plain/").status_code == 201
            assert post(client, "/api/plain/").status_code == 201
            allowed[0] = False
            assert post(client, "/api/plain/").status_code == 403
        assert runs == ["POST"]


@override_settings(RETRYSAFE=COVERED)
@pytest.mark.parametrize("url", ["/api/plain/", "/api/async/"])
@pytest.mark.parametrize("then", ["", "fail"])
def test_covering_under_asgi(async_client: AsyncClient, url: str, then: str) -> None:
    """The same in an event loop, of views of both kinds."""
    import asyncio

    async def twice() -> list[Any]:
        headers = {"Idempotency-Key": "k1", "Authorization": "Bearer alice"}
        sent: dict[str, Any] = {"headers": headers, "content_type": "application/json"}
        return [await async_client.post(f"{url}?then={then}", "{}", **sent) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first.status_code == second.status_code == (500 if then else 201), first.content
    assert first.content == second.content
    assert second.headers["Idempotent-Replayed"] == "true"
    assert runs == ["POST"]


class TestBodies:
    def test_an_upload_with_a_token_in_the_form(self) -> None:
        """The CSRF check reads the form before the claim; 4 MB are spooled; other bytes are refused."""
        with override_settings(ROOT_URLCONF=__name__):
            client = Client(enforce_csrf_checks=True, headers={"Authorization": "Bearer alice"})
            token = _get_new_csrf_string()
            client.cookies["csrftoken"] = token

            def send(content: bytes) -> Any:
                form = {
                    "csrfmiddlewaretoken": token,
                    "note": "a large one",
                    "file": SimpleUploadedFile("large.bin", content),
                }
                return client.post("/upload/", form, headers={"Idempotency-Key": "k1"})

            content = bytes(range(256)) * 16_384
            first, second = send(content), send(content)
            assert first.json() == {"size": 4_194_304, "note": "a large one"}
            assert second.content == first.content
            assert second.headers["Idempotent-Replayed"] == "true"
            assert send(content[:-1] + b"x").status_code == 422
            assert runs == ["upload"]

    def test_the_limit_of_django(self, client: Client) -> None:
        """`request.body` keeps its own limit, which is the view's affair."""
        assert post(client, "/body/", body="x" * 2_000_000).json() == {"size": 2_000_000}
        assert post(client, "/body/", "k2", body="x" * 3_000_000).status_code == 400

    def test_our_limit(self, client: Client) -> None:
        """413, the view has not run, and there is no record."""
        with override_settings(RETRYSAFE={"MAX_REQUEST": 1000}):
            assert post(client, "/body/", body="x" * 1001).status_code == 413
            assert Record.objects.count() == 0
            assert runs == []


class TestStreams:
    def test_beyond_what_is_stored(self, client: Client) -> None:
        """It is sent in full, and the retry is told that it was omitted."""
        first, second = post(client, "/streams/"), None
        assert b"".join(first.streaming_content) == b"0123456789" * 10
        second = post(client, "/streams/")
        assert second.headers["Idempotency-Body"] == "omitted"
        assert runs == ["stream"]

    def test_one_that_breaks(self, client: Client) -> None:
        """A part of it is never replayed as a success."""
        first = post(client, "/streams/?then=break")
        with pytest.raises(RuntimeError, match="broke off"):
            b"".join(first.streaming_content)
        assert post(client, "/streams/?then=break").status_code == 500
        assert runs == ["stream"]

    def test_a_client_that_leaves(self, client: Client) -> None:
        """The view's iterator is read to its end all the same."""
        first = post(client, "/streams/")
        assert next(iter(first.streaming_content))
        first.close()
        assert Record.objects.get().state == "completed"
        assert post(client, "/streams/").headers["Idempotency-Body"] == "omitted"


def test_not_done(client: Client) -> None:
    """With a key and without: 503, with when to come back."""
    for key in ("k1", None):
        response = post(client, "/not-done/", key)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "7")
        assert response.json()["code"] == "not-done"
    assert Record.objects.count() == 0


def test_what_is_published(client: Client) -> None:
    """`GET /idempotency`, of views that claim and of paths that are covered."""
    found = client.get("/idempotency", headers={"Accept": "application/json"})
    assert found.status_code == 200
    text = json.dumps(found.json())
    assert "/orders/{pk}/" in text
    assert "/upload/" in text
    with override_settings(RETRYSAFE=COVERED):
        text = json.dumps(client.get("/idempotency", headers={"Accept": "application/json"}).json())
        assert "/api/*" in text
        assert "/orders/{pk}/" in text


def test_requests_without_a_key_are_not_touched(client: Client) -> None:
    """Not copied, not held, and nothing is added to their responses."""
    response = post(client, "/upload/", key=None)
    assert "X-Request-Id" not in response.headers
    assert Order.objects.count() == Record.objects.count() == 0
