"""One adapter for each kind of client: it sends a request and reads status, headers and body of the response.

Kinds are told apart by their methods, and none of the libraries is imported:

| kind | by | in threads |
|---|---|---|
| `httpx.Client`, Starlette's and FastAPI's `TestClient`, `requests.Session` | `request` | shared |
| Flask's and Werkzeug's test clients | `open` | a copy for each: it has cookies and contexts |
| Django's `Client`, Django REST framework's `APIClient` | `generic` | the same; closes the connections |
| `httpx.AsyncClient` | `request`, a coroutine function | one event loop, no threads |
| Django's `AsyncClient` | `generic`, and `request` a coroutine function | the same |

Redirects are not followed: the response under test is the one to the request that carried the key.
"""

import copy
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple, Protocol, TypeVar, cast

from retrysafe._core.model import Headers
from retrysafe.testing.assertions.request import Request

R_co = TypeVar("R_co", covariant=True)


class HttpClient(Protocol[R_co]):
    """`httpx.Client`, `starlette.testclient.TestClient`, `requests.Session`, and what is like them."""

    @property
    def request(self) -> Callable[..., R_co]: ...


class WerkzeugClient(Protocol[R_co]):
    """`werkzeug.test.Client`, and `app.test_client()` of Flask."""

    @property
    def open(self) -> Callable[..., R_co]: ...


class DjangoClient(Protocol[R_co]):
    """`django.test.Client`."""

    @property
    def generic(self) -> Callable[..., R_co]: ...


class AsyncHttpClient(Protocol[R_co]):
    """`httpx.AsyncClient`, and `django.test.AsyncClient`."""

    @property
    def request(self) -> Callable[..., Awaitable[R_co]]: ...


class Reply(NamedTuple):
    """A response, whichever client received it."""

    status: int
    headers: Headers
    body: bytes
    native: object
    """The client's own."""


class Sender(Protocol):
    """Sends by a client that blocks."""

    def send(self, request: Request) -> Reply: ...

    def worker(self) -> "AbstractContextManager[Sender]":
        """For one thread beside others."""
        ...


class AsyncSender(Protocol):
    """Sends by a client that is awaited."""

    async def send(self, request: Request) -> Reply: ...


def sender(client: object) -> Sender:
    """The adapter of a client that blocks."""
    _refuse_applications(client)
    if _is_async(client):
        raise TypeError(
            f"{_named(client)} is asynchronous: use `await assert_idempotent_async(client, ...)`, with an "
            "httpx.AsyncClient or a django.test.AsyncClient"
        )
    _refuse_factories(client)
    if _has(client, "generic"):
        return _Django(cast("DjangoClient[_DjangoResponse]", client))
    if _has(client, "open") and hasattr(client, "application"):
        return _Werkzeug(cast("WerkzeugClient[_WerkzeugResponse]", client))
    if _has(client, "request"):
        return _Http(cast("HttpClient[_HttpResponse]", client))
    raise TypeError(
        f"{_named(client)} is not a client that assert_idempotent knows: expected Starlette's or FastAPI's "
        "TestClient, an httpx.Client, a requests.Session, Flask's app.test_client(), a werkzeug.test.Client "
        "or a django.test.Client"
    )


def async_sender(client: object) -> AsyncSender:
    """The adapter of a client that is awaited."""
    _refuse_applications(client)
    _refuse_factories(client)
    if _has(client, "generic") and _is_async(client):
        return _AsyncDjango(cast("_AsyncDjangoClient", client))
    if _has(client, "request") and _is_async(client):
        return _AsyncHttp(cast("AsyncHttpClient[_HttpResponse]", client))
    blocks = not _is_async(client) and any(_has(client, name) for name in ("request", "open", "generic"))
    raise TypeError(
        f"{_named(client)} is not a client that assert_idempotent_async knows: expected a "
        "django.test.AsyncClient, or an httpx.AsyncClient such as "
        'httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")'
        + ("; it blocks: call assert_idempotent(client, ...)" if blocks else "")
    )


def _has(client: object, method: str) -> bool:
    return callable(getattr(client, method, None))


def _is_async(client: object) -> bool:
    return any(inspect.iscoroutinefunction(getattr(client, name, None)) for name in ("request", "open"))


