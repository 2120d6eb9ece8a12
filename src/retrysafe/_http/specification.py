"""What this service promises its clients, written from the rules that are really in force.

draft-ietf-httpapi-idempotency-key-header section 2.5.2 asks a server to publish the format, scope and
lifetime of its keys.  It is one document in two forms: a page for people, whose anchors are the problems'
`type`, and JSON for programs.  A sentence that does not hold under the rules is not in it.
"""

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import cast

from retrysafe import scopes
from retrysafe._core.model import Request, Response
from retrysafe._core.problems import CATALOGUE, Code
from retrysafe.policy import Rules, Wire

_FAILED = {
    "replay": "Stored: a retry with the same key gets the same response.",
    "retry": "Stored as failed: a retry with the same key runs again.",
    "conflict": "Stored as failed: a retry with the same key gets the problem previously-failed.",
}
_UNDONE = "Rolled back and not stored: a retry with the same key runs again."
_CHOSEN = "Of the rest, query and media type, and chosen parts of the body."
_FINGERPRINT = {
    "raw": "So are query, media type and the exact bytes of the body; of a multipart body its parts.",
    "json": "So are query, media type and the body as canonical JSON (RFC 8785).",
}
_OWNED = "A key belongs to the owner of the request: the same key from another owner is a different key. "
_SHARED: dict[scopes.Shared, str] = {
    "never": _OWNED,
    "sometimes": _OWNED + "Requests without a known owner share one set of keys. ",
    "always": "All clients share one set of keys: each of them gets the response that is stored. ",
}


def respond(request: Request, rules: Rules, routes: Mapping[str, Rules] | None = None) -> Response:
    """The page, or the document where JSON is accepted; with what single routes do differently."""
    document = describe(rules)
    if routes:
        # Problems are listed once, for all routes: the anchor that a `type` points to is in one place.
        document["problems"] = _problems([rules, *routes.values()])
        document["routes"] = {
            path: {
                name: value
                for name, value in describe(other).items()
                if name != "problems" and value != document[name]
            }
            for path, other in routes.items()
        }
    if b"application/json" in (request.header(b"accept") or b""):
        media_type, body = b"application/json", json.dumps(document, indent=2).encode()
    else:
        media_type, body = b"text/html; charset=utf-8", _page(document).encode()
    return Response(
        200,
        ((b"content-type", media_type), (b"content-length", b"%d" % len(body)), (b"vary", b"accept")),
        body,
    )


def describe(rules: Rules) -> dict[str, object]:
    """The promises as data."""
    policy, request, wire = rules.policy, rules.request, rules.wire
    shared = scopes.shared(request.scope)
    key: dict[str, object] = {
        "header": wire.key_header,
        "methods": sorted(wire.methods),
        "required": request.required is True,
        "format": f"1 to {wire.longest_key} printable ASCII characters, as an RFC 9651 String"
        + (
            "; bare keys are refused"
            if wire.strict_keys
            else " or bare; bare keys have no comma, quotation mark or space"
        ),
    }
    if shared != "never":
        who = "Where the owner is not known, at" if shared == "sometimes" else "At"
        key["public"] = f"{who} least {wire.shortest_public_key} characters that cannot be guessed."
    compared = request.fingerprint
    return {
        "key": key,
        "scope": _SHARED[shared] + "A key stands for one request; for a different one it is refused with "
        "the problem key-reused.",
        "comparison": "Method and path are compared. "
        + ("Nothing else is." if compared is None else _FINGERPRINT.get(str(compared), _CHOSEN)),
        "retention": {
            "seconds": _whole(policy.retention),
            "text": retention_text(rules),
        },
        "stored": _stored(rules),
        "states": _states(rules),
        "concurrent": _concurrent(rules),
        "headers": header_texts(rules),
        "problems": _problems([rules]),
    }


