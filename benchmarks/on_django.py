"""Projects of Django's, under gunicorn: one and the same view, bare and behind each layer.

A process has one project.  It has the middleware that gives responses their length, as every project has,
and its tables in the folder of its server, or in PostgreSQL where that was given a database.  Django's own
connections stay open, and what SQLite commits is on the disk, as with us.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from benchmarks.apps import ADDRESS, MANY, Wsgi, address_of

View = Callable[..., Any]

PATIENCE = 10.0
"""Seconds that a writer waits for the others in SQLite: 128 connections want to write at a time."""

RUNS = "runs"
"""The path that tells how often the view has run, if it is asked once: not every peer marks its replays."""


# --- Django's own views


def bare(folder: Path) -> Wsgi:
    return _serve(folder, _charge)


def memory(folder: Path) -> Wsgi:
    return _guarded(folder, _charge, STORE="memory:")


def table(folder: Path) -> Wsgi:
    """The records are in a table of the project's database."""
    return _guarded(folder, _charge)


def written_bare(folder: Path) -> Wsgi:
    return _serve(folder, lambda: _writing(atomic=True))


def written_tx(folder: Path) -> Wsgi:
    """The transaction is ours, and is the same."""
    return _guarded(folder, lambda: _writing(atomic=False), EFFECTS="database", DEADLINE=PATIENCE)


def dik_memory(folder: Path) -> Wsgi:
    return _behind_dik(folder, "MemoryKeyStorage")


def dik_table(folder: Path) -> Wsgi:
    """Its storage that other processes see: a cache of Django's, here in a table."""
    return _behind_dik(folder, "CacheKeyStorage")


def _charge() -> View:
    from django.http import HttpRequest, JsonResponse

    ran = _runs.__next__

    def charge(request: HttpRequest) -> JsonResponse:
        order = json.loads(request.body)
        ran()
        return JsonResponse(
            {"id": 1, "amount": order["amount"]}, status=201, json_dumps_params={"separators": (",", ":")}
        )

    return charge


def _writing(*, atomic: bool) -> View:
    from django.db import connection, models, transaction
    from django.http import HttpRequest, JsonResponse

    class Charge(models.Model):
        amount: Any = models.IntegerField()
        note: Any = models.TextField()

        class Meta:
            app_label = "benchmarks"

    with connection.schema_editor() as editor:
        editor.create_model(Charge)
    ran = _runs.__next__

    def charge(request: HttpRequest) -> JsonResponse:
        order = json.loads(request.body)
        ran()
        Charge.objects.create(amount=order["amount"], note=order["note"])
        return JsonResponse(
            {"id": 1, "amount": order["amount"]}, status=201, json_dumps_params={"separators": (",", ":")}
        )

    return transaction.atomic(charge) if atomic else charge


def _guarded(folder: Path, view: Callable[[], View], **said: object) -> Wsgi:
    from retrysafe import scopes

    def decorated() -> View:
        from retrysafe.django import idempotent

        return idempotent(view())

    return _serve(folder, decorated, **_OURS, RETRYSAFE={"SCOPE": scopes.header("X-Tenant"), **said})


def _behind_dik(folder: Path, storage: str) -> Wsgi:
    def decorated() -> View:
        from django.utils.module_loading import import_string

        decorate: Callable[[View], View] = import_string("idempotency_key.decorators.idempotency_key")
        return decorate(_charge())

    return _serve(
        folder,
        decorated,
        MIDDLEWARE=["idempotency_key.middleware.ExemptIdempotencyKeyMiddleware"],
        IDEMPOTENCY_KEY={
            # Its default is 409 for whatever it has seen; with this, the first response is sent again.
            "CONFLICT_STATUS_CODE": None,
            "STORAGE": {"CLASS": f"idempotency_key.storage.{storage}"},
            # Its default of a tenth of a second refuses when there is a crowd.
            "LOCK": {"TIMEOUT": PATIENCE},
        },
    )


