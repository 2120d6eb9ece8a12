"""What the tests of the published specification share: the document under some rules, in each form."""

import json
from collections.abc import Iterable
from typing import Any

from retrysafe._core.model import Header, Response
from retrysafe._http import publish
from retrysafe._http.routes import Protected, Published
from retrysafe.policy import Rules
from tests.core.values import a_request

HOST = (b"host", b"shop.test")


def in_force(rules: Rules, routes: Iterable[Protected] = (), **rest: Any) -> Published:
    """A service whose routes are covered everywhere, unless it is said otherwise."""
    return Published(rules, rest.pop("paths", None), tuple(routes), **rest)


def get(published: Published | Rules, *headers: Header, method: str = "GET", **rest: Any) -> Response:
    if isinstance(published, Rules):
        published = in_force(published)
    fields = headers if b"host" in dict(headers) else (HOST, *headers)
    return publish.respond(a_request(*fields, method=method, path="/idempotency", **rest), published)


def document(published: Published | Rules, *headers: Header, **rest: Any) -> Any:
    response = get(published, (b"accept", b"application/json"), *headers, **rest)
    assert dict(response.headers)[b"content-type"] == b"application/json"
    return json.loads(response.body)


def page(published: Published | Rules, *headers: Header, **rest: Any) -> str:
    response = get(published, (b"accept", b"text/html"), *headers, **rest)
    assert dict(response.headers)[b"content-type"] == b"text/html; charset=utf-8"
    return response.body.decode()


def markdown(published: Published | Rules, *headers: Header, **rest: Any) -> str:
    response = get(published, (b"accept", b"text/markdown"), *headers, **rest)
    assert dict(response.headers)[b"content-type"] == b"text/markdown; charset=utf-8"
    return response.body.decode()
