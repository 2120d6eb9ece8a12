"""Requests to the routes of an examined application, to see whether what was said of them is true."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.testclient import TestClient
from werkzeug.test import Client

from retrysafe import Guard, scopes
from retrysafe.coverage import Coverage, Route

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"
TENANT = {"X-Tenant": "7"}


def a_guard(**options: Any) -> Guard:
    options.setdefault("scope", scopes.header("X-Tenant"))
    return Guard("memory:", **options)


class Seen(NamedTuple):
    """What a route did with the same request, sent twice."""

    ran: int
    """How often its handler ran; a handler says so by its response."""
    refused_without_key: bool


def states(found: Coverage) -> dict[str, str]:
    """The state of each route by its name."""
    return {route.name: route.state for route in found.routes}


def concrete(route: Route) -> str:
    """A path that a request to it may have."""
    return re.sub(r"[{<][^}>]*[}>]", "1", route.path).replace("*", "anything")


def send_asgi(app: Any, found: Coverage) -> Iterator[tuple[Route, Seen]]:
    with TestClient(app) as client:
        for number, route in enumerate(found.routes):
            url = f"http://{route.host or 'testserver'}{concrete(route)}"
            keyed = TENANT | {"Idempotency-Key": f"{KEY}-{number}"}
            replies = [client.request(route.method, url, headers=keyed) for _ in range(2)]
            keyless = client.request(route.method, url, headers=TENANT)
            yield route, _seen([(one.status_code, one.text) for one in replies], keyless.status_code)


def send_wsgi(app: Any, found: Coverage) -> Iterator[tuple[Route, Seen]]:
    client = Client(app)
    for number, route in enumerate(found.routes):
        keyed = TENANT | {"Idempotency-Key": f"{KEY}-{number}"}
        replies = [client.open(concrete(route), method=route.method, headers=keyed) for _ in range(2)]
        keyless = client.open(concrete(route), method=route.method, headers=TENANT)
        yield route, _seen([(one.status_code, one.text) for one in replies], keyless.status_code)


def _seen(replies: list[tuple[int, str]], keyless: int) -> Seen:
    # Handlers number their runs: two that are equal are one run and its replay.
    assert {status for status, _ in replies} == {200}, replies
    assert all(re.fullmatch(r'"?run \d+"?', text) for _, text in replies), replies
    return Seen(len({text for _, text in replies}), keyless == 400)


def is_true(route: Route, seen: Seen) -> bool:
    """Whether a route did what its state says."""
    if route.state in ("unprotected", "exempt"):
        return seen == Seen(2, refused_without_key=False)
    return seen == Seen(1, refused_without_key=route.state == "required")
