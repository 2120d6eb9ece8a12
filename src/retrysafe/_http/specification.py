"""What this service promises its clients, written from the rules that are really in force.

draft-ietf-httpapi-idempotency-key-header section 2.5.2 asks a server to publish the format, scope and
lifetime of its keys.  It is one document, made here as data.  All sentences are here, and one that does not
hold under the rules is not in it.  `publish` says who is sent which form of it.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NotRequired, TypedDict, cast
from urllib.parse import quote

from retrysafe import scopes
from retrysafe._core.model import Request
from retrysafe._core.problems import CATALOGUE, COMMON, Code, Problem
from retrysafe._http.render import describe as render_problem
from retrysafe._http.render import service_url, specification_url
from retrysafe._http.routes import Protected, Published
from retrysafe.policy import Rules


class Key(TypedDict):
    header: str
    methods: list[str]
    required: bool
    format: str
    public: NotRequired[str]


class Retention(TypedDict):
    seconds: float
    text: str


class Meaning(TypedDict):
    meaning: str
    advice: str


class Entry(Meaning):
    """A problem."""

    status: int
    title: str
    retry: bool
    detail: NotRequired[str]
    """Where it is the same for every occurrence."""
    media_type: NotRequired[str]
    body: NotRequired[object]
    """As it is sent, where the service has a form of its own."""


class Terms(TypedDict):
    """What holds for one route.  Each text stands by itself: of a route, only those are shown that differ."""

    key: Key
    guarantee: str
    scope: str
    comparison: str
    retention: Retention
    concurrent: str
    interrupted: str
    responses: dict[str, Meaning]
    stored: dict[str, str]
    states: dict[str, str]
    headers: dict[str, str]


class RouteEntry(TypedDict):
    path: str
    methods: list[str]
    required: bool
    differs: dict[str, object]
    """The terms that are different here; `None` for one that does not hold."""


class Example(TypedDict):
    method: str
    url: str
    command: str


class Document(Terms):
    service: str
    """The address that routes are below."""
    url: str
    """Where this is published."""
    forms: str
    summary: str
    how: list[str]
    example: Example
    problems: dict[str, Entry]
    form: str
    """Of problems."""
    coverage: str
    """Which requests take keys."""
    routes: list[RouteEntry]


def document(published: Published, request: Request) -> Document:
    """The promises as data; of the request, only the address of the service is read."""
    listed = [*published.routes, *(Protected(path, published.rules) for path in published.paths or ())]
    listed = [route for route in listed if _methods(route)]
    kinds = [_essence(route.rules) for route in listed]
    every = dict(zip(kinds, (route.rules for route in listed), strict=True))
    # The guard's own rules may be in force nowhere: then it is said first what most routes have in common.
    own = published.paths != () or published.unnamed or not listed
    base = published.rules if own else every[Counter(kinds).most_common(1)[0][0]]
    every = {_essence(base): base} | every
    terms = describe(base, endpoints=published.endpoints)
    differing = {
        kind: _difference(terms, describe(rules, endpoints=published.endpoints))
        for kind, rules in every.items()
    }
    return {
        "service": service_url(request),
        "url": specification_url(request, base),
        "forms": _forms(specification_url(request, base), base),
        "summary": f"How to send requests to {service_url(request)} so that they can be retried safely.",
        "how": _how(base, list(every.values())),
        "example": _example(listed or [Protected("/*", base)], service_url(request)),
        **terms,
        "problems": _problems(list(every.values()), request),
        "form": _form(base),
        "coverage": _coverage(published, base, listed),
        "routes": [_route(route, differing[kind]) for route, kind in zip(listed, kinds, strict=True)],
    }


def _forms(url: str, rules: Rules) -> str:
    if not rules.wire.specification.startswith("/"):
        return f"More about it is at {url}."
    return f"This is published at {url}, as text/html, text/markdown and application/json."


def describe(rules: Rules, *, endpoints: bool = False) -> Terms:
    """What holds under these rules; `endpoints` claim keys after authentication and validation."""
    policy, request, wire = rules.policy, rules.request, rules.wire
    shared = scopes.shared(request.scope)
    key: Key = {
        "header": wire.key_header,
        "methods": _ordered(wire.methods),
        "required": request.required is True,
        "format": f"1 to {wire.longest_key} printable ASCII characters, as an RFC 9651 String"
        + (
            "; bare keys are refused."
            if wire.strict_keys
            else " or bare; bare keys have no comma, quotation mark or space."
        ),
    }
    if shared != "never":
        who = "Where the owner is not known, at" if shared == "sometimes" else "At"
        key["public"] = f"{who} least {wire.shortest_public_key} characters that cannot be guessed."
    return {
        "key": key,
        "guarantee": _guarantee(rules),
        "scope": _SHARED[shared] + "A key stands for one request; for a different one it is refused with "
        "the problem key-reused.",
        "comparison": _comparison(rules),
        "retention": {"seconds": _whole(policy.retention), "text": retention_text(rules)},
        "concurrent": _concurrent(rules),
        "interrupted": _interrupted(rules),
        "responses": _responses(rules, endpoints=endpoints),
        "stored": _stored(rules),
        "states": _states(rules),
        "headers": header_texts(rules),
    }


_FINGERPRINT = {
    "raw": "So are query, media type and the exact bytes of the body; of a multipart body its parts.",
    "json": "So are query, media type and the body as canonical JSON (RFC 8785).",
}
_CHOSEN = "Of the rest, query and media type, and chosen parts of the body."
_OWNED = "A key belongs to the owner of the request: the same key from another owner is a different key. "
_SHARED: dict[scopes.Shared, str] = {
    "never": _OWNED,
    "sometimes": _OWNED + "Requests without a known owner share one set of keys. ",
    "always": "All clients share one set of keys: each of them gets the response that is stored. ",
}
_AGAIN = "Send the same request again, with the same key"


def _how(rules: Rules, every: Collection[Rules]) -> list[str]:
    """For those who read no further, and so about every route."""
    wire = rules.wire
    # A failure that is replayed has run, too; else it is undone, runs again or is refused.
    ran = "has run" if all(one.policy.failed == "replay" for one in every) else "has succeeded"
    response = "its stored response"
    if all(one.outcome.no_store for one in every):
        response += " without the body"
    uuid = ", such as a UUID," if all(_shortest(one) <= _UUID <= wire.longest_key for one in every) else ""
    return [
        f"Make one key{uuid} for each action that you intend, and send it in the header {wire.key_header} "
        f"with the {_joined(_ordered(wire.methods), 'or')} request for it.",
        "If no response arrives, send exactly the same request again, with the same key: once the first one "
        f"{ran}, you get {response}, with {wire.replayed_header}: true, and nothing is done again.",
        "Use a new key for a new intent, and for nothing else: a new key is a new request.",
    ]


def _guarantee(rules: Rules) -> str:
    policy = rules.policy
    again = [
        reason
        for choice, reason in ((policy.failed, "failed"), (policy.abandoned, "was interrupted"))
        if choice == "retry"
    ]
    if policy.effects == "database":
        text = (
            "What a request changes is committed together with its response: while its key is stored, it "
            "takes effect once, however often it is sent."
        )
    elif again:
        text = (
            "While its key is stored, a request that has succeeded is not run again. One that "
            f"{_joined(again, 'or')} may be run again by a retry."
        )
    else:
        text = "While its key is stored, a request takes effect at most once."
    if policy.store_down == "run":
        text += (
            " This does not hold while the service cannot use its store: requests are then run unprotected, "
            f"and their responses have {rules.wire.stored_header}: false."
        )
    return text


def _comparison(rules: Rules) -> str:
    compared = rules.request.fingerprint
    rest = "Nothing else is." if compared is None else _FINGERPRINT.get(str(compared), _CHOSEN)
    return f"Method and path are compared. {rest}"


def retention_text(rules: Rules) -> str:
    policy = rules.policy
    since = "from the first request" if policy.retention_from == "creation" else "from their completion"
    return (
        f"Responses are stored for {_duration(policy.retention)} {since}. After that, the same key is a new "
        "request."
    )


def _concurrent(rules: Rules) -> str:
    refusal = f"gets the problem in-flight, {rules.wire.status('in-flight')} with Retry-After."
    if rules.policy.in_flight == "reject":
        return f"A retry while the first request runs {refusal}"
    patience = _duration(rules.policy.wait_for)
    return f"A retry while the first request runs waits for it, up to {patience}; after that it {refusal}"


def _interrupted(rules: Rules) -> str:
    policy = rules.policy
    if policy.effects == "database":
        then = f"everything is rolled back, and a retry runs again after at most {_duration(policy.lease)}."
    elif policy.abandoned == "retry":
        then = (
            f"a retry runs again after at most {_duration(policy.lease)}; if a part of the response was "
            "sent, retries get the problem outcome-unknown."
        )
    else:
        then = (
            "the outcome is unknown: retries get the problem outcome-unknown, and nothing runs again for "
            f"{_duration(policy.unknown_retention)}."
        )
    return f"If the server stops before the request has ended, {then}"


def _responses(rules: Rules, *, endpoints: bool) -> dict[str, Meaning]:
    """What to make of whatever is not a problem of ours, and of its absence."""
    wire = rules.wire
    hint = wire.should_retry_headers[0] if wire.should_retry_headers else None
    rows: dict[str, Meaning] = {
        # Each 5xx of ours has the hint, so one without it is from a proxy, or from a layer in front of us.
        f"None, or a 5xx without {hint}" if hint else "None, 502 or 504": {
            "meaning": "It is not known whether the request was executed.",
            "advice": f"{_AGAIN}.",
        },
        "401, 403, 408, 413, 425, 429, or 503 with Retry-After": {
            "meaning": "Nothing was done, and nothing is stored.",
            "advice": "Remove the cause or wait, then send the same request again, with the same key.",
        },
    }
    if endpoints:
        rows["A refusal before the endpoint runs, such as a failed validation"] = {
            "meaning": "Nothing was done, and nothing is stored: the key is still free.",
            "advice": "Correct the request.",
        }
    rows["Any other 2xx, 3xx or 4xx"] = {
        "meaning": "This is the result of the request. It is stored, and each retry gets it again, with "
        f"{wire.replayed_header}: true.",
        "advice": "Take it, whether it is a replay or not. To try something else, use a new key.",
    }
    rows["Any other 5xx"] = _failure(rules)
    if _may_be_unstored(rules):
        rows[f"Any with {wire.stored_header}: false"] = {
            "meaning": "The response is true, but it could not be stored.",
            "advice": "Take it, and do not send the request again.",
        }
    rows[f"Any with {wire.body_header}: omitted"] = {
        "meaning": "This is a replay without its body, which was not stored.",
        "advice": "Fetch the resource; if there is a Location, it says where.",
    }
    return rows


def _failure(rules: Rules) -> Meaning:
    policy, hints = rules.policy, rules.wire.should_retry_headers
    if policy.failed == "retry":  # which is implied, where effects are in the database
        unless = f", unless the response has {hints[0]}: false" if hints and _may_be_unstored(rules) else ""
        return {
            "meaning": "The request failed, and what it had changed was rolled back. A retry runs it again."
            if policy.effects == "database"
            else "The request failed. A retry with the same key runs it again.",
            "advice": f"{_AGAIN}{unless}.",
        }
    then = "the same response" if policy.failed == "replay" else "the problem previously-failed"
    return {
        "meaning": "The request failed, and what it did is not known. It is stored as failed, and a retry "
        f"gets {then}.",
        "advice": f"If the response has {hints[0]}: true, nothing was done: send the same request again, "
        "with the same key. If not, check the resource before you use a new key."
        if hints
        else "Check the resource before you use a new key.",
    }


def _stored(rules: Rules) -> dict[str, str]:
    policy, outcome, wire = rules.policy, rules.outcome, rules.wire
    larger = "larger ones" if policy.effects == "database" else "larger ones, and of streams of events,"
    of_them = "status" if wire.tombstone == "status" else "an empty 200 if it was a success, else its status,"
    dropped = sorted(name.decode("latin-1") for name in outcome.drop_headers)
    return {
        "bodies": f"Bodies of responses are not stored: the retry gets {of_them} and headers, and "
        f"{wire.body_header}: omitted."
        if outcome.no_store
        else f"Bodies of responses are stored up to {_size(outcome.max_response)}. Of {larger} the retry "
        f"gets {of_them} and headers, and {wire.body_header}: omitted.",
        "headers": "Headers of responses are stored, but not cookies, credentials and what belongs to one "
        + (f"connection, nor {_joined(dropped, 'and')}." if dropped else "connection."),
        "request": "Of requests, method, path, ids, owner and a digest of what is compared are stored, and "
        f"no bodies. With a key, a body has at most {_size(rules.request.max_request)}.",
        "key": "Keys are stored as they were sent, and operators can read them: never put a secret into one."
        if policy.keep_key
        else "Of keys, only a digest is stored.",
    }


def _states(rules: Rules) -> dict[str, str]:
    word = rules.wire.word
    states = {
        word("in_progress"): "The first request is running, or was interrupted.",
        word("completed"): "The response is stored and replayed.",
    }
    if rules.policy.effects != "database":  # what failed there was rolled back, and has no record
        states[word("failed")] = "The request ended with a failure."
    return states


def header_texts(rules: Rules) -> dict[str, str]:
    """What the headers say that are added to responses."""
    wire = rules.wire
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
    if _may_be_unstored(rules):
        headers[wire.stored_header] = "false on a response that could not be stored"
    for name in wire.should_retry_headers:
        headers[name] = "true or false, on problems and on 5xx: whether to send the same request again"
    return headers


def _may_be_unstored(rules: Rules) -> bool:
    # In the database, a response that is not stored is not committed either, and not sent.
    return rules.policy.effects != "database" or rules.policy.store_down == "run"


# --- problems


def possible_problems(rules: Rules) -> list[Code]:
    """What clients may get under these rules."""
    return [code for code in COMMON if _is_possible(code, rules)]


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


def explain(code: Code, rules: Rules) -> Meaning:
    """What happened and what to do, under these rules."""
    return _failure(rules) if code == "handler-failed" else _in_general(code)


def _in_general(code: Code) -> Meaning:
    return {"meaning": CATALOGUE[code].meaning, "advice": CATALOGUE[code].advice}


def _problems(every: Sequence[Rules], request: Request) -> dict[str, Entry]:
    """What clients may get under any of these rules, once for all routes: a `type` leads to one place."""
    found: dict[str, Entry] = {}
    for code in COMMON:
        possible = [rules for rules in every if _is_possible(code, rules)]
        if not possible:
            continue
        first = possible[0]
        kind = first.rendering.problems.kinds[code]
        text = explain(code, first)
        if any(explain(code, rules) != text for rules in possible):
            text = _in_general(code)  # where routes differ, only what holds for all of them
        entry: Entry = {
            "status": kind.status,
            "title": kind.title,
            "retry": all(rules.rendering.problems.kinds[code].retry for rules in possible),
            "meaning": text["meaning"],
            "advice": text["advice"],
        }
        detail = first.rendering.problems.details.get(code)
        if (
            detail
            and detail not in text["meaning"]
            and all(rules.rendering.problems.details.get(code) == detail for rules in possible)
        ):
            entry["detail"] = detail
        if first.wire.render_problem is not None:
            entry["media_type"], entry["body"] = _in_own_form(code, first, request)
        found[code] = entry
    return found


def _in_own_form(code: Code, rules: Rules, request: Request) -> tuple[str, object]:
    """As the application's function makes it; should it raise, what clients are sent instead."""
    sent = render_problem(request, rules, Problem(code, "…"))
    return dict(sent.headers)[b"content-type"].decode(), cast("object", json.loads(sent.body))


