"""Everything that a client can be sent instead of the handler's response: RFC 9457 problems, one entry each.

The catalogue is data: the published specification, the documentation and the tests read it.  `title` is
constant per problem (RFC 9457 section 3.1.3); `detail` explains the occurrence and never contains a key.
What a wire does differently (statuses, texts, an envelope) is a `Presentation`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, cast

from retrysafe._core.model import Headers, Record, Response

Code = Literal[
    "key-missing",
    "key-invalid",
    "principal-required",
    "replay-forbidden",
    "body-too-large",
    "in-flight",
    "outcome-unknown",
    "previously-failed",
    "key-reused",
    "handler-failed",
    "not-done",
    "store-unavailable",
    "store-reset",
    "draining",
    "signature-invalid",
    "payload-invalid",
    "subject-unknown",
]


class Kind(NamedTuple):
    """What is the same for every occurrence of a problem."""

    status: int
    title: str
    retry: bool | None
    """Whether the same request with the same key may be sent again by itself; `None`: not as it is."""
    meaning: str
    """What happened, as far as it is true under any policy."""
    advice: str
    """What to do about it."""


_AFTER_A_WHILE = "Wait as long as Retry-After says, then send the same request again, with the same key."

CATALOGUE: dict[Code, Kind] = {
    "key-missing": Kind(
        400,
        "Idempotency key required",
        None,
        "This request needs a key. Nothing was executed.",
        "Send a key, and the same one with every retry.",
    ),
    "key-invalid": Kind(
        400,
        "Malformed idempotency key",
        None,
        "What was sent is not a key. Nothing was executed.",
        "Correct the key.",
    ),
    "principal-required": Kind(
        400,
        "Owner of the key unknown",
        None,
        "It is not known whose key this is. Nothing was executed.",
        "Authenticate, so that the key has an owner.",
    ),
    "replay-forbidden": Kind(
        403,
        "Replay not allowed",
        None,
        "The stored response exists, but you are no longer allowed to read it.",
        "Find out why; with permission, the same key gets the response.",
    ),
    "body-too-large": Kind(
        413,
        "Request body too large",
        None,
        "The body is larger than a request with a key may have. Nothing was executed.",
        "Send a smaller body.",
    ),
    "in-flight": Kind(
        409,
        "Request in progress",
        True,
        "The first request with this key is still running.",
        _AFTER_A_WHILE,
    ),
    "outcome-unknown": Kind(
        409,
        "Outcome unknown",
        False,
        "The first request was interrupted, and how far it got is not known. It is not executed again.",
        "Check the resource, or ask the operator. Do not use a new key before you know.",
    ),
    "previously-failed": Kind(
        409,
        "Previous request failed",
        False,
        "The first request with this key failed. It is not executed again.",
        "Check the resource, then use a new key to try again.",
    ),
    "key-reused": Kind(
        422,
        "Idempotency key reused for another request",
        False,
        "The key was used for a different request, whose response is still stored for its own retries. "
        "Nothing was executed.",
        "Use a new key for a new request.",
    ),
    "handler-failed": Kind(
        500,
        "Request failed",
        False,
        "The request failed. Unless the response says that it may be retried, what it did is not known.",
        "If the response says that it may be retried, everything was undone, or running it again does no "
        "harm: send the same request again, with the same key. If not, check the resource before you use a "
        "new key.",
    ),
    "not-done": Kind(
        503, "Nothing was done", True, "The request was not carried out, or was undone.", _AFTER_A_WHILE
    ),
    "store-unavailable": Kind(
        503,
        "Idempotency store unavailable",
        True,
        "The key could not be looked up, or its outcome is not known yet.",
        _AFTER_A_WHILE,
    ),
    "store-reset": Kind(
        503,
        "Idempotency store was reset",
        True,
        "The store has lost its records, or is new: a key that looks new may have been used. Nothing was "
        "executed.",
        "Wait until an operator has looked at it, then send the same request again, with the same key.",
    ),
    "draining": Kind(
        503, "Shutting down", True, "The server is shutting down. Nothing was executed.", _AFTER_A_WHILE
    ),
    "signature-invalid": Kind(
        401,
        "Signature not valid",
        None,
        "The delivery is not signed by its sender, or was signed too long ago. Nothing was executed.",
        "Sign exactly the bytes that are sent, with the secret of this endpoint and the time of sending.",
    ),
    "payload-invalid": Kind(
        422,
        "Payload not valid",
        None,
        "The payload is not what this endpoint takes. Nothing was executed.",
        "Correct the payload.",
    ),
    "subject-unknown": Kind(
        404,
        "Unknown run or resource",
        None,
        "The run or resource that the delivery is about does not exist. Nothing was executed.",
        "Send it again once it exists, or not at all.",
    ),
}

OF_CALLBACKS: frozenset[Code] = frozenset({"signature-invalid", "payload-invalid", "subject-unknown"})
"""What only the sender of a callback is told."""

COMMON: tuple[Code, ...] = tuple(code for code in CATALOGUE if code not in OF_CALLBACKS)
"""What the caller of a request or an operation may be told."""


class Previous(NamedTuple):
    """How the first request failed, for `previously-failed`."""

    status: int | None
    """`None` where the stored response was lost."""
    code: Code | None
    """The problem that it was answered with, if it was one of ours and not the application's own response."""
    at: str | None
    """When, by the store's clock: ISO 8601, in UTC."""