def _stored(rules: Rules) -> dict[str, str]:
    policy, outcome, wire = rules.policy, rules.outcome, rules.wire
    in_database = policy.effects == "database"
    if in_database:
        abandoned = f"It is rolled back, and a retry runs again within {_duration(policy.lease)}."
    elif policy.abandoned == "retry":
        abandoned = (
            f"A retry runs again within {_duration(policy.lease)}; if a part of the response was sent, "
            "retries get the problem outcome-unknown."
        )
    else:
        abandoned = (
            "The outcome is unknown: retries get the problem outcome-unknown, and nothing runs again for "
            f"{_duration(policy.unknown_retention)}."
        )
    larger = "Of a larger response" if in_database else "Of a larger response, or a stream of events,"
    of_them = "status" if wire.tombstone == "status" else "an empty 200 if it was a success, else its status,"
    return {
        "2xx, 3xx and 4xx": "Stored and replayed, except as follows.",
        "401, 403, 408, 413, 425, 429, and 503 with Retry-After": "Not stored: nothing was done, and the "
        "same key may be used again.",
        "other 5xx": _UNDONE if in_database else _FAILED[policy.failed],
        "abandoned": f"The server stopped before the request ended. {abandoned}",
        "bodies": f"Not stored: the retry gets {of_them} and headers, and {wire.body_header}: omitted."
        if outcome.no_store
        else f"Up to {outcome.max_response} bytes. {larger} the retry gets {of_them} and headers, and "
        f"{wire.body_header}: omitted.",
    }


def _states(rules: Rules) -> dict[str, str]:
    word = rules.wire.word
    states = {
        word("in_progress"): "The first request is running, or was abandoned.",
        word("completed"): "The response is stored and replayed.",
    }
    if rules.policy.effects != "database":  # what failed there was rolled back, and has no record
        states[word("failed")] = f"The request ended with another 5xx. {_FAILED[rules.policy.failed]}"
    return states


def _concurrent(rules: Rules) -> str:
    refusal = f"gets the problem in-flight, {rules.wire.status('in-flight')} with Retry-After."
    if rules.policy.in_flight == "reject":
        return f"A retry while the first request runs {refusal}"
    patience = _duration(rules.policy.wait_for)
    return f"A retry while the first request runs waits for it, up to {patience}; after that it {refusal}"


def header_texts(rules: Rules) -> dict[str, str]:
    """What the headers say that are added to responses."""
    wire: Wire = rules.wire
    headers = {
        wire.replayed_header: "true on a replay of a stored response",
        wire.original_id_header: "the id of the first request, on a replay",
        wire.request_id_header: "the id of this request",
        wire.body_header: "omitted, where only status and headers were stored",
    }
    if wire.keyed_id_header is not None:
        headers[wire.keyed_id_header] = (
            "the id of the first request, on every response to a request with a key"
        )
    if wire.echo_key:
        headers[wire.key_header] = "the key as it was sent, on first responses and replays"
    if rules.policy.effects != "database" or rules.policy.store_down == "run":
        headers[wire.stored_header] = "false on a response that could not be stored"
    for name in wire.should_retry_headers:
        headers[name] = "true or false, on problems and on 5xx: whether to send the same request again"
    return headers


def _problems(every: Iterable[Rules]) -> dict[str, dict[str, object]]:
    """What clients may get under any of these rules."""
    found: dict[str, dict[str, object]] = {}
    for code in CATALOGUE:
        kinds = [rules.rendering.problems.kinds[code] for rules in every if _is_possible(code, rules)]
        if kinds:
            found[code] = {
                "status": kinds[0].status,
                "title": kinds[0].title,
                "retry": all(kind.retry for kind in kinds),
                "advice": kinds[0].advice,
            }
    return found


def possible_problems(rules: Rules) -> list[Code]:
    """What clients may get under these rules."""
    return [code for code in CATALOGUE if _is_possible(code, rules)]


def retention_text(rules: Rules) -> str:
    return (
        f"Responses are stored for {_duration(rules.policy.retention)} from the first request. After that, "
        "the same key is a new request."
    )


def _is_possible(code: Code, rules: Rules) -> bool:
    match code:
        case "key-missing":
            return rules.request.required is True
        case "principal-required":
            return not scopes.always_finds(rules.request.scope)
        case "replay-forbidden":
            return rules.request.reauthorise is not None
        case "outcome-unknown":
            return rules.policy.effects != "database"
        case "previously-failed":
            return rules.policy.failed == "conflict"
        case _:
            return True


def _whole(number: float) -> float:
    """Without `.0`: 86400 is how a client would write it."""
    return int(number) if number == int(number) else number


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
