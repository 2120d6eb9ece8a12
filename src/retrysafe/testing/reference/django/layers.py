"""What stands around the views: CORS and authentication as middlewares, and who may use a view.

A middleware of Django's is called by blocking and by asynchronous handlers; both of these do nothing that
takes time, so one function serves both.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from asgiref.sync import (
    iscoroutinefunction,  # pyright: ignore[reportDeprecated]  # `inspect` has no marks before Python 3.12
)
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from retrysafe.testing.reference.cors import ALLOWED, EXPOSED, METHODS
from retrysafe.testing.reference.principals import admit, identify

GetResponse = Callable[[HttpRequest], Any]
"""A response, or what is awaited for one: Django asks a middleware for the kind that it was given."""

Before = Callable[[HttpRequest], HttpResponse | None]
After = Callable[[HttpRequest, HttpResponseBase], HttpResponseBase]


class User:
    """Of the middleware's own, as Django's is without an account."""

    is_authenticated = True

    def __init__(self, name: str, *, permitted: bool) -> None:
        self.pk = name
        self.permitted = permitted


class Anonymous:
    is_authenticated = False
    permitted = True
    pk = None


@sync_and_async_middleware
def allow_other_origins(get_response: GetResponse) -> GetResponse:
    """CORS for every origin: each response names the one that asked."""
    return _around(get_response, _preflight, _name_origin)


def _preflight(request: HttpRequest) -> HttpResponse | None:
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return None
    return HttpResponse(
        status=204,
        headers={"Access-Control-Allow-Methods": METHODS, "Access-Control-Allow-Headers": ALLOWED},
    )


def _name_origin(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    origin = request.headers.get("Origin")
    if origin is not None:
        response["Access-Control-Allow-Origin"] = origin
        response["Access-Control-Expose-Headers"] = EXPOSED
        patch_vary_headers(response, ["Origin"])
    return response


@sync_and_async_middleware
def authenticate(get_response: GetResponse) -> GetResponse:
    """401, or `request.user`."""
    return _around(get_response, _sign_in, lambda _, response: response)


def _sign_in(request: HttpRequest) -> HttpResponse | None:
    given = request.headers.get("Authorization")
    if given is None:
        request.user = Anonymous()  # type: ignore[assignment]  # no account of Django's
        return None
    # Two credentials are two people; a server joins them with a comma.
    credentials = b"" if "," in given else given.encode("latin-1")
    denied = admit(credentials)
    if denied is not None and denied.status == 401:
        challenge = {"WWW-Authenticate": 'Bearer realm="reference"'}
        return JsonResponse({"error": denied.reason}, status=401, headers=challenge)
    request.user = User(identify(credentials), permitted=denied is None)  # type: ignore[assignment]  # as above
    return None


def _around(get_response: GetResponse, before: Before, after: After) -> GetResponse:
    def called(request: HttpRequest) -> HttpResponseBase:
        return after(request, before(request) or get_response(request))

    async def awaited(request: HttpRequest) -> HttpResponseBase:
        return after(request, before(request) or await get_response(request))

    return awaited if _is_awaited(get_response) else called


def _is_awaited(function: Callable[..., Any]) -> bool:
    return iscoroutinefunction(function)  # pyright: ignore[reportDeprecated]  # see above


def permitted(view: Callable[..., Any]) -> Callable[..., Any]:
    """403 before the view, and the claim in it, where the user has lost the permission."""

    def check(request: HttpRequest) -> None:
        if not _is_permitted(request.user):
            raise PermissionDenied

    @wraps(view)
    def called(request: HttpRequest, **variables: str) -> HttpResponseBase:
        check(request)
        response: HttpResponseBase = view(request, **variables)
        return response

    @wraps(view)
    async def awaited(request: HttpRequest, **variables: str) -> HttpResponseBase:
        check(request)
        found: Awaitable[HttpResponseBase] = view(request, **variables)
        return await found

    return awaited if _is_awaited(view) else called


class ByMiddleware(BaseAuthentication):
    """Django REST framework authenticates anew, and believes the middleware."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        user = request._request.user
        return (user, None) if user.is_authenticated else None


class Permitted(BasePermission):
    def has_permission(self, request: Request, view: object) -> bool:  # noqa: ARG002 - as it is called
        return _is_permitted(request.user)


def _is_permitted(user: object) -> bool:
    assert isinstance(user, User | Anonymous), "the middleware has signed it in"
    return user.permitted
