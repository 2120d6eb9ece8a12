"""What this service promises its clients, written from the rules that are really in force.

draft-ietf-httpapi-idempotency-key-header section 2.5.2 asks a server to publish the format, scope and
lifetime of its keys.  It is one document in two forms: a page for people, whose anchors are the problems'
`type`, and JSON for programs.
"""

import json
from collections.abc import Mapping
from html import escape
from typing import cast

from retrysafe._core.model import Request, Response
from retrysafe._core.problems import CATALOGUE
from retrysafe.policy import Rules

_FAILED = {
    "replay": "The failure is kept: a retry with the same key gets the same answer.",
    "retry": "A retry with the same key runs again.",
    "conflict": "A retry with the same key is refused with the problem previously-failed.",
}
_ABANDONED = {
    "hold": "The outcome is unknown: retries get the problem outcome-unknown, and nothing runs again.",
    "retry": "After a short while, a retry with the same key runs again.",
}
_CHOSEN = "Of the rest, query and media type, and chosen parts of the body."
_FINGERPRINT = {
    "raw": "So are query, media type and the exact bytes of the body; of a multipart body its parts.",
    "json": "So are query, media type and the body as canonical JSON (RFC 8785).",
}


def respond(request: Request, rules: Rules, elsewhere: Mapping[str, Rules] | None = None) -> Response:
    """The page, or the document for whoever asks for JSON; with what single routes do differently."""
    accepts = request.header(b"accept") or b""
    document = describe(rules)
    if elsewhere:
        other = {path: _differences(document, describe(rules)) for path, rules in elsewhere.items()}
        document["elsewhere"] = other
    if b"application/json" in accepts:
        media_type, body = b"application/json", json.dumps(document, indent=2).encode()
    else:
        media_type, body = b"text/html; charset=utf-8", _page(document).encode()
    return Response(
        200,
        ((b"content-type", media_type), (b"content-length", b"%d" % len(body)), (b"vary", b"accept")),
        body,
    )


def _differences(document: dict[str, object], other: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in other.items() if value != document[name]}


def describe(rules: Rules) -> dict[str, object]:
    """The promises as data."""
    policy, request, outcome, wire, _ = rules
    compared = request.fingerprint
    return {
        "key": {
            "header": wire.key_header,
            "methods": sorted(wire.methods),
            "required": request.required is True,
            "format": f"1 to {wire.longest_key} printable ASCII characters, as an RFC 9651 String or bare; "
            "bare keys have no comma, quotation mark or space",
            "public": f"Where keys are everybody's, at least {wire.shortest_public_key} characters.",
        },
        "scope": "A key belongs to whoever sends it: the same key of another owner is another key. "
        "It stands for one request; for another one it is refused.",
        "comparison": "Method and path are compared. "
        + ("Nothing else is." if compared is None else _FINGERPRINT.get(str(compared), _CHOSEN)),
        "retention": {
            "seconds": policy.retention,
            "text": f"Answers are kept for {_duration(policy.retention)} from the first request. Later the "
            "same key is a new request.",
        },
        "kept": {
            "2xx, 3xx and 4xx": "Kept and replayed, but for the following.",
            "401, 403, 408, 413, 425, 429, and 503 with Retry-After": "Not kept: nothing was done, and the "
            "same key may be used again.",
            "other 5xx": _FAILED[policy.failed],
            "broken off": _ABANDONED[policy.abandoned],
            "bodies": f"Not kept: the retry gets status and headers, and {wire.body_header}: omitted."
            if outcome.no_store
            else f"Up to {outcome.max_response} bytes. Of a larger answer, or a stream of events, the retry "
            f"gets status and headers, and {wire.body_header}: omitted.",
        },
        "concurrent": "A retry while the first request runs is answered 409 with Retry-After."
        if policy.in_flight == "reject"
        else f"A retry while the first request runs waits for it, up to {_duration(policy.wait_for)}.",
        "headers": {
            wire.replayed_header: "true on an answer that was kept",
            wire.original_id_header: "the id of the request that was answered first",
            wire.body_header: "omitted, where only status and headers were kept",
            wire.stored_header: "false on an answer that could not be kept",
        },
        "problems": {
            code: {
                "status": kind.status,
                "title": kind.title,
                "retry": bool(kind.retry),
                "advice": kind.advice,
            }
            for code, kind in CATALOGUE.items()
        },
    }


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        # A day is said as 24 hours: that is how people compare it.
        if seconds >= 2 * size or (seconds >= size and unit != "day"):
            number = seconds / size
            return f"{number:g} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"


def _page(document: dict[str, object]) -> str:
    sections = "".join(
        f"<section><h2>{escape(name.capitalize())}</h2>{_html(value)}</section>"
        for name, value in document.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Idempotency</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
        "dt{font-weight:600;margin-top:.6rem}dd{margin-left:1.5rem}:target{background:#fff3c4}</style>"
        f"<h1>Retrying safely</h1>{sections}</html>"
    )


def _html(value: object) -> str:
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value).items()
        return f"<dl>{''.join(_entry(name, entry) for name, entry in entries)}</dl>"
    if isinstance(value, list):
        return escape(", ".join(cast("list[str]", value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))


def _entry(name: str, value: object) -> str:
    anchor = f' id="{name}"' if name in CATALOGUE else ""  # what the problems' `type` points to
    return f"<dt{anchor}>{escape(name)}</dt><dd>{_html(value)}</dd>"