def _form(rules: Rules) -> str:
    if rules.wire.render_problem is not None:
        return "Problems are sent in this service's own form."
    return "Problems are application/problem+json (RFC 9457), with type, title, status, detail and code."


# --- routes


def _coverage(published: Published, base: Rules, listed: Sequence[Protected]) -> str:
    if (not published.unnamed and published.paths is not None) or not base.wire.methods:
        return "These routes take keys, and no others." if listed else "No route takes keys."
    needs = "needs" if base.request.required is True else "may have"
    where = "to one of the paths that the service has chosen" if published.unnamed else "to any path"
    unless = "; these routes have terms of their own" if listed else ""
    return f"A {_joined(_ordered(base.wire.methods), 'or')} request {where} {needs} a key{unless}."


def _route(route: Protected, differs: dict[str, object]) -> RouteEntry:
    return {
        "path": route.path,
        "methods": _methods(route),
        "required": route.rules.request.required is True,
        "differs": differs,
    }


def _difference(terms: Mapping[str, object], others: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in {**terms, **others}:
        ours, theirs = terms.get(name), others.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, dict) and isinstance(theirs, dict):
            found[name] = _difference(cast("dict[str, object]", ours), cast("dict[str, object]", theirs))
        else:
            found[name] = theirs
    return found


