"""A project of Django's, protected by a middleware of Django's that is made of the one for WSGI."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from werkzeug.test import run_wsgi_app

from retrysafe import wsgi
from tests.django.project import configure
from tests.testing.shops import Till

configure()

# It has no types.
conf: Any = import_module("django.conf")
db: Any = import_module("django.db")
http: Any = import_module("django.http")
test: Any = import_module("django.test")
urls: Any = import_module("django.urls")
handlers: Any = import_module("django.core.handlers.wsgi")

DATABASE = "shop"
PROTECTED = f"{__name__}.protected"
"""For `MIDDLEWARE`."""


class Project:
    """What the running test has: one at a time."""

    till: Till
    connections: list[Any]
    """Those that its view was given."""


def pay(request: Any) -> Any:
    connection = db.connections[DATABASE]
    Project.connections.append(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return http.JsonResponse(Project.till.pay(int(request.POST["amount"])), status=201)


urlpatterns = [urls.path("pay", pay)]


def protected(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Django's test client calls no WSGI application, so there is one inside."""

    def inner(environ: Any, start_response: Any) -> list[bytes]:
        response = get_response(handlers.WSGIRequest(environ))
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        return [response.content]

    guarded = wsgi.Middleware(inner, Project.till.guard)

    def middleware(request: Any) -> Any:
        pieces, status, headers = run_wsgi_app(guarded, request.environ, buffered=True)
        return http.HttpResponse(b"".join(pieces), status=int(status[:3]), headers=dict(headers))

    return middleware


@contextmanager
def project(till: Till, folder: Path, *middleware: str) -> Generator[type[Project]]:
    """A database and middlewares of its own, under the settings that all tests of a process share."""
    Project.till, Project.connections = till, []
    databases = db.connections.settings
    own = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.db")}
    databases[DATABASE] = databases["default"] | own
    module = sys.modules[__name__]
    try:
        with test.override_settings(ROOT_URLCONF=module, ALLOWED_HOSTS=["*"], MIDDLEWARE=middleware):
            yield Project
    finally:
        db.connections[DATABASE].close()
        del db.connections[DATABASE], databases[DATABASE]
