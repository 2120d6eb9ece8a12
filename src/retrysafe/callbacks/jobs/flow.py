"""How one callback is delivered, as a generator of steps: a driver performs each, and sends in its result.

Nothing in here waits or does I/O, so it is the same for blocking and for awaiting callers.  See
`_core/protocol.py` for the same idea on the other side.
"""

import json
import logging
import re
from collections.abc import Callable, Generator, Mapping
from functools import cache
from importlib.metadata import version
from time import monotonic, time
from typing import Generic, NamedTuple, TypeVar, cast

import httpx

from retrysafe.callbacks.jobs.backoff import BackOff, retry_after
from retrysafe.callbacks.jobs.errors import DeliveryError, DeliveryFailed, DeliveryRefused
from retrysafe.callbacks.jobs.folder import EXPIRED, REFUSED, Folder, Held
from retrysafe.callbacks.jobs.request import CallbackRequest, is_sendable
from retrysafe.errors import ConfigurationError

log = logging.getLogger("retrysafe.callbacks.jobs")

T = TypeVar("T")

OTHERS_PAUSE = 0.5
"""Seconds between two looks at a callback that another process is delivering.  That process holds a lock, and
a lock that is free is seen soon enough: it has died, or is done."""

_SHOWN = 200
"""Characters of a response that are worth a place in a message."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Of a header (RFC 9110 section 5.6.2)."""

# The framing of the request is ours, or attempts would differ from each other or not arrive.
_RESERVED = frozenset({"content-length", "transfer-encoding", "connection", "host"})


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes
    """The beginning of it."""


class NoResponse(NamedTuple):
    reason: str


class Post(NamedTuple):
    """Send this request, and give a `Response` or `NoResponse`."""

    request: CallbackRequest
    headers: httpx.Headers


class Pause(NamedTuple):
    seconds: float


