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
            # Django's own factory for tests has text there.
            found.query if isinstance(found.query, bytes) else str(found.query).encode(),
            found.headers,
            http.scheme or "http",
            native=http,
            root=found.root,
            fields=found.fields,
        )

    @property
    def principal(self) -> object:
        """Whom authentication has found, by a middleware or, for an API, by its classes."""
        if self._principal is not None:
            return self._principal
        return user_of(self.native, getattr(self.native, "user", None))

    def found_user(self, user: object) -> None:
        """It was looked up already, without blocking an event loop."""
        self._principal = user

    @property
    def arguments(self) -> Mapping[str, object] | None:
        found: Mapping[str, object] | None = vars(self.native).get(ARGUMENTS)
        return found


def user_of(http: object, user: object) -> object:
    """The user of a request; where no middleware has found one, the one that a class of ninja's has."""
    if getattr(user, "is_authenticated", False):
        return user
    found: object = getattr(http, "auth", None)
    return found if getattr(found, "is_authenticated", False) else user


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


class FinalResponse(HttpResponse):
    """Bytes of ours, to which the framework of a view has nothing to add."""


def new_response(found: model.Response) -> HttpResponse:
    """A replay or a problem, as middlewares get it."""
    headers = {_as_written(name): value for name, value in _fields(found.headers).items()}
    response = FinalResponse(found.body, status=found.status, headers=headers)
    if "Content-Type" not in headers:
        del response.headers["Content-Type"]  # Django's own idea of it
    return response


def set_headers(response: HttpResponseBase, headers: model.Headers) -> None:
    """Have a response say this and nothing else; its cookies stay."""
    wanted, own = _fields(headers), response.headers
    for given in [given for given in own if given.lower() not in wanted]:
        del own[given]
    for name, value in wanted.items():
        if own.get(name) != value:
            own[_as_written(name)] = value


def _fields(headers: model.Headers) -> dict[str, str]:
    """By their names in small letters, without cookies.

    Django's responses have a header once, so several fields of a name become one (RFC 9110, section 5.3).
    """
    found: dict[str, str] = {}
    for sent, content in headers:
        if sent != b"set-cookie":
            name, value = sent.decode("ascii"), content.decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


@lru_cache(maxsize=256)  # most responses have the same few
def _as_written(name: str) -> str:
    """`Idempotent-Replayed`: fields have no case, and people read them so."""
    return "-".join(part[:1].upper() + part[1:] for part in name.split("-"))
