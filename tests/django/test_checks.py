"""System checks: each says what is wrong and what to do, and a project that is set up right hears nothing."""

import types
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.mixins import LoginRequiredMixin, PermissionRequiredMixin
from django.contrib.auth.views import LoginView
from django.core.checks import CheckMessage, Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_POST
from django.views.generic import RedirectView
from ninja import NinjaAPI
from ninja.security import HttpBearer
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from retrysafe import scopes
from retrysafe.coverage import exempt
from retrysafe.django import idempotent
from retrysafe.django.checks import TAG, check_deployment, check_project, check_tables

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
OURS = "retrysafe.django.Middleware"
GZIP = "django.middleware.gzip.GZipMiddleware"


@idempotent
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ordered")


@require_POST
def refund(request: HttpRequest) -> HttpResponse:
    return HttpResponse("refunded")


class Payment(APIView):
    def post(self, request: Request) -> Response:
        return Response("paid")


@pytest.fixture
def said() -> Callable[..., dict[str, CheckMessage]]:
    """What is said of a project with these views, by id."""

    def check(*views: Any, **changed: Any) -> dict[str, CheckMessage]:
        urls: Any = types.ModuleType("shop.urls")
        urls.urlpatterns = [
            view if hasattr(view, "pattern") else path(f"view{number}/", view)
            for number, view in enumerate(views)
        ]
        changed.setdefault("MIDDLEWARE", [SESSIONS, AUTHENTICATION, OURS])
        with override_settings(ROOT_URLCONF=urls, **changed):
            messages = check_project()
        found = {str(message.id): message for message in messages}
        assert len(found) == len(messages), messages
        assert all(message.hint for message in messages)
        return found

    return check


Said = Callable[..., dict[str, CheckMessage]]