class Problem(NamedTuple):
    """A refusal, as a value."""

    code: Code
    detail: str
    retry_after: float = 1.0
    """Seconds; sent only where the catalogue says that a retry makes sense."""
    previous: Previous | None = None
    undone: bool = False
    """Everything it had done was rolled back, so the same request may be sent again after all."""
    first: Record | None = None
    """The record of the key, where there is one: it has the id of the first request."""


class ProblemDetails(NamedTuple):
    """One problem as a client is to be sent it: what `Wire(render_problem=…)` is given."""

    code: Code
    status: int
    title: str
    detail: str
    type: str
    """The absolute URL of its entry in the published specification."""
    retry: bool | None
    """Whether the same request may be sent again by itself; `None`: not as it is."""
    retry_after: float | None
    """After how many seconds, where it may be."""
    previous: Previous | None


Envelope = Callable[[ProblemDetails], Mapping[str, object]]


def _ignore(_: Exception) -> None:
    """Where no guard is there to log it."""


class Presentation(NamedTuple):
    """How problems are written on one wire."""

    kinds: Mapping[Code, Kind]
    details: Mapping[Code, str]
    """Texts that replace those of the occurrence."""
    should_retry: tuple[bytes, ...]
    envelope: Envelope | None = None
    """Makes the body, in the application's own form."""
    report: Callable[[Exception], object] = _ignore
    """Receives what the envelope raised."""


STANDARD = Presentation(CATALOGUE, {}, (b"x-should-retry",))


def render(problem: Problem, specification: str, presentation: Presentation = STANDARD) -> Response:
    """The problem as a response; `specification` is the absolute URL that its `type` points into."""
    kinds, texts, should_retry, envelope, report = presentation
    status, title, retry, *_ = kinds[problem.code]
    retry = True if problem.undone else retry
    details = ProblemDetails(
        problem.code,
        status,
        title,
        texts.get(problem.code, problem.detail),
        f"{specification}#{problem.code}",
        retry,
        _bounded(problem.retry_after) if retry else None,
        problem.previous,
    )
    media_type, body = b"application/problem+json", None
    if envelope is not None:
        try:
            media_type, body = b"application/json", _enveloped(envelope(details))
        except Exception as error:  # noqa: BLE001 - the application's function; the client needs a response
            media_type = b"application/problem+json"
            report(error)
    if body is None:
        body = _standard(details)
    headers = (
        (b"content-type", media_type),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *retry_hints(retry, problem.retry_after, should_retry),
    )
    return Response(status, headers, body)


def _standard(details: ProblemDetails) -> bytes:
    """RFC 9457's document."""
    from json import dumps  # a millisecond that only a refused request pays

    document: dict[str, object] = {
        "type": details.type,
        "title": details.title,
        "status": details.status,
        "detail": details.detail,
        "code": details.code,
    }
    if details.previous is not None:
        document["previous"] = {
            name: value for name, value in details.previous._asdict().items() if value is not None
        }
    return dumps(document).encode()


def _enveloped(document: object) -> bytes:
    """The body that an application's function made.  What is not JSON raises, NaN included (RFC 8259)."""
    from json import dumps

    if not isinstance(document, Mapping):
        raise TypeError(f"render_problem returned {type(document).__name__}: expected a mapping")
    return dumps(dict(cast("Mapping[str, object]", document)), allow_nan=False).encode()


_LONGEST_CODE = 4096
"""Bytes of a stored body that are looked at for its code: our own problems have a few hundred."""


def stored_code(response: Response) -> Code | None:
    """Which of our problems a stored response is, if it is one in its standard form."""
    if len(response.body) > _LONGEST_CODE or dict(response.headers).get(b"content-type") != (
        b"application/problem+json"
    ):
        return None
    from json import loads

    try:
        document = loads(response.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    said = cast("dict[str, object]", document)
    for code in CATALOGUE:
        # An application may have codes of its own; that the type leads to this one makes it ours.
        if said.get("code") == code and str(said.get("type", "")).endswith(f"#{code}"):
            return code
    return None


_LONGEST = 86400.0
"""A day: no client waits longer, and an application's own arithmetic may go wrong."""

WAITS = (b"retry-after", b"retry-after-ms")


def _bounded(after: float) -> float:
    return min(max(after, 0.0), _LONGEST) if math.isfinite(after) else 1.0


def retry_hints(
    retry: bool | None, after: float, should_retry: tuple[bytes, ...] = STANDARD.should_retry
) -> Headers:
    """One hint in the forms that clients read: HTTP's own, and the headers of SDKs.

    `Retry-After` has whole seconds (RFC 9110 section 10.2.3) and zero would mean a busy loop, so it is
    rounded up; `retry-after-ms` has the finer figure.
    """
    if retry is None:
        return ()
    if not retry:
        return tuple((name, b"false") for name in should_retry)
    after = _bounded(after)
    return (
        (b"retry-after", b"%d" % max(1, math.ceil(after))),
        (b"retry-after-ms", b"%d" % max(1, math.ceil(after * 1000))),
        *((name, b"true") for name in should_retry),
    )
