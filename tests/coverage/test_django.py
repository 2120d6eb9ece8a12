"""Django: what is said of each route is what requests to it meet."""

import json
import textwrap
import types
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.django import project

project.configure()

from django.conf.urls.i18n import i18n_patterns  # noqa: E402 - Django has its settings now
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connections  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.test import Client, override_settings  # noqa: E402
from django.urls import include, path, re_path  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402
from django.views.decorators.http import require_http_methods, require_safe  # noqa: E402
from ninja import NinjaAPI  # noqa: E402
from rest_framework.decorators import action, api_view  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.routers import DefaultRouter  # noqa: E402
from rest_framework.viewsets import ViewSet  # noqa: E402

from retrysafe import Guard, scopes, wsgi  # noqa: E402
from retrysafe.coverage import Coverage, examine, exempt  # noqa: E402
from retrysafe.coverage.django import examine_project  # noqa: E402
from retrysafe.django import IdempotentMixin, idempotent  # noqa: E402
from retrysafe.django.models import Record  # noqa: E402
from retrysafe.django.ninja import idempotent as idempotent_operation  # noqa: E402
from retrysafe.django.settings import close_guards  # noqa: E402
from retrysafe.django.settings import guard as project_guard  # noqa: E402
from retrysafe.testing import assert_protected  # noqa: E402
from tests.cli.terminal import run as run_command  # noqa: E402
from tests.coverage.sending import KEY, TENANT, Seen, concrete, is_true, states  # noqa: E402

runs = count()

TENANTS = {"SCOPE": scopes.header("X-Tenant")}


def run(*_: object, **__: object) -> HttpResponse:
    return HttpResponse(f"run {next(runs)}")


@idempotent
def decorated(request: HttpRequest, **_: object) -> HttpResponse:
    return run()


@require_http_methods(["POST", "GET"])
@idempotent(required=True)
def required(request: HttpRequest) -> HttpResponse:
    return run()


def unprotected(request: HttpRequest, **_: object) -> HttpResponse:
    return run() if request.method in ("PUT", "PATCH") else HttpResponse(status=405)


@exempt("twice is fine")
def exempted(request: HttpRequest) -> HttpResponse:
    _ = request.POST
    return run()


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    raise AssertionError("it is not mutating")


class Orders(View):
    @method_decorator(idempotent(required=True))
    def post(self, request: HttpRequest) -> HttpResponse:
        return run()

    def delete(self, request: HttpRequest) -> HttpResponse:
        return run()


@method_decorator(idempotent, name="dispatch")
class Dispatched(View):
    def put(self, request: HttpRequest) -> HttpResponse:
        return run()