def test_a_right_project_hears_nothing(said: Said) -> None:
    """By decorators, by paths, by both, in the database and outside; with what Django brings itself."""

    @exempt("a second login does no harm")
    def login(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.method == "POST")

    def home(request: HttpRequest) -> HttpResponse:
        return HttpResponse("a page, which says nowhere what methods it takes")

    class Report(LoginRequiredMixin, View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("reported")

    views = (order, login, home, LoginView.as_view(), RedirectView.as_view(url="/"))
    assert said(*views) == {}
    assert said(*views, RETRYSAFE={"EFFECTS": "database"}) == {}
    assert said(*views, Report.as_view(), refund, RETRYSAFE={"PATHS": ["/view*"]}) == {}
    assert said(path("admin/", include("django.contrib.auth.urls")), order) == {}
    assert check_tables(databases=["default"]) == []
    assert check_deployment() == []


def test_they_are_registered(said: Said) -> None:
    """`manage.py check` has them, by their tag too; what asks a database is asked only where one is named."""
    with override_settings(RETRYSAFE={"DATABSE": "default"}):
        assert [message.id for message in run_checks(tags=[TAG])] == ["retrysafe.E001"]
        assert "retrysafe.E001" in [message.id for message in run_checks()]
    call_command("migrate", "retrysafe", "0003", database="default", verbosity=0)
    try:
        assert run_checks(tags=[TAG], databases=[]) == []
        assert [one.id for one in run_checks(tags=[Tags.database], databases=["default"])] == [
            "retrysafe.W002"
        ]
        (message,) = check_tables(databases=["default"])
        assert "0004_payloads" in message.msg
        assert check_tables(databases=["second"]) == []
    finally:
        call_command("migrate", database="default", verbosity=0)
    with override_settings(RETRYSAFE={"STORE": "memory:"}):
        assert [one.id for one in run_checks(tags=[TAG], include_deployment_checks=True)] == [
            "retrysafe.W008"
        ]


def test_a_database_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and no traceback."""
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", "/nowhere/shop.db")
    connections["default"].close()
    (message,) = check_tables(databases=["default"])
    assert message.id == "retrysafe.W002"
    assert "cannot be looked for" in message.msg


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"DATABASE": "default", "RETENTON": "1h"}, "did you mean 'RETENTION'"),
        ({"RETENTION": "soon"}, "soon"),
        ({"DATABASE": "third"}, "which is no alias"),
        ({"SCOPE": "shop.scopes.missing"}, "cannot be imported"),
        ({"UNPROTECTED": "fail"}, 'expected "error", "warn" or "ignore"'),
        ({"EXEMPT": "/login/"}, "expected a list of paths"),
        ({"EXEMPT": ["login"]}, "is not a valid exemption"),
        ({"PATHS": ["/orders/*"], "ROUTES": {"/orders/1": {"effects": "database"}}}, "cannot join"),
        (["DATABASE"], "expected a dictionary"),
    ],
)
def test_settings_that_cannot_be_read(said: Said, given: Any, part: str) -> None:
    """The error is the message, and everything else waits for it."""
    found = said(order, refund, RETRYSAFE=given)
    assert list(found) == ["retrysafe.E001"]
    assert part in found["retrysafe.E001"].msg


def test_the_middleware_is_missing(said: Said) -> None:
    """Views claim keys, and nothing would settle what they raise."""
    found = said(order, MIDDLEWARE=[AUTHENTICATION])
    assert "retrysafe.E002" in found
    assert "/view0/" in found["retrysafe.E002"].msg
    assert "retrysafe.E002" not in said(refund, MIDDLEWARE=[AUTHENTICATION])


def test_what_cannot_be_imported_is_not_our_news(said: Said) -> None:
    """A middleware that fails to import is Django's to report; an error in the URLconf comes through."""
    assert said(order, refund, MIDDLEWARE=["shop.missing.Middleware", OURS]) == {}
    urls: Any = types.ModuleType("shop.urls")
    urls.urlpatterns = 7
    with override_settings(ROOT_URLCONF="tests.django.no_such_urls"), pytest.raises(ModuleNotFoundError):
        check_project()
    with override_settings(ROOT_URLCONF=urls), pytest.raises(ImproperlyConfigured):
        check_project()


def test_options_that_cannot_hold(said: Said) -> None:
    """A view in a transaction of a database in which the records are not."""
    found = said(idempotent(effects="database")(refund), RETRYSAFE={"STORE": "memory:"})
    assert "retrysafe.E003" in found


def test_coroutines_in_the_database(said: Said) -> None:
    """Django's connections are for blocking code."""

    @idempotent
    async def later(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    assert "retrysafe.E004" in said(later, RETRYSAFE={"EFFECTS": "database"})
    assert said(later) == {}


def test_coroutines_with_atomic_requests(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django refuses them, unless they are marked."""

    @idempotent
    async def later(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert said(order) == {}
    assert "retrysafe.E005" in said(later)
    assert said(transaction.non_atomic_requests(later)) == {}


def test_apis_behind_paths(said: Said) -> None:
    """Their permissions would come after a replay: an error, and such a request is refused."""

    class Key(HttpBearer):
        def authenticate(self, request: HttpRequest, token: str) -> str:
            return token

    api = NinjaAPI(urls_namespace="checks-apis")

    @api.post("/orders", auth=Key())
    def create(request: HttpRequest) -> str:
        return "created"

    @api_view(["POST"])
    def launch(request: Request) -> Response:
        return Response("launched")

    covered = {"PATHS": ["/*"]}
    for view in (Payment.as_view(), path("api/", api.urls), launch):
        found = said(view, RETRYSAFE=covered)
        assert "retrysafe.E006" in found, view
        assert said(view, RETRYSAFE={**covered, "REAUTHORISE": "tests.django.test_checks.allow"}) == {}
    assert "retrysafe.E006" not in said(Payment.as_view(), refund, RETRYSAFE={"PATHS": ["/view1/"]})

    class Guarded(APIView):
        @idempotent
        def post(self, request: Request) -> Response:
            return Response("paid")

    assert said(Guarded.as_view(), RETRYSAFE=covered) == {}


def allow(request: object) -> bool:
    return True


urlpatterns = [path("payments/", Payment.as_view())]


def test_such_a_request_is_refused(client: Client) -> None:
    """Before anything is claimed: a stored response is only for those who may have it now."""
    from retrysafe.django.models import Record

    key = {"Idempotency-Key": "behind-paths-0001"}
    with override_settings(RETRYSAFE={"PATHS": ["/payments/"]}):
        assert client.post("/payments/", headers=key).status_code == 500
        assert client.post("/payments/").status_code == 200
        assert Record.objects.count() == 0
    with override_settings(RETRYSAFE={"PATHS": ["/payments/"], "REAUTHORISE": allow}):
        assert client.post("/payments/", headers=key).status_code == 200
        assert client.post("/payments/", headers=key).headers["Idempotent-Replayed"] == "true"


def test_the_order_of_middlewares(said: Said) -> None:
    """Above the authentication no user is known; with decorated views the order does not matter."""
    above = [SESSIONS, OURS, AUTHENTICATION]
    assert list(said(refund, RETRYSAFE={"PATHS": ["/view0/"]}, MIDDLEWARE=above)) == ["retrysafe.E007"]
    assert said(order, MIDDLEWARE=above) == {}
    of_header = {"PATHS": ["/view0/"], "SCOPE": scopes.header("X-Tenant")}
    assert said(refund, RETRYSAFE=of_header, MIDDLEWARE=above) == {}


def test_no_authentication(said: Said) -> None:
    """The scope is the user, and nothing sets one: no view of REST framework's, and no middleware."""
    found = said(order, MIDDLEWARE=[OURS])
    assert list(found) == ["retrysafe.E008"]
    assert list(said(refund, MIDDLEWARE=[OURS], RETRYSAFE={"PATHS": ["/view0/"]})) == ["retrysafe.E008"]

    class Guarded(APIView):
        @idempotent
        def post(self, request: Request) -> Response:
            return Response("paid")

    assert said(Guarded.as_view(), MIDDLEWARE=[OURS]) == {}
    assert said(order, MIDDLEWARE=["tests.django.signing.SignIn", OURS]) == {}
    assert said(order, MIDDLEWARE=[OURS], RETRYSAFE={"SCOPE": scopes.header("X-Tenant")}) == {}


def test_views_without_protection(said: Said) -> None:
    """A warning once something is protected, in one message; an error or nothing, as the project says."""
    assert said(refund) == {}
    found = said(order, refund)
    assert list(found) == ["retrysafe.W001"]
    assert "POST /view1/ (tests.django.test_checks.refund)" in found["retrysafe.W001"].msg
    assert list(said(refund, RETRYSAFE={"UNPROTECTED": "warn"})) == ["retrysafe.W001"]
    assert list(said(refund, RETRYSAFE={"UNPROTECTED": "error"})) == ["retrysafe.E009"]
    assert said(order, refund, RETRYSAFE={"UNPROTECTED": "ignore"}) == {}
    assert said(order, refund, RETRYSAFE={"EXEMPT": ["/view1/"]}) == {}
    many = said(order, *[Payment.as_view() for _ in range(30)])["retrysafe.W001"].msg
    assert many.startswith("30 mutating views are not protected")
    assert many.endswith(" and 20 more.")


def test_records_in_another_database(said: Said) -> None:
    """What a view writes would not be committed with its response."""
    elsewhere = {"DATABASE": "second", "EFFECTS": "database"}
    found = said(order, RETRYSAFE=elsewhere)
    assert list(found) == ["retrysafe.W003"]
    assert "'default'" in str(found["retrysafe.W003"].hint)
    assert said(order, RETRYSAFE={"DATABASE": "second"}) == {}


def test_isolation(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above READ COMMITTED a commit may fail for what another request did."""
    of_database = {"RETRYSAFE": {"EFFECTS": "database"}}
    monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.postgresql")
    for level, ids in ((2, []), (3, ["retrysafe.W004"]), (4, ["retrysafe.W004"])):
        monkeypatch.setitem(connections.settings["default"], "OPTIONS", {"isolation_level": level})
        assert list(said(order, **of_database)) == ids
    monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.mysql")
    for options, ids in (
        ({}, []),  # Django sets READ COMMITTED
        ({"isolation_level": "read uncommitted"}, []),
        ({"isolation_level": "Repeatable Read"}, ["retrysafe.W004"]),
        ({"isolation_level": None}, ["retrysafe.W004"]),  # that of the server
    ):
        monkeypatch.setitem(connections.settings["default"], "OPTIONS", options)
        assert list(said(order, **of_database)) == ids
    assert said(order) == {}


def test_no_autocommit(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view in a transaction would never be committed."""
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    assert list(said(order, RETRYSAFE={"EFFECTS": "database"})) == ["retrysafe.E010"]
    assert said(order) == {}


class Logs:
    """A middleware that reads forms."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        request.log = dict(request.POST)  # type: ignore[attr-defined]  # for later
        return self.get_response(request)


def logs(get_response: Any) -> Any:
    """The same as a function."""

    def middleware(request: HttpRequest) -> Any:
        _ = request.body
        return get_response(request)

    return middleware


def test_a_middleware_that_reads_bodies(said: Said) -> None:
    """Above ours there is no copy of what it has read."""
    for name in ("Logs", "logs"):
        reading = f"{__name__}.{name}"
        found = said(order, MIDDLEWARE=[SESSIONS, AUTHENTICATION, reading, OURS])
        assert list(found) == ["retrysafe.W005"]
        assert reading in found["retrysafe.W005"].msg
        assert said(order, MIDDLEWARE=[SESSIONS, AUTHENTICATION, OURS, reading]) == {}


def test_compression(said: Said) -> None:
    """Below ours, responses of paths are stored, and so sent, as they are."""
    covered = {"PATHS": ["/view0/"]}
    below = [SESSIONS, AUTHENTICATION, OURS, GZIP]
    assert list(said(refund, RETRYSAFE=covered, MIDDLEWARE=below)) == ["retrysafe.W006"]
    assert said(order, MIDDLEWARE=below) == {}
    assert said(refund, RETRYSAFE=covered, MIDDLEWARE=[GZIP, SESSIONS, AUTHENTICATION, OURS]) == {}


def test_permissions_behind_paths(said: Said) -> None:
    """A replay does not ask again; of a login it need not, where the scope is the user."""

    class Export(PermissionRequiredMixin, View):
        permission_required = "shop.export"

        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("exported")

    class Approval(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("approved")

    class Own(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("one's own")

    approval = method_decorator(permission_required("shop.approve"), name="dispatch")(Approval)
    asking = (Export.as_view(), approval.as_view(), permission_required("shop.refund")(refund))
    for view in asking:
        assert list(said(view, RETRYSAFE={"PATHS": ["/view0/"]})) == ["retrysafe.W007"], view
        assert said(view, RETRYSAFE={"PATHS": ["/view0/"], "REAUTHORISE": allow}) == {}
    own = method_decorator(login_required, name="dispatch")(Own)
    of_tenant = {"PATHS": ["/view0/"], "SCOPE": scopes.header("X-Tenant")}
    for view in (login_required(refund), own.as_view()):
        assert said(view, RETRYSAFE={"PATHS": ["/view0/"]}) == {}
        assert list(said(view, RETRYSAFE=of_tenant)) == ["retrysafe.W007"]


def test_records_in_memory() -> None:
    """Each process would have its own, which matters where there are several."""
    with override_settings(RETRYSAFE={"STORE": "memory:"}):
        assert [message.id for message in check_deployment()] == ["retrysafe.W008"]
    with override_settings(RETRYSAFE={"STORE": "no such scheme"}):
        assert check_deployment() == []


def test_the_project_of_the_tests(said: Said) -> None:
    """`manage.py check` of a whole project, with every middleware and application that it has."""
    assert said(order, MIDDLEWARE=settings.MIDDLEWARE) == {}
