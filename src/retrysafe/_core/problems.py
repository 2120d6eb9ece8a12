"""Everything that a client can be told instead of an answer: RFC 9457 problems, one entry each.

The catalogue is data: the published specification, the documentation and the tests read it.  `title` is
constant per problem (RFC 9457 section 3.1.3); `detail` explains the occurrence and never contains a key.
"""

import math
from typing import Literal, NamedTuple

from retrysafe._core.model import Headers, Response

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
    "draining",
]


class Kind(NamedTuple):
    """What is the same for every occurrence of a problem."""

    status: int
    title: str
    retry: bool | None
    """Whether the same request with the same key may be sent again by itself; `None`: not as it is."""
    advice: str


CATALOGUE: dict[Code, Kind] = {
    "key-missing": Kind(
        400, "Idempotency key required", None, "Send a key, and the same one with every retry."
    ),
    "key-invalid": Kind(400, "Malformed idempotency key", None, "Correct the key. Nothing was executed."),
    "principal-required": Kind(
        400, "Unknown owner of the key", None, "Identify yourself: a key belongs to somebody."
    ),
    "replay-forbidden": Kind(
        403, "Not allowed to see this answer", None, "The answer exists, but not for you any more."
    ),
    "body-too-large": Kind(413, "Request body too large", None, "Send a smaller body. Nothing was executed."),
    "in-flight": Kind(409, "Request in progress", True, "The first request still runs: retry after a while."),
    "outcome-unknown": Kind(
        409,
        "Outcome unknown",
        False,
        "The first request broke off, and nobody knows how far it came. Look at the resource, or ask "
        "the operator; the same key is not executed again.",
    ),
    "previously-failed": Kind(
        409, "Request failed before", False, "The first request failed. Use a new key to try again."
    ),
    "key-reused": Kind(
        422,
        "Idempotency key reused for another request",
        False,
        "Use a new key for a new request. The first one's answer is still there for its own retries.",
    ),
    "handler-failed": Kind(
        500,
        "Request failed",
        False,
        "The failure is recorded, and it is not known what was done; unless the answer itself says to retry: "
        "then everything was undone.",
    ),
    "not-done": Kind(503, "Nothing was done", True, "Retry with the same key."),
    "store-unavailable": Kind(
        503, "Idempotency store unavailable", True, "Retry with the same key: it is executed at most once."
    ),
    "draining": Kind(503, "Shutting down", True, "Nothing was executed: retry with the same key."),
}


class Problem(NamedTuple):
    """A refusal, as a value."""

    code: Code
    detail: str
    retry_after: float = 1.0
    """Seconds; sent only where the catalogue says that a retry makes sense."""
    previous_status: int | None = None
    """For `previously-failed`: how it failed."""
    undone: bool = False
    """Whatever it had done was rolled back, so the same request may be sent again after all."""


def render(problem: Problem, specification: str) -> Response:
    """The problem as a response; `specification` is the absolute URL that its `type` points into."""
    from json import dumps  # a millisecond that only those pay who are refused something

    kind = CATALOGUE[problem.code]
    document: dict[str, object] = {
        "type": f"{specification}#{problem.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    if problem.previous_status is not None:
        document["previous_status"] = problem.previous_status
    body = dumps(document).encode()
    headers = (
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *retry_hints(problem.undone or kind.retry, problem.retry_after),
    )
    return Response(kind.status, headers, body)


_LONGEST = 86400.0
"""A day: no client waits longer, and an application's own arithmetic may go wrong."""

HINTS = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})


def retry_hints(retry: bool | None, after: float) -> Headers:
    """Three dialects of one hint: HTTP's own, and the two that SDKs read.

    `Retry-After` has whole seconds (RFC 9110 section 10.2.3) and zero would mean a busy loop, so it is
    rounded up; `retry-after-ms` has the finer figure.
    """
    if retry is None:
        return ()
    if not retry:
        return ((b"x-should-retry", b"false"),)
    after = min(max(after, 0.0), _LONGEST) if math.isfinite(after) else 1.0
    return (
        (b"retry-after", b"%d" % max(1, math.ceil(after))),
        (b"retry-after-ms", b"%d" % max(1, math.ceil(after * 1000))),
        (b"x-should-retry", b"true"),
    )
