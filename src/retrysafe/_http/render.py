"""What goes out to the client: responses, replays and problems, with the headers of the wire.

A pure function of the flow's result, the request and the rules.  Nothing is decided here.
"""

import re

from retrysafe._core import headers, problems
from retrysafe._core.model import Header, Headers, Record, Request, Response, make
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Result
from retrysafe.policy import Policy, Rendering, Rules

_USABLE_HOST = re.compile(rb"[A-Za-z0-9.\-_~%:\[\]]{1,255}")
_USABLE_ROOT = re.compile(r"[A-Za-z0-9.\-_~/]*")
"""A part of a path may have been chosen by a client, where an application is mounted at a template."""

ABOUT_THE_BODY = frozenset(
    {b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest"}
)
"""True of the body that was not stored, and not of the empty one that stands for it."""


def render(result: Result, request: Request, rules: Rules, request_id: str) -> Response | None:
    """The result as it goes out.  `None`: it was sent already, or there is no client left to send it to."""
    reply = result.reply
    if reply is None:
        return None
    names = rules.names
    if isinstance(reply, Record):
        status, stored, body = reply.response or Response(500)
        replayed = _replay(reply, status, stored, len(body), request, rules)
        status = replay_status(reply, rules)
        replayed.append((names.request_id, request_id.encode()))
        sent = tuple(replayed)
    else:
        if isinstance(reply, Problem):
            status, sent, body = describe(request, rules, reply)
            if rules.rendering.keyed_id is not None and names.key in request.fields:
                sent += _first_id(reply.first, request_id, rules)
        else:
            status, sent, body = reply
            if status >= 500 or result.verdict == "failed":
                sent = _with_hint(sent, may_retry(result, rules.policy), rules.rendering)
            if rules.rendering.adds:
                sent = _with_additions(sent, request, rules, request_id)
        if names.request_id not in dict(sent):
            sent += ((names.request_id, request_id.encode()),)
    if not result.stored:
        sent += ((names.stored, b"false"),)
    return make(Response, (status, sent, body))


def describe(request: Request, rules: Rules, problem: Problem) -> Response:
    """A problem as a response (RFC 9457), or in the application's own envelope."""
    return problems.render(problem, specification_url(request, rules), rules.rendering.problems)


def problem_status(problem: Problem, rules: Rules) -> int:
    """The status that a problem is sent with under these rules."""
    return rules.wire.status(problem.code)


def replay_status(record: Record, rules: Rules) -> int:
    """The status that a stored response is replayed with: its own, unless the wire says otherwise."""
    status = record.response.status if record.response else 500
    # Only of a success: a refusal or a failure must not turn into one.
    return 200 if record.omitted and status < 400 and rules.wire.tombstone == "empty-200" else status


def may_retry(result: Result, policy: Policy) -> bool:
    """Whether a handler's own failure may be sent again by itself, with the same key."""
    if result.verdict == "released":
        return True  # nothing has happened, or everything was rolled back
    if result.verdict == "unstored":
        return False  # its record is left to lapse, and what it did is not known
    if result.verdict == "unprotected":
        # There was no transaction to roll back.
        return policy.failed == "retry" and policy.effects != "database"
    return policy.failed == "retry"


def _with_hint(sent: Headers, retry: bool, rendering: Rendering) -> Headers:
    """A failure's headers with one hint, ours: the handler does not know what becomes of its key."""
    # How long to wait is the handler's to say, but only where there is something to wait for.
    replaced = rendering.should_retry if retry else rendering.hints
    others = tuple([pair for pair in sent if pair[0] not in replaced])
    return others + (rendering.may_retry if retry else rendering.no_retry)


def _with_additions(sent: Headers, request: Request, rules: Rules, request_id: str) -> Headers:
    """A first response's headers with what a profile adds: its id as the original, the key as it was sent."""
    names, rendering = rules.names, rules.rendering
    added: list[Header] = []
    if rendering.keyed_id is not None:
        own = headers.find(sent, names.request_id)
        added.append((rendering.keyed_id, request_id.encode() if own is None else own))
    if rendering.echo_key and (key := request.fields.get(names.key)) is not None:
        added.append((names.key, key))
    replaced = [name for name, _ in added]
    return (*[pair for pair in sent if pair[0] not in replaced], *added)


def _first_id(record: Record | None, request_id: str, rules: Rules) -> Headers:
    """The id of the first request, as its client has seen it; of this one, where there is no other."""
    assert rules.rendering.keyed_id is not None
    if record is None:
        return ((rules.rendering.keyed_id, request_id.encode()),)
    stored = dict(record.response.headers) if record.response else {}
    for value in (
        stored.get(headers.ORIGINAL_ID),
        stored.get(rules.names.request_id),
        record.request_id.encode(errors="replace"),
    ):
        if value and headers.are_fit((), value):  # a store is not a trusted place
            return ((rules.rendering.keyed_id, value),)
    return ()


def specification_url(request: Request, rules: Rules) -> str:
    """The absolute address of what this service promises."""
    where = rules.wire.specification
    return service_url(request) + where if where.startswith("/") else where


def service_url(request: Request) -> str:
    """The absolute address that the application's own paths are below."""
    host, root = request.fields.get(b"host"), request.root
    if host is None or not _USABLE_HOST.fullmatch(host):
        host = b"localhost"
    if not _USABLE_ROOT.fullmatch(root):
        from urllib.parse import quote  # few applications are mounted at such a path

        root = quote(root, errors="replace")
    scheme = request.scheme if request.scheme in ("http", "https") else "http"
    return f"{scheme}://{host.decode()}{root}"


def _replay(
    record: Record, status: int, stored: Headers, length: int, request: Request, rules: Rules
) -> list[Header]:
    """The headers of a stored response as they are sent, but for the id of this request."""
    names, rendering = rules.names, rules.rendering
    original_id, omitted = record.request_id.encode(), record.omitted
    failed = status >= 500 or record.state == "failed"
    by_name = dict(stored)
    if failed or omitted or headers.ORIGINAL_ID in by_name or not rendering.renewed.isdisjoint(by_name):
        sent: list[Header] = []
        for name, value in stored:
            if name == headers.ORIGINAL_ID or name == names.request_id:
                original_id = value
            elif name in rendering.renewed or (omitted and name in ABOUT_THE_BODY):
                continue  # sent anew below, dropped by this route, or not true any more
            elif not failed or name not in rendering.hints:
                sent.append((name, value))
    else:
        sent = list(stored)
    if failed:
        sent.extend(rendering.no_retry)  # a retry with this key would get the same response again
    if replay_status(record, rules) not in (204, 304):  # RFC 9110 section 8.6
        sent.append((b"content-length", b"%d" % length))
    sent.append((names.replayed, b"true"))
    sent.append((names.original_id, original_id))
    if rendering.adds:
        if rendering.keyed_id is not None and rendering.keyed_id != names.original_id:
            sent.append((rendering.keyed_id, original_id))
        if rendering.echo_key and (key := request.fields.get(names.key)) is not None:
            sent.append((names.key, key))
    if omitted:
        sent.append((names.body, b"omitted"))
    return sent
