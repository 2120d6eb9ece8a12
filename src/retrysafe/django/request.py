"""Django's request and response as the engine knows them."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from retrysafe._core import model
from retrysafe.wsgi.environ import GUARDED, translate, variable

ARGUMENTS = "_retrysafe_arguments"
"""Where a decorator leaves what its view is called with."""


class Request(model.Request):
    """The head of a request, inside of all middlewares, where it is known who asks."""

    __slots__ = ()

    def __init__(self, found: model.Request, http: HttpRequest) -> None:
        super().__init__(
            found.method,
            found.path,
            found.query,
            found.headers,
            http.scheme or "http",
            native=http,
            root=found.root,
            fields=found.fields,
        )

    @property
    def principal(self) -> object:
        """Whom authentication has found, by a middleware or, for an API, by its classes."""
        return self._principal if self._principal is not None else getattr(self.native, "user", None)

    def found_user(self, user: object) -> None:
        """It was looked up already, without blocking an event loop."""
        self._principal = user

    @property
    def arguments(self) -> Mapping[str, object] | None:
        found: Mapping[str, object] | None = vars(self.native).get(ARGUMENTS)  # type: ignore[call-overload]  # an object
        return found


def read(http: HttpRequest) -> Request:
    """What a client has sent, from whichever server."""
    own: Any = http
    if hasattr(own, "scope"):
        from retrysafe.asgi.exchange import AsgiRequest  # imports asyncio, which is there under ASGI

        return Request(AsgiRequest(own.scope, dict(own.scope["headers"])), http)
    return Request(translate(own.META), http)


def is_guarded_outside(http: HttpRequest) -> bool:
    """Whether a middleware around Django has claimed the key already."""
    own: Any = http
    return "retrysafe" in own.scope if hasattr(own, "scope") else GUARDED in own.META


def has_header(http: HttpRequest, name: bytes) -> bool:
    return _variable(name) in http.META


@lru_cache(maxsize=64)  # a project knows a few
def _variable(name: bytes) -> str:
    return variable(name)


_ENCODINGS = "HTTP_ACCEPT_ENCODING"


def withhold_encodings(http: HttpRequest) -> str | None:
    """Have nothing inside compress what is to be stored: it is sent to clients with other wishes, too."""
    found: str | None = http.META.pop(_ENCODINGS, None)
    _forget_headers(http)
    return found


def give_back_encodings(http: HttpRequest, withheld: str | None) -> None:
    """What stands outside may compress each response for its own client."""
    if withheld is not None:
        http.META[_ENCODINGS] = withheld
        _forget_headers(http)


def _forget_headers(http: HttpRequest) -> None:
    # `request.headers` is made of META once.
    vars(http).pop("headers", None)


def headers_of(response: HttpResponseBase) -> Iterator[tuple[bytes, bytes]]:
    """All that Django would send, cookies included."""
    for name, value in response.items():
        yield name.encode("ascii"), value.encode("latin-1")
    for cookie in response.cookies.values():
        yield b"set-cookie", cookie.output(header="").strip().encode("latin-1")


def new_response(found: model.Response) -> HttpResponse:
    """A replay or a problem, as middlewares get it."""
    response = HttpResponse(found.body, status=found.status)
    del response.headers["Content-Type"]
    set_headers(response, found.headers)
    return response


def set_headers(response: HttpResponseBase, headers: model.Headers) -> None:
    """Have a response say this and nothing else; its cookies stay.

    Django's responses have a header once, so several fields of a name become one (RFC 9110, section 5.3).
    """
    wanted: dict[bytes, bytes] = {}
    for name, value in headers:
        if name != b"set-cookie":
            wanted[name] = wanted[name] + b", " + value if name in wanted else value
    for given in list(response.headers):
        if given.lower().encode("ascii") not in wanted:
            del response.headers[given]
    for name, value in wanted.items():
        text = value.decode("latin-1")
        if response.headers.get(found := name.decode("ascii")) != text:
            response.headers[_as_written(found)] = text


def _as_written(name: str) -> str:
    """`Idempotent-Replayed`: fields have no case, and people read them so."""
    return "-".join(part[:1].upper() + part[1:] for part in name.split("-"))