# --- Django REST framework


def drf_bare(folder: Path) -> Wsgi:
    return _serve(folder, lambda: _api_view(_as_it_is), INSTALLED_APPS=_REST)


def drf_table(folder: Path) -> Wsgi:
    def decorated() -> View:
        from retrysafe.django import idempotent

        return _api_view(idempotent)

    return _serve(
        folder, decorated, **{**_OURS, "INSTALLED_APPS": [*_REST, "retrysafe.django"]}, RETRYSAFE={}
    )


def drfik_table(folder: Path) -> Wsgi:
    def mixed() -> View:
        from django.utils.module_loading import import_string

        return _api_view(_as_it_is, import_string("drf_idempotencykey.mixins.DrfIdempotencyKeyMixin"))

    return _serve(folder, mixed, INSTALLED_APPS=[*_REST, "drf_idempotencykey"])


def _api_view(decorate: Callable[[View], View], *mixins: type) -> View:
    from django.contrib.auth import get_user_model
    from rest_framework.authentication import BaseAuthentication
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.views import APIView

    ran = _runs.__next__
    # Its peer keeps keys for users alone.  Who it is costs no query here: that is not what is compared.
    user = get_user_model().objects.create(username="acme")

    class Known(BaseAuthentication):
        def authenticate(self, request: Request) -> tuple[Any, None]:
            return user, None

    class Charge(*mixins, APIView):  # type: ignore[misc]  # none, or that of a peer
        authentication_classes = (Known,)

        @decorate
        def post(self, request: Request) -> Response:
            order: Any = request.data
            ran()
            return Response({"id": 1, "amount": order["amount"]}, status=201)

    return Charge.as_view()


def _as_it_is(view: View) -> View:
    return view


# --- what they have in common

_runs = count()

_OURS: dict[str, Sequence[str]] = {
    "INSTALLED_APPS": ["retrysafe.django"],
    "MIDDLEWARE": ["retrysafe.django.Middleware"],
}
_REST = ("django.contrib.contenttypes", "django.contrib.auth", "rest_framework")


def _serve(folder: Path, view: Callable[[], View], **more: Any) -> Wsgi:
    """A project with a view, which is made when there are settings and tables."""
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.db import connections
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    urls = ModuleType("benchmarks_urls")
    settings.configure(
        **{
            "ALLOWED_HOSTS": ["*"],
            "CACHES": {"default": _CACHE},
            "DATABASES": {"default": _database(folder)},
            "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
            "LOGGING_CONFIG": None,
            "REST_FRAMEWORK": _REST_FRAMEWORK,
            "ROOT_URLCONF": urls,
            "SECRET_KEY": "of benchmarks",
            "USE_TZ": True,
            **more,
            "MIDDLEWARE": ["django.middleware.common.CommonMiddleware", *more.get("MIDDLEWARE", ())],
        }
    )
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("createcachetable", verbosity=0)

    def runs(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(next(_runs)))

    urls.__dict__["urlpatterns"] = [path("charges", view()), path(RUNS, runs)]
    connections.close_all()
    served: Wsgi = get_wsgi_application()
    return served


_REST_FRAMEWORK = {
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
}

_CACHE: dict[str, Any] = {
    "BACKEND": "django.core.cache.backends.db.DatabaseCache",
    "LOCATION": "cached",
    "TIMEOUT": None,
    # It keeps 300 by default, and forgets keys that are still good.
    "OPTIONS": {"MAX_ENTRIES": MANY},
}


def _database(folder: Path) -> Mapping[str, Any]:
    if not (folder / ADDRESS).exists():
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(folder / "project.db"),
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                "timeout": PATIENCE,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
            },
        }
    found = urlsplit(address_of(folder))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found.path.lstrip("/"),
        "USER": found.username or "",
        "PASSWORD": found.password or "",
        "HOST": found.hostname or "",
        "PORT": str(found.port or ""),
        "CONN_MAX_AGE": None,
    }