def _methods(route: Protected) -> list[str]:
    covered = route.rules.wire.methods
    return _ordered(covered if route.methods is None else route.methods & covered)


def _essence(rules: Rules) -> Hashable:
    """Equal for rules of which the same is said: there may be thousands of routes, and few kinds of them."""
    request = rules.request
    return (
        rules.policy,
        rules.outcome,
        # Three are, or may be, the application's functions: of those, what is said about them.
        request._replace(scope=scopes.user, fingerprint=None, reauthorise=None),
        (scopes.shared(request.scope), scopes.always_finds(request.scope), scopes.missing(request.scope)),
        _comparison(rules),
        request.reauthorise is None,
        id(rules.wire),
    )


# --- an example

_PARAMETER = re.compile(r"\{(\w+)[^{}]*\}|<(?:[^<>:]*:)?(\w+)>")
"""Of a route's template, as Starlette and Flask have it."""
_PLAIN = re.compile("[A-Za-z0-9-]+")
_UUID = 36
"""The characters of a UUID."""
_DIGITS = 32
"""Those of the same number of bits without hyphens."""


def _example(routes: Sequence[Protected], service: str) -> Example:
    """A request that can be sent, as far as it is known what one looks like."""
    route = min(routes, key=_unsuitability)
    method = next(iter(_methods(route)), "POST")
    # In capitals is what a reader replaces.
    path = _PARAMETER.sub(lambda found: (found[1] or found[2]).upper(), route.path)
    path = f"{path[:-1]}PATH" if path.endswith("*") else path
    url = service + quote(path, safe="/:@!$&'()+,;=~", errors="replace")
    wire, scope = route.rules.wire, route.rules.request.scope
    value = r"\"$KEY\"" if wire.strict_keys else "$KEY"
    header = (
        f'"{wire.key_header}: {value}"'
        if _PLAIN.fullmatch(wire.key_header)
        else f'{shlex.quote(f"{wire.key_header}: ")}"{value}"'
    )
    lines = [
        f"curl -X {method} {shlex.quote(url)}",
        f"-H {header}",
        *(f"-H {shlex.quote(f'{name}: ...')}" for name in scopes.headers(scope)),
    ]
    if method != "DELETE":
        lines.append("-H 'Content-Type: application/json' --data-binary @request.json")
    once = f"KEY={_new_key(_shortest(route.rules), wire.longest_key)}  # once; each retry has the same\n"
    return {"method": method, "url": url, "command": once + " \\\n  ".join(lines)}