def _refuse_applications(client: object) -> None:
    if callable(client):
        raise TypeError(
            f"{_named(client)} is called itself, as applications and classes are: expected a client of the "
            "application, such as TestClient(app), app.test_client() or django.test.Client()"
        )


def _refuse_factories(client: object) -> None:
    """What has the methods of a client, and goes around the project."""
    if _has(client, "generic") and not hasattr(client, "handler"):
        raise TypeError(
            f"{_named(client)} makes requests and sends none: expected a client, such as "
            "django.test.Client() or rest_framework.test.APIClient()"
        )
    if any(kind.__module__.startswith("ninja.testing") for kind in type(client).__mro__):
        raise TypeError(
            f"{_named(client)} calls functions with a request of its own, past Django's middlewares: "
            "expected django.test.Client(), with the path of the project's URLs"
        )


def _named(client: object) -> str:
    kind = client if isinstance(client, type) else type(client)
    return f"{kind.__module__}.{kind.__qualname__}"


# --- httpx, Starlette, FastAPI, requests


class _Values(Protocol):
    def items(self) -> Iterable[tuple[str, str]]: ...


class _HttpResponse(Protocol):
    status_code: int
    headers: _Values
    content: bytes


def _arguments(function: Callable[..., object], request: Request) -> dict[str, object]:
    """How this function is told about headers, body and redirects."""
    takes = inspect.signature(function).parameters
    arguments: dict[str, object] = {"headers": dict(request.headers)}
    if request.body:
        arguments["content" if "content" in takes else "data"] = request.body
    if "follow_redirects" in takes:
        arguments["follow_redirects"] = False
    elif "content" not in takes:
        arguments["allow_redirects"] = False
    return arguments


def _read(response: _HttpResponse) -> Reply:
    # Of httpx: headers that occur several times, one by one.
    pairs = getattr(response.headers, "multi_items", response.headers.items)()
    return Reply(response.status_code, _encoded(pairs), response.content, response)


def _encoded(pairs: Iterable[tuple[str, str]]) -> Headers:
    # A client that decoded a value as UTF-8 may have characters that Latin-1 has not.
    return tuple(
        (name.lower().encode("latin-1", "replace"), value.encode("utf-8", "surrogateescape"))
        for name, value in pairs
    )


class _Http:
    def __init__(self, client: HttpClient[_HttpResponse]) -> None:
        self._client = client

    def send(self, request: Request) -> Reply:
        function = self._client.request
        return _read(function(request.method, request.target, **_arguments(function, request)))

    def worker(self) -> AbstractContextManager[Sender]:
        # Connections and cookies of these clients are behind locks, and each request of a `TestClient` is a
        # task of its own.
        return nullcontext(self)


class _AsyncHttp:
    def __init__(self, client: AsyncHttpClient[_HttpResponse]) -> None:
        self._client = client

    async def send(self, request: Request) -> Reply:
        function = self._client.request
        return _read(await function(request.method, request.target, **_arguments(function, request)))


# --- Flask, Werkzeug


class _WerkzeugResponse(Protocol):
    status_code: int
    headers: _Values

    def get_data(self) -> bytes: ...


class _Werkzeug:
    def __init__(self, client: WerkzeugClient[_WerkzeugResponse]) -> None:
        self._client = client

    def send(self, request: Request) -> Reply:
        response = self._client.open(
            request.target,
            method=request.method,
            headers=dict(request.headers),
            data=request.body or None,
            buffered=True,  # the application has come to its end when this returns
        )
        return Reply(response.status_code, _encoded(response.headers.items()), response.get_data(), response)

    def worker(self) -> AbstractContextManager[Sender]:
        return nullcontext(_Werkzeug(_copied(self._client)))


# --- Django


class _DjangoResponse(Protocol):
    status_code: int

    def items(self) -> Iterable[tuple[str, str]]: ...
    def getvalue(self) -> bytes: ...


class _AsyncDjangoResponse(_DjangoResponse, Protocol):
    streaming: bool
    is_async: bool
    streaming_content: AsyncIterable[bytes]


class _AsyncDjangoClient(Protocol):
    def generic(
        self, method: str, path: str, data: bytes, content_type: str, *, headers: Mapping[str, str]
    ) -> Awaitable[_AsyncDjangoResponse]: ...


