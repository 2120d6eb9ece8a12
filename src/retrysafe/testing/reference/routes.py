"""Which method of the service stands behind which route."""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe.testing.reference.service import Call, Reply, Service, Stream


class Route(NamedTuple):
    method: str
    path: str
    """At most one segment is `{…}` and matches anything; it becomes `Call.item`."""
    do: Callable[[Service, Call], Reply | Stream]
    waits: bool = False
    """Whether `ms` passes before it does anything."""


ROUTES = (
    Route("POST", "/charges", Service.charge),
    Route("PUT", "/charges/{id}", Service.change),
    Route("PATCH", "/charges/{id}", Service.change),
    Route("DELETE", "/charges/{id}", Service.delete),
    Route("POST", "/slow", Service.created, waits=True),
    Route("POST", "/status/{code}", Service.status),
    Route("POST", "/raise", Service.fail),
    Route("POST", "/crash", Service.crash),
    Route("POST", "/flaky", Service.flaky, waits=True),
    Route("POST", "/validated", Service.validated),
    Route("POST", "/stream", Service.stream),
    Route("POST", "/break", Service.broken_stream),
    Route("POST", "/big", Service.big),
    Route("POST", "/binary", Service.binary),
    Route("POST", "/cookie", Service.cookie),
    Route("POST", "/background", Service.background),
    Route("POST", "/upload", Service.upload),
    Route("POST", "/zipped", Service.zipped),
    Route("POST", "/notdone", Service.not_done),
    Route("POST", "/downstream", Service.downstream),
    Route("POST", "/private", Service.charge),
    Route("GET", "/events", Service.events),
    Route("GET", "/effects", Service.effects),
    Route("GET", "/begun", Service.begun),
)


def find(path: str) -> tuple[dict[str, Route], str]:
    """The routes of a path by method, and what stood in it for `{…}`."""
    segments = path.split("/")
    found: dict[str, Route] = {}
    item = ""
    for route in ROUTES:
        wanted = route.path.split("/")
        if len(wanted) != len(segments):
            continue
        pairs = list(zip(wanted, segments, strict=True))
        if all(name == given or (name.startswith("{") and given) for name, given in pairs):
            found[route.method] = route
            item = next((given for name, given in pairs if name.startswith("{")), "")
    if "GET" in found:
        found["HEAD"] = found["GET"]
    return found, item