def _unsuitability(route: Protected) -> tuple[bool, bool, bool]:
    template = _PARAMETER.search(route.path) is not None
    return route.path.endswith("*"), template, "POST" not in _methods(route)


def _shortest(rules: Rules) -> int:
    """How long a key must be, to be taken from each client."""
    return rules.wire.shortest_public_key if scopes.shared(rules.request.scope) != "never" else 1


def _new_key(shortest: int, longest: int) -> str:
    length = min(max(_DIGITS, shortest), longest)
    # Not `uuidgen`, which is missing on more machines.
    return (
        "$(openssl rand -hex 16)"
        if length == _DIGITS
        else f"$(openssl rand -hex {length} | cut -c 1-{length})"
    )


# --- words


_METHODS = ("POST", "PUT", "PATCH", "DELETE")


def _ordered(methods: Collection[str]) -> list[str]:
    """The common ones first."""
    return [*(it for it in _METHODS if it in methods), *sorted(it for it in methods if it not in _METHODS)]


def _joined(words: Sequence[str], conjunction: str) -> str:
    *others, last = words or ["no"]
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def _whole(number: float) -> float:
    """Without `.0`: 86400 is how a client would write it."""
    return int(number) if number == int(number) else number


def _size(number: int) -> str:
    for size, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if number % size == 0:
            return f"{number // size} {unit}"
    return f"{number} byte{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        # A day is said as 24 hours: that is how people compare it.
        if seconds >= 2 * size or (seconds >= size and unit != "day"):
            number = seconds / size
            return f"{number:g} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"