def _for_django(request: Request) -> tuple[str, Mapping[str, str]]:
    """The media type, which has an argument of its own, and the other headers."""
    headers = dict(request.headers)
    media_type = next((headers.pop(name) for name in list(headers) if name.lower() == "content-type"), "")
    return media_type, headers


class _Django:
    def __init__(self, client: DjangoClient[_DjangoResponse]) -> None:
        self._client = client

    def send(self, request: Request) -> Reply:
        media_type, headers = _for_django(request)
        self._refuse_replaced(headers)
        response = self._client.generic(
            request.method, request.target, request.body, media_type, headers=headers
        )
        return Reply(response.status_code, _encoded(response.items()), response.getvalue(), response)

    def _refuse_replaced(self, headers: Mapping[str, str]) -> None:
        """REST framework's `APIClient` sends its own credentials instead of those of a request."""
        credentials: Mapping[str, object] = getattr(self._client, "_credentials", {})
        for name in headers:
            if f"HTTP_{name.upper().replace('-', '_')}" in credentials:
                raise TypeError(
                    f"the header {name} is given, and credentials() of the client, which sends its own "
                    "instead: leave one of them out; for another user pass a client of theirs, "
                    "other=APIClient()"
                )

    @contextmanager
    def worker(self) -> Generator[Sender]:
        try:
            yield _Django(_copied(self._client))
        finally:
            # Those of this thread, which the test client leaves open: a test database in use is not dropped.
            if (connections := _django_connections()) is not None:
                connections.close_all()


class _AsyncDjango:
    def __init__(self, client: _AsyncDjangoClient) -> None:
        self._client = client

    async def send(self, request: Request) -> Reply:
        media_type, headers = _for_django(request)
        response = await self._client.generic(
            request.method, request.target, request.body, media_type, headers=headers
        )
        if response.streaming and response.is_async:
            body = b"".join([piece async for piece in response.streaming_content])
        else:
            body = response.getvalue()
        return Reply(response.status_code, _encoded(response.items()), body, response)


class _Connections(Protocol):
    def all(self, initialized_only: bool = False) -> Iterable[object]: ...
    def close_all(self) -> None: ...


def _django_connections() -> _Connections | None:
    """The database connections of this thread, if there is a project of Django's."""
    settings = getattr(sys.modules.get("django.conf"), "settings", None)
    if not getattr(settings, "configured", False):
        return None
    return cast("_Connections | None", getattr(sys.modules.get("django.db"), "connections", None))


def check_threads() -> None:
    """Refuse to send from threads where Django's test database is not for several at once."""
    connections = _django_connections()
    opened = () if connections is None else tuple(connections.all(initialized_only=True))
    if any(getattr(one, "in_atomic_block", False) for one in opened):
        raise RuntimeError(
            "this test runs inside a transaction of Django's (django.test.TestCase, or pytest-django without "
            "transaction=True), and concurrent requests in other threads do not see what it has written: use "
            "TransactionTestCase or @pytest.mark.django_db(transaction=True), or pass concurrent=0"
        )
    for one in opened:
        in_memory: Callable[[], bool] | None = getattr(one, "is_in_memory_db", None)
        if in_memory is not None and in_memory():
            # Its tables are locked at once, and not waited for: what is refused is a matter of chance.
            alias: str = getattr(one, "alias", "default")
            raise RuntimeError(
                f"the test database {alias!r} is SQLite in memory, where concurrent requests in other "
                'threads fail with "database table is locked": give it a file, as in '
                f'DATABASES["{alias}"]["TEST"] = '
                '{"NAME": BASE_DIR / "test.sqlite3"}, or pass concurrent=0'
            )


Copied = TypeVar("Copied")


def _copied(client: Copied) -> Copied:
    """A client with the same application, cookies and settings, and with what changes of its own.

    A copy and not a new one: a client that was made with arguments, or logged in, stays so.
    """
    twin = copy.copy(client)
    for name, value in vars(client).items():
        if isinstance(value, dict | list):
            setattr(twin, name, copy.copy(cast("object", value)))
        elif isinstance(value, ExitStack):
            setattr(twin, name, ExitStack())  # the contexts in it belong to the thread that entered them
    if hasattr(twin, "preserve_context"):
        setattr(twin, "preserve_context", False)  # noqa: B010 - Flask's; `with client:` is the test's own
    return twin