class Mixed(IdempotentMixin, View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return run()

    @exempt("it is the same the second time")
    def delete(self, request: HttpRequest) -> HttpResponse:
        return run()


def ran() -> Response:
    return Response(f"run {next(runs)}")


class Workflows(ViewSet):
    authentication_classes = ()

    def list(self, request: Request) -> Response:
        raise AssertionError("it is not mutating")

    def create(self, request: Request) -> Response:
        return ran()

    @action(detail=True, methods=["post"])
    @idempotent
    def start(self, request: Request, pk: str) -> Response:
        return ran()

    @exempt("it only stops")
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        return ran()


@api_view(["POST"])
@idempotent(required=True)
def launched(request: Request) -> Response:
    return ran()


@api_view(["PUT"])
def bare(request: Request) -> Response:
    return ran()


router = DefaultRouter()
router.register("workflows", Workflows, basename="workflow")

api = NinjaAPI(urls_namespace="coverage")


@api.post("/orders")
@idempotent_operation
def create(request: HttpRequest) -> str:
    return f"run {next(runs)}"


@api.get("/orders")
def listed(request: HttpRequest) -> str:
    raise AssertionError("it is not mutating")


@api.put("/orders/{order_id}")
def change(request: HttpRequest, order_id: int) -> str:
    return f"run {next(runs)}"


urlpatterns: list[Any] = [
    path("decorated/<int:pk>/", decorated),
    path("required/", required),
    path("unprotected/", unprotected),
    path("exempt/", exempted),
    path("page/", page),
    path("orders/", Orders.as_view()),
    path("dispatched/", Dispatched.as_view()),
    path("mixed/", Mixed.as_view()),
    re_path(r"^old/(?P<year>[0-9]{4})/(?P<rest>.*)$", unprotected),
    path("shop/", include(([path("checkout/<slug:cart>/", decorated, name="checkout")], "shop"))),
    *i18n_patterns(path("news/", unprotected)),
    path("drf/", include(router.urls)),
    path("drf/launched/", launched),
    path("drf/bare/", bare),
    path("ninja/", api.urls),
]

STATES = {
    **{f"{method} /decorated/{{pk}}/": "optional" for method in ("POST", "PUT", "PATCH", "DELETE")},
    "POST /required/": "required",
    "PUT /unprotected/": "unprotected",
    "PATCH /unprotected/": "unprotected",
    "POST /exempt/": "exempt",
    "POST /orders/": "required",
    "DELETE /orders/": "unprotected",
    "PUT /dispatched/": "optional",
    "POST /mixed/": "optional",
    "DELETE /mixed/": "exempt",
    "PUT /old/{year}/{rest}": "unprotected",
    "PATCH /old/{year}/{rest}": "unprotected",
    **{f"{method} /shop/checkout/{{cart}}/": "optional" for method in ("POST", "PUT", "PATCH", "DELETE")},
    "PUT /{language}/news/": "unprotected",
    "PATCH /{language}/news/": "unprotected",
    "POST /drf/workflows/": "unprotected",
    "POST /drf/workflows/{pk}/start/": "optional",
    "POST /drf/workflows/{pk}/stop/": "exempt",
    "POST /drf/launched/": "required",
    "PUT /drf/bare/": "unprotected",
    "POST /ninja/orders": "optional",
    "PUT /ninja/orders/{order_id}": "unprotected",
}


@pytest.fixture(scope="module", autouse=True)
def migrated() -> None:
    call_command("migrate", database="default", run_syncdb=True, verbosity=0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    close_guards()
    Record.objects.all().delete()
    connections.close_all()


Configured = Callable[..., Any]


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Has the project serve these routes, under these settings."""
    entered: list[Any] = []

    def configure(patterns: list[Any] | None = None, **said: Any) -> None:
        urls: Any = types.ModuleType("shop.urls")
        urls.urlpatterns = urlpatterns if patterns is None else patterns
        changed: dict[str, Any] = {"ROOT_URLCONF": urls}
        changed["MIDDLEWARE"] = said.pop("MIDDLEWARE", ["retrysafe.django.Middleware"])
        overridden = override_settings(**changed, RETRYSAFE={**TENANTS, **said})
        overridden.enable()
        entered.append(overridden)

    yield configure
    for overridden in reversed(entered):
        overridden.disable()


def send(found: Coverage) -> Iterator[str]:
    """What a route did that is not what was said of it."""
    client = Client(raise_request_exception=False, headers=TENANT)
    for number, route in enumerate(found.routes):
        url = concrete(route).replace("/1/news/", "/en-us/news/").replace("/old/1/", "/old/2026/")
        key = {"Idempotency-Key": f"{KEY}-{number}"}
        replies = [client.generic(route.method, url, headers=key) for _ in range(2)]
        keyless = client.generic(route.method, url)
        texts = [reply.content.decode() for reply in replies]
        assert all("run " in text for text in texts), (route, texts)
        seen = Seen(len(set(texts)), keyless.status_code == 400)
        if not is_true(route, seen):
            yield f"{route}: {seen}"


def test_every_kind_of_view(configured: Configured) -> None:
    """Functions, classes, mixins, view sets, actions and operations; includes, languages and expressions."""
    configured()
    found = examine(get_wsgi_application())
    assert states(found) == STATES
    assert list(send(found)) == []
    assert [finding for finding in found.findings if finding.level == "problem"] == []
    assert examine(get_asgi_application()).routes == found.routes


def test_names_and_remarks(configured: Configured) -> None:
    """A view is named as its author would look for it."""
    configured()
    named = {route.name: route for route in examine_project().routes}
    here = __name__
    assert named["POST /orders/"].endpoint == f"{here}.Orders.post"
    assert named["POST /drf/workflows/{pk}/start/"].endpoint == f"{here}.Workflows.start"
    assert named["POST /drf/launched/"].endpoint == f"{here}.launched"
    assert named["POST /ninja/orders"].endpoint == f"{here}.create"
    assert named["PUT /old/{year}/{rest}"].endpoint == f"{here}.unprotected"
    assert named["DELETE /mixed/"].exempt == "it is the same the second time"
    assert named["POST /required/"].protection is not None
    assert named["POST /required/"].protection.scope == "the header X-Tenant"


def test_paths_of_the_middleware(configured: Configured) -> None:
    """Covered by it, left to views that claim themselves, and partly covered, which is not protected."""
    configured(
        [
            path("a/<int:pk>/", unprotected),
            path("a/own/", decorated),
            path("b/<path:rest>", unprotected),
            path("c/", unprotected),
            path("d/", exempted),
        ],
        PATHS=["/a/*", "/b/x/*", "/d/"],
        ROUTES={"/a/*": {"required": True}},
    )
    found = examine_project()
    assert states(found) == {
        "PUT /a/{pk}/": "required",
        "PATCH /a/{pk}/": "required",
        **{f"{method} /a/own/": "optional" for method in ("POST", "PUT", "PATCH", "DELETE")},
        "PUT /b/{rest}": "unprotected",
        "PATCH /b/{rest}": "unprotected",
        "PUT /c/": "unprotected",
        "PATCH /c/": "unprotected",
        "POST /d/": "optional",
    }
    assert list(send(found)) == []
    partly = next(route for route in found.routes if route.path == "/b/{rest}")
    assert "covers /b/x/" in partly.remark
    assert {
        route.protection.by for route in found.routes if route.state == "required" and route.protection
    } == {"django.Middleware"}
    configured([path("a/", decorated)], PATHS=["/a/", "/gone/*"])
    assert [(one.check, one.level) for one in examine_project().findings] == [("paths", "warning")]


def test_a_suffix_that_nothing_covers(configured: Configured) -> None:
    """`/workflows.json` is the same view by another path, which an exact path does not cover."""
    configured([path("drf/", include(router.urls))], PATHS=["/drf/workflows/"])
    found = states(examine_project())
    assert found["POST /drf/workflows/"] == "optional"
    assert [state for name, state in found.items() if "workflows.{format}" in name] == ["unprotected"]


def test_a_view_that_says_nothing(configured: Configured) -> None:
    """It may take POST, so it is listed once; what is certain leaves it out."""
    configured([path("", lambda _request: HttpResponse("home"))])
    (route,) = examine_project().routes
    assert (route.method, route.state) == ("POST", "unprotected")
    assert "@require_safe" in route.remark
    assert examine_project(certain=True).routes == ()


def test_what_django_brings_itself(configured: Configured) -> None:
    """Logins and redirects need no protection; nor is a view that is covered all the same left out."""
    from django.contrib import admin
    from django.views.generic import CreateView, RedirectView

    from tests.django.shop.models import Order

    creating = CreateView.as_view(model=Order, fields=["label"])
    own = [
        path("accounts/", include("django.contrib.auth.urls")),
        path("go/", RedirectView.as_view(url="/")),
        path("admin/", admin.site.urls),
        path("i18n/", include("django.conf.urls.i18n")),
    ]
    configured([*own, path("new/", creating)])
    assert states(examine_project()) == {"POST /new/": "unprotected", "PUT /new/": "unprotected"}
    configured(own, PATHS=["/accounts/login/"])
    assert states(examine_project())["POST /accounts/login/"] == "optional"


def test_a_middleware_outside(configured: Configured) -> None:
    """`wsgi.Middleware` around the project claims first, also for views that are decorated."""
    configured()
    guard = Guard("memory:", scope=scopes.header("X-Tenant"))
    found = examine(wsgi.Middleware(get_wsgi_application(), guard, paths=["/decorated/*", "/orders/"]))
    by = {route.name: route.protection.by for route in found.routes if route.protection}
    assert by["POST /decorated/{pk}/"] == "wsgi.Middleware"
    assert by["DELETE /orders/"] == "wsgi.Middleware"
    assert by["POST /required/"] == "@idempotent"
    assert "claim" in {finding.check for finding in found.findings}
    guard.close()


def test_what_does_not_work(configured: Configured) -> None:
    """No middleware, options that cannot hold, and a user who is not known: problems, with what to do."""
    user = {"SCOPE": scopes.user}
    configured([path("a/", required)], MIDDLEWARE=[])
    found = examine_project()
    assert states(found) == {"POST /a/": "unprotected"}
    assert [(one.check, one.level) for one in found.findings] == [("protect", "problem")]
    assert "Add 'retrysafe.django.Middleware'" in found.findings[0].advice

    @idempotent(effects="database")
    async def later(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.method == "POST")

    configured([path("a/", later)])
    assert {(one.check, one.level) for one in examine_project().findings} == {("options", "problem")}
    configured([path("a/", required)], **user)
    (finding,) = examine_project().findings
    assert (finding.check, finding.level) == ("authentication", "problem")
    authentication = "django.contrib.auth.middleware.AuthenticationMiddleware"
    configured([path("a/", required)], MIDDLEWARE=[authentication, "retrysafe.django.Middleware"], **user)
    assert examine_project().findings == ()
    configured(
        [path("a/", unprotected)],
        MIDDLEWARE=["retrysafe.django.Middleware", authentication],
        PATHS=["/a/"],
        **user,
    )
    (finding,) = examine_project().findings
    assert (finding.check, finding.level) == ("authentication", "problem")
    assert f"Move it below {authentication}" in finding.advice


def test_the_assertion(configured: Configured) -> None:
    """A team's own test takes the application as servers do, and the exemptions of the settings."""
    configured([path("a/", decorated), path("b/", Orders.as_view())])
    with pytest.raises(AssertionError, match=r"DELETE /b/ .* is not protected"):
        assert_protected(get_wsgi_application())
    assert_protected(get_asgi_application(), exempt=["DELETE /b/"])
    configured([path("a/", decorated), path("b/", Orders.as_view())], EXEMPT=["DELETE /b/"])
    assert_protected(get_wsgi_application())
    configured([path("a/", decorated)], EXEMPT=["/b/"])
    with pytest.raises(AssertionError, match="exempts no route"):
        assert_protected(get_wsgi_application())


def test_the_published_specification(configured: Configured) -> None:
    """`/idempotency` has the views that claim, by their templates, and what the middleware covers."""
    configured(
        [
            path("orders/<int:pk>/", decorated),
            path("launched/", launched),
            path("workflows/", include(router.urls)),
            path("plain/", unprotected),
        ],
        ROUTES={"/plain/": {"required": True}},
        PATHS=["/plain/"],
    )
    client = Client()
    reply = client.get("/idempotency", headers={"Accept": "application/json"})
    document = json.loads(reply.content)
    routes = {route["path"]: route for route in document["routes"]}
    assert routes["/orders/{pk}/"]["required"] is False
    assert routes["/launched/"]["required"] is True
    assert routes["/launched/"]["methods"] == ["POST"]
    assert routes["/plain/"]["required"] is True
    assert "/workflows/workflows/{pk}/start/" in routes
    assert not any("<" in name or "^" in name for name in routes)
    assert "/orders/{pk}/" in client.get("/idempotency").content.decode()


_SHOP = """
from django.conf import settings

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY="of tests alone",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "retrysafe.django"],
    MIDDLEWARE=["django.contrib.auth.middleware.AuthenticationMiddleware", "retrysafe.django.Middleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
)

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from django.http import HttpResponse
from django.urls import path
from django.views.decorators.http import require_POST

from retrysafe.django import idempotent

@require_POST
@idempotent
def order(request):
    return HttpResponse("ordered")

@require_POST
def refund(request):
    return HttpResponse("refunded")

urlpatterns = [path("orders/<int:pk>/", order), path("refunds/", refund)]
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`retrysafe routes shop:application` reads a project as any application; no database is needed."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(_SHOP))
    monkeypatch.chdir(tmp_path)
    done = run_command("routes", "shop:application", "--fail-unprotected")
    assert done.code == 1
    assert done.out.splitlines()[1].split()[:3] == ["POST", "/refunds/", "unprotected"]
    assert done.out.splitlines()[2].split()[:6] == [
        "POST", "/orders/{pk}/", "optional", "@idempotent", "outside", "settings.RETRYSAFE",
    ]  # fmt: skip
    assert not (tmp_path / "shop.db").exists()


def test_the_guard_of_the_project(configured: Configured) -> None:
    """It is the one that requests are served with."""
    configured()
    assert examine_project().guards == (project_guard(),)
