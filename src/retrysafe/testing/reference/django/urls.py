"""The URLconf of the project: which view stands behind which path."""

from collections.abc import Callable, Iterator, Mapping

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from retrysafe.testing.reference.routes import ROUTES, Route

View = Callable[..., HttpResponseBase]

urlpatterns: list[URLPattern] = []
"""Django reads it from this module, and the views need the service: so it is filled when there is one."""


def fill(view: Callable[[str, Mapping[str, Route]], View]) -> None:
    """Have all routes served by views that are made of a path and its routes by method."""
    urlpatterns[:] = [
        path(route.lstrip("/").replace("{", "<str:").replace("}", ">"), view(route, methods))
        for route, methods in _by_path()
    ]


def _by_path() -> Iterator[tuple[str, Mapping[str, Route]]]:
    for found in dict.fromkeys(route.path for route in ROUTES):
        yield found, {route.method: route for route in ROUTES if route.path == found}