class Work(Generic[T]):
    """Something that blocks for a moment, such as writing a file: on an event loop, for a thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._error: DeliveryError | None = None
        self._value: T | None = None

    def run(self) -> None:
        try:
            self._value = self._work()
        except DeliveryError as error:
            self._error = error

    def discard(self) -> None:
        if isinstance(self._value, Held):
            self._value.release()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


Step = Post | Pause | Work[object]
Reply = Response | NoResponse | None
Flow = Generator[Step, Reply, T]


def apart(work: Callable[[], T]) -> Flow[T]:
    """Have it done, and return or raise what it does."""
    step = Work(work)
    try:
        yield cast("Work[object]", step)
    except GeneratorExit:  # cancelled while a thread did it: its result is for no one
        step.discard()
        raise
    return step.result()


class Delivered(NamedTuple):
    """The receiver acknowledged the callback with a 2xx."""

    status: int
    attempts: int
    """Of this process."""
    duplicate: bool
    """The receiver said `idempotent_replayed: true`: it had processed an earlier delivery."""
    response: Mapping[str, object]
    """The body of the acknowledgement if it is a JSON object, and empty if not, or if it is compressed, which
    was not asked for."""


class Terms(NamedTuple):
    """What belongs to the process that delivers, and is not stored with a callback."""

    headers: Mapping[str, str]
    secret: str | bytes | None
    back_off: BackOff

    def headers_of(self, request: CallbackRequest, now: float) -> httpx.Headers:
        """Those of one attempt: a signature covers the time at which it was made."""
        headers = httpx.Headers(
            {
                "Content-Type": "application/json",
                "User-Agent": f"retrysafe/{_version()}",
                # A short response is not worth a decompression, which would also have to be limited.
                "Accept-Encoding": "identity",
            }
        )
        if request.correlation_id is not None and is_sendable(request.correlation_id):
            headers["X-Correlation-Id"] = request.correlation_id
        headers.update(self.headers)
        if self.secret is not None:
            from retrysafe.callbacks.webhooks import sign

            headers.update(sign(self.secret, request.message_id, int(now), request.body))
        return headers

    def check(self) -> None:
        """Raise now, and not after the first attempt, for what could not be sent."""
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigurationError(f"headers must be text, got {name!r} with {type(value).__name__}")
            if name.lower() in _RESERVED:
                raise ConfigurationError(f"headers may not contain {name}: it is set for each attempt")
            if not _NAME.fullmatch(name) or (value and not is_sendable(value)):
                raise ConfigurationError(
                    f"the header {name!r} cannot be sent: expected a name and visible ASCII, with no space "
                    "at the ends"
                )

    def check_signing(self, message_id: str = "0") -> None:
        """Raise for a secret, or for an id, that cannot be used."""
        if self.secret is not None:
            from retrysafe.callbacks.webhooks import sign

            sign(self.secret, message_id, int(time()), b"")


@cache
def _version() -> str:
    return version("retrysafe")


def attempts(
    request: CallbackRequest, terms: Terms, clock: Callable[[], float] = monotonic
) -> Flow[Delivered]:
    """Send it until it is acknowledged or refused, or the horizon ends; the last attempt is at its end."""
    remaining = request.remaining(time())
    if remaining <= 0:
        raise DeliveryFailed(
            f"{request.name} was not delivered to {request.shown_url} within its horizon of "
            f"{request.horizon:g} s, which ended before this process began",
            status=None,
            attempts=0,
        )
    until = clock() + remaining
    number, last = 0, False
    while True:
        number += 1
        reply = yield Post(request, terms.headers_of(request, time()))
        assert reply is not None
        asked = 0.0
        if isinstance(reply, Response):
            if 200 <= reply.status < 300:
                return _delivered(reply, number)
            if _is_final(reply):
                raise DeliveryRefused(
                    f"{request.name} was refused by {request.shown_url}, and another attempt is of no use: "
                    f"{_describe(reply)}",
                    status=reply.status,
                    attempts=number,
                )
            asked = retry_after(reply.headers, time())
        left = until - clock()
        if last or left <= 0:
            raise DeliveryFailed(
                f"{request.name} was not delivered to {request.shown_url} within its horizon of "
                f"{request.horizon:g} s: {_describe(reply)}",
                status=reply.status if isinstance(reply, Response) else None,
                attempts=number,
            )
        pause = terms.back_off.pause(number, at_least=asked)
        last = pause >= left
        pause = min(pause, left)
        log.warning(
            "%s was not acknowledged at attempt %d, the next one is in %.1f s: %s",
            request.name,
            number,
            pause,
            _describe(reply),
        )
        yield Pause(pause)


def deliver_held(held: Held, terms: Terms) -> Flow[Delivered]:
    """The same for one that is stored.  Its file stays until it is known what became of it."""
    try:
        try:
            delivered = yield from attempts(held.request, terms)
        except DeliveryRefused as error:
            error.file = yield from apart(lambda: held.set_aside(REFUSED))
            raise
        except DeliveryFailed as error:
            error.file = yield from apart(lambda: held.set_aside(EXPIRED))
            raise
        yield from apart(held.remove)
        return delivered
    finally:
        held.release()


def delivery(request: CallbackRequest, terms: Terms, folder: Folder | None) -> Flow[Delivered]:
    """Store it first, if there is a folder, or continue with what an earlier process has stored there."""
    if folder is None:
        return (yield from attempts(request, terms))
    until = monotonic() + request.horizon
    told = False
    while (held := (yield from apart(lambda: folder.hold(request)))) is None:
        if monotonic() >= until:
            raise DeliveryFailed(
                f"{request.name} was not delivered within its horizon of {request.horizon:g} s: another "
                f"process holds its file in {folder.path}",
                status=None,
                attempts=0,
            )
        if not told:
            log.warning("%s is being delivered by another process: waiting for it", request.name)
            told = True
        yield Pause(OTHERS_PAUSE)
    return (yield from deliver_held(held, terms))


def _is_final(response: Response) -> bool:
    """410 says that the receiver is gone for good (RFC 9110 section 15.5.11).

    The header is for what a status does not say: 422 for an id that came with another body.
    """
    return response.status == 410 or response.headers.get("x-should-retry", "").strip().lower() == "false"


def _delivered(response: Response, number: int) -> Delivered:
    content = _object(response.body)
    return Delivered(response.status, number, content.get("idempotent_replayed") is True, content)


def _object(body: bytes) -> dict[str, object]:
    try:
        content: object = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}


def _describe(reply: Response | NoResponse) -> str:
    """For a message and a log: what a receiver wrote is quoted, so that it is one line."""
    if isinstance(reply, NoResponse):
        return " ".join(reply.reason.split())[:_SHOWN]  # an error may quote all that was sent
    if 300 <= reply.status < 400:
        return f"{reply.status}, a redirect, which is not followed: give the URL that it leads to"
    said = _object(reply.body)
    for name in ("detail", "title", "error", "message"):
        if isinstance(text := said.get(name), str) and text:
            return f"{reply.status}, {text[:_SHOWN]!r}"
    return str(reply.status)
