"""The routes as views: functions, blocking or `async def`, and one of Django REST framework's."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_http_methods
from rest_framework import serializers
from rest_framework.decorators import api_view
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler

from retrysafe import scopes
from retrysafe.django import idempotent
from retrysafe.django.options import Options
from retrysafe.testing.reference.django.layers import permitted
from retrysafe.testing.reference.django.urls import View
from retrysafe.testing.reference.routes import Route
from retrysafe.testing.reference.service import Broken, Call, Reply, Service, Stream

GUARDED_BY_USER: Options = {"scope": scopes.user}
"""For people we know: without one there is no key."""


class Views:
    """Makes the view of each path: one function for all of its methods."""

    def __init__(self, service: Service, *, asynchronous: bool = False, transactional: bool = False) -> None:
        self._service = service
        self._asynchronous = asynchronous
        self._transactional = transactional

    def __call__(self, path: str, routes: Mapping[str, Route]) -> View:
        methods = [*routes, "HEAD", "OPTIONS"] if "GET" in routes else [*routes, "OPTIONS"]
        if path == "/validated":
            return _validated(self._service, routes["POST"])
        view = self._blocking(routes)
        # A transaction is one thread's, and so are the effects in it; a stream of events has none.
        if self._asynchronous and (path == "/events" or not self._transactional):
            view = self._awaited(routes)
        if path == "/zipped":
            view = gzip_page(view)
        if "GET" not in routes:
            options = GUARDED_BY_USER if path == "/private" else Options()
            view = idempotent(**options)(view)
        return require_http_methods(methods)(permitted(view))

    def _blocking(self, routes: Mapping[str, Route]) -> View:
        def view(request: HttpRequest, **variables: str) -> HttpResponseBase:
            route = _route_of(request, routes)
            if route is None:
                return _allowed(routes)
            response = _serve(self._service, route, _call(request, variables))
            if request.method == "HEAD" and isinstance(response, HttpResponse):
                response.content = b""
            return response

        return view

    def _awaited(self, routes: Mapping[str, Route]) -> Callable[..., Any]:
        async def view(request: HttpRequest, **variables: str) -> HttpResponseBase:
            route = _route_of(request, routes)
            if route is None:
                return _allowed(routes)
            return await _serve_awaited(self._service, route, _call(request, variables))

        return view


def _route_of(request: HttpRequest, routes: Mapping[str, Route]) -> Route | None:
    return routes.get("GET" if request.method == "HEAD" else str(request.method))


def _allowed(routes: Mapping[str, Route]) -> HttpResponse:
    """The response to the question which methods there are."""
    response = HttpResponse(status=204, headers={"Allow": ", ".join([*sorted(routes), "OPTIONS"])})
    del response["Content-Type"]
    return response


def _call(request: HttpRequest, variables: Mapping[str, str]) -> Call:
    body = request.read()
    # Where the server ends it, Django does not notice one that is not complete.
    if len(body) < int(request.META.get("CONTENT_LENGTH") or 0):
        raise UnreadablePostError("the client went away")
    return Call(
        request.GET.dict(), request.headers.get("Content-Type", ""), body, next(iter(variables.values()), "")
    )


def _serve(service: Service, route: Route, call: Call) -> HttpResponseBase:
    if route.method != "GET":
        service.journal.begin(call.label)
    if route.waits:
        time.sleep(call.pause)
    match route.do(service, call):
        case Reply() as reply:
            return _respond(reply, call)
        case Stream() as stream:
            return _with_headers(StreamingHttpResponse(_chunks(stream)), stream.headers)


async def _serve_awaited(service: Service, route: Route, call: Call) -> HttpResponseBase:
    if route.method != "GET":
        service.journal.begin(call.label)
    if route.waits:
        await asyncio.sleep(call.pause)
    # In a thread, because an effect waits for the disk; the context goes along.
    match await sync_to_async(route.do, thread_sensitive=False)(service, call):
        case Reply() as reply:
            return _respond(reply, call)
        case Stream() as stream:
            return _with_headers(StreamingHttpResponse(_chunks_awaited(stream)), stream.headers)


class Afterwards(HttpResponse):
    """What Django has for background tasks: work in `close()`, when the response has been sent."""

    afterwards: Callable[[], object] | None = None
    pause = 0.0

    def close(self) -> None:
        if self.afterwards is not None:
            time.sleep(self.pause)
            self.afterwards()
        super().close()


def _respond(reply: Reply, call: Call) -> HttpResponseBase:
    response = Afterwards(reply.body, status=reply.status)
    response.afterwards = reply.afterwards
    response.pause = call.pause
    # RFC 9110 section 8.6: no Content-Length in a 204.
    length = () if reply.status in (204, 304) else (("content-length", str(len(reply.body))),)
    return _with_headers(response, (*reply.headers, *length))


def _with_headers(response: HttpResponseBase, headers: tuple[tuple[str, str], ...]) -> HttpResponseBase:
    """A response of Django's has one field of each name, and cookies."""
    del response["Content-Type"]
    for name, value in headers:
        if name == "set-cookie":
            response.cookies.load(value)
        else:
            response[name] = f"{response[name]}, {value}" if name in response else value
    return response


def _chunks(stream: Stream) -> Iterator[bytes]:
    for number, chunk in enumerate(stream.chunks):
        if number:
            time.sleep(stream.pause)
        yield chunk
    if stream.breaks:
        raise Broken("the stream failed half-way")


async def _chunks_awaited(stream: Stream) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(stream.chunks):
        if number:
            await asyncio.sleep(stream.pause)
        yield chunk
    if stream.breaks:
        raise Broken("the stream failed half-way")


# --- Django REST framework


class StrictInteger(serializers.IntegerField):
    """Not a number in a string."""

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Amount(serializers.Serializer[Any]):
    amount = StrictInteger(min_value=1)


def _validated(service: Service, route: Route) -> View:
    @api_view(["POST"])
    @idempotent
    def validated(request: Request) -> HttpResponseBase:
        Amount(data=request.data).is_valid(raise_exception=True)
        return _serve(service, route, _call(request._request, {}))

    return validated


def respond_422(error: Exception, context: dict[str, Any]) -> Response | None:
    """What did not pass validation is 422 here, and not Django REST framework's 400."""
    response = exception_handler(error, context)
    if response is not None and isinstance(error, ValidationError):
        response.status_code = 422
    return response
