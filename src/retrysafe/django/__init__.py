"""Django: views that claim their key themselves, on the project's own database.

    INSTALLED_APPS = [..., "retrysafe.django"] MIDDLEWARE = [...,
    "django.contrib.auth.middleware.AuthenticationMiddleware", "retrysafe.django.Middleware"] RETRYSAFE =
    {"EFFECTS": "database"}

    from retrysafe.django import idempotent

    @login_required
    @idempotent(required=True)
    def create(request): ...

After `manage.py migrate`, the records are in the tables of the project's database, and what a view writes
there is committed together with its response.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrysafe.django import scopes
    from retrysafe.django.middleware import Middleware
    from retrysafe.django.settings import guard
    from retrysafe.django.views import IdempotentMixin, idempotent

__all__ = ["IdempotentMixin", "Middleware", "guard", "idempotent", "scopes"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    """Import what is asked for: an application must be imported before the settings can be read."""
    from importlib import import_module

    match name:
        case "IdempotentMixin" | "idempotent":
            return getattr(import_module("retrysafe.django.views"), name)
        case "Middleware":
            return getattr(import_module("retrysafe.django.middleware"), name)
        case "guard":
            return getattr(import_module("retrysafe.django.settings"), name)
        case "scopes":
            return import_module("retrysafe.django.scopes")
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
