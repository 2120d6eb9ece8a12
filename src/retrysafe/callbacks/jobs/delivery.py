"""`deliver` and `deliver_pending`, blocking and awaiting: two drivers of the same flow, over httpx."""

import asyncio
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from os import PathLike
from time import monotonic, sleep
from typing import NamedTuple, TypedDict, TypeVar, Unpack

import httpx
from pydantic import BaseModel
from pydantic.networks import AnyUrl

from retrysafe._core.times import Duration, seconds
from retrysafe.callbacks.jobs.backoff import BackOff
from retrysafe.callbacks.jobs.deadline import Deadline
from retrysafe.callbacks.jobs.flow import (
    Delivered,
    Flow,
    NoResponse,
    Pause,
    Post,
    Reply,
    Response,
    Terms,
    Work,
    delivery,
)
from retrysafe.callbacks.jobs.folder import Folder
from retrysafe.callbacks.jobs.pending import PendingCallback, deliver_files
from retrysafe.callbacks.jobs.request import HORIZON, make_request
from retrysafe.errors import ConfigurationError

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds.  A service that processes a callback before it acknowledges it reads results and writes rows,
which takes a few; where it takes longer, the next attempt finds it in progress, and no harm is done."""

_PHASES = 4
"""An attempt ends after so many times its timeout, whatever arrives meanwhile: to connect, to agree on TLS,
to send and to be responded to may each take as long as that."""

_LONGEST_TIMEOUT = 86400.0
"""Seconds.  No proxy keeps a request for so long; what says more is a slip of the finger."""

_LONGEST_RESPONSE = 64 * 1024
"""Bytes that are read of a response.  An acknowledgement has three fields; an error page is not of use."""


class AttemptOptions(TypedDict, total=False):
    """What belongs to the process that delivers, and is never stored."""

    headers: Mapping[str, str]
    """For each attempt, such as `Authorization`.  For a token that expires, pass a `client` with `auth`."""
    secret: str | bytes | None
    """Sign each attempt as Standard Webhooks says; text that begins with `whsec_` is base64."""
    timeout: Duration
    """For connecting, for sending and for each read of one attempt: 30 s.  An attempt ends after four times
    that."""
    back_off: BackOff
    """How long the pauses are: up to 1 s at first, doubling, up to 5 min."""


class DeliveryOptions(AttemptOptions, total=False):
    callback_id: str | None
    """For bytes, and for models and mappings that do not have it themselves."""
    correlation_id: str | None
    """The same for the header `X-Correlation-Id`."""
    horizon: Duration
    """How long attempts are made: 72 h, less than the 30 days for which receivers store receipts."""
    folder: str | PathLike[str] | None
    """Where the request is stored until it is acknowledged, so that a restart continues."""


class NotDelivered(NamedTuple):
    """There was nothing to do."""

    reason: str


def deliver(
    callback: BaseModel | Mapping[str, object] | bytes,
    *,
    url: str | AnyUrl | None,
    client: httpx.Client | None = None,
    **options: Unpack[DeliveryOptions],
) -> Delivered | NotDelivered:
    """Send a callback until it is acknowledged.  Blocks for as long as that takes, at most for its horizon.

    Raises `DeliveryRefused` if the receiver says that another attempt is of no use, and `DeliveryFailed` at
    the end of the horizon.
    """
    if url is None:
        return _NO_URL
    flow, timeout = _delivery(callback, url, **options)
    return _run(flow, client, timeout)


async def deliver_async(
    callback: BaseModel | Mapping[str, object] | bytes,
    *,
    url: str | AnyUrl | None,
    client: httpx.AsyncClient | None = None,
    **options: Unpack[DeliveryOptions],
) -> Delivered | NotDelivered:
    """The same without blocking the event loop.  If it is cancelled, what is stored stays in the folder."""
    if url is None:
        return _NO_URL
    flow, timeout = _delivery(callback, url, **options)
    return await _run_async(flow, client, timeout)


def deliver_pending(
    folder: str | PathLike[str],
    *,
    patience: Duration | None = None,
    again: bool = False,
    client: httpx.Client | None = None,
    **options: Unpack[AttemptOptions],
) -> list[PendingCallback]:
    """Deliver what earlier processes have left in a folder, each until its own horizon ends.

    With `patience`, no attempt is planned for later than that; each callback has one at least, and what is
    not acknowledged stays.  What another process is delivering is left to it.  `again` begins anew with those
    that were refused or have expired.
    """
    flow, timeout = _pending(folder, patience, again, **options)
    return _run(flow, client, timeout)


async def deliver_pending_async(
    folder: str | PathLike[str],
    *,
    patience: Duration | None = None,
    again: bool = False,
    client: httpx.AsyncClient | None = None,
    **options: Unpack[AttemptOptions],
) -> list[PendingCallback]:
    """The same without blocking the event loop."""
    flow, timeout = _pending(folder, patience, again, **options)
    return await _run_async(flow, client, timeout)


_NO_URL = NotDelivered("the launch gave no callback_url")


def _delivery(
    callback: BaseModel | Mapping[str, object] | bytes,
    url: str | AnyUrl,
    *,
    callback_id: str | None = None,
    correlation_id: str | None = None,
    horizon: Duration = HORIZON,
    folder: str | PathLike[str] | None = None,
    **options: Unpack[AttemptOptions],
) -> tuple[Flow[Delivered], float]:
    request = make_request(
        callback, url, callback_id=callback_id, correlation_id=correlation_id, horizon=horizon
    )
    terms, timeout = _attempts(**options)
    terms.check_signing(request.message_id)
    return delivery(request, terms, None if folder is None else Folder(folder)), timeout


def _pending(
    folder: str | PathLike[str], patience: Duration | None, again: bool, **options: Unpack[AttemptOptions]
) -> tuple[Flow[list[PendingCallback]], float]:
    terms, timeout = _attempts(**options)
    within = None if patience is None else _seconds("patience", patience)
    return deliver_files(Folder(folder), terms, within, again=again), timeout


def _attempts(
    *,
    headers: Mapping[str, str] | None = None,
    secret: str | bytes | None = None,
    timeout: Duration = TIMEOUT,
    back_off: BackOff | None = None,
) -> tuple[Terms, float]:
    found = _seconds("timeout", timeout)
    if found == 0:
        raise ConfigurationError("timeout must be greater than 0, got 0")
    if found > _LONGEST_TIMEOUT:
        raise ConfigurationError(f"timeout must be at most a day, got {found:g} s")
    terms = Terms(dict(headers or {}), secret, back_off or BackOff())
    terms.check()
    terms.check_signing()
    return terms, found


def _seconds(name: str, duration: Duration) -> float:
    try:
        found = seconds(duration)
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    if found < 0:
        raise ConfigurationError(f"{name} must not be negative, got {found:g}")
    return found


# --- blocking


def _run(flow: Flow[T], client: httpx.Client | None, limit: float) -> T:
    own: httpx.Client | None = None
    deadline = Deadline()
    reply: Reply = None
    try:
        while True:
            match flow.send(reply):
                case Post() as post:
                    if client is None:
                        # Not before: what is to be stored is stored by now, should this be misconfigured.
                        client = own = httpx.Client(cookies=_no_cookies())
                    reply = _post(client, post, limit, deadline)
                case Pause(pause):
                    sleep(pause)
                    reply = None
                case Work() as work:
                    work.run()
                    reply = None
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
        if own is not None:
            own.close()


def _post(client: httpx.Client, post: Post, limit: float, deadline: Deadline) -> Response | NoResponse:
    received: Response | None = None
    until = monotonic() + limit
    try:
        with (
            deadline.within(_PHASES * limit),
            client.stream(
                "POST",
                post.request.url,
                content=post.request.body,
                headers=post.headers,
                timeout=limit,
                follow_redirects=False,
                extensions={"trace": deadline.trace},
            ) as response,
        ):
            received = _received(response)
            deadline.watch(response.extensions.get("network_stream"))
            # As it was sent: what is compressed, against our wish, may be of any size, or never give a byte.
            # A body that a hook, or a transport of a test, has read is there in full.
            for chunk in response.iter_bytes() if response.is_stream_consumed else response.iter_raw():
                received = received._replace(body=received.body + chunk)
                if len(received.body) >= _LONGEST_RESPONSE or monotonic() >= until:
                    break
    except _FAILURES as error:
        if deadline.passed:
            return received or _endless(limit)
        return _cut_off(received, error, post)
    return received


# --- awaiting


async def _run_async(flow: Flow[T], client: httpx.AsyncClient | None, limit: float) -> T:
    own: httpx.AsyncClient | None = None
    reply: Reply = None
    try:
        while True:
            match flow.send(reply):
                case Post() as post:
                    if client is None:
                        client = own = httpx.AsyncClient(cookies=_no_cookies())
                    reply = await _post_async(client, post, limit)
                case Pause(pause):
                    await asyncio.sleep(pause)
                    reply = None
                case Work() as work:
                    await _in_thread(work)
                    reply = None
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
        if own is not None:
            await own.aclose()


async def _post_async(client: httpx.AsyncClient, post: Post, limit: float) -> Response | NoResponse:
    received: Response | None = None
    until = monotonic() + limit
    try:
        async with (
            asyncio.timeout(_PHASES * limit),
            client.stream(
                "POST",
                post.request.url,
                content=post.request.body,
                headers=post.headers,
                timeout=limit,
                follow_redirects=False,
            ) as response,
        ):
            received = _received(response)
            async for chunk in (
                response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()
            ):
                received = received._replace(body=received.body + chunk)
                if len(received.body) >= _LONGEST_RESPONSE or monotonic() >= until:
                    break
    except TimeoutError:
        return received or _endless(limit)
    except _FAILURES as error:
        return _cut_off(received, error, post)
    return received


async def _in_thread(work: Work[object]) -> None:
    """A thread cannot be cancelled, so a cancellation waits for it: what it has locked is then known."""
    running = asyncio.ensure_future(asyncio.to_thread(work.run))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    running.result()


def _no_cookies() -> CookieJar:
    """Attempts are alike: what one of them was given does not lead the next to the same broken server, or
    make it longer than a server takes."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


_FAILURES = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)
"""What an attempt may fail with.  The last two are a redirect's `Location`, which httpx reads although it is
not to follow it, and a name that cannot be looked up."""


def _received(response: httpx.Response) -> Response:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Response(response.status_code, headers, b"")


def _cut_off(
    received: Response | None, error: httpx.HTTPError | httpx.InvalidURL | UnicodeError, post: Post
) -> Response | NoResponse:
    """A status that has arrived is valid, even if the body after it has not."""
    if received is None and isinstance(error, httpx.HTTPStatusError):
        # A hook of the client's that raises it, or its `auth=`, whose own service may be the one that failed.
        failed = error.response
        if failed.request.url == httpx.URL(post.request.url):
            return _received(failed)
        return NoResponse(f"HTTPStatusError: {failed.status_code} from {failed.request.url.host}")
    return received or NoResponse(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _endless(limit: float) -> NoResponse:
    return NoResponse(f"no response within {_PHASES * limit:g} s, although something was received")
