"""What goes out to the client: responses, replays and problems, with the headers of the wire.

A pure function of the flow's result, the request and the rules.  Nothing is decided here.
"""

import re

from retrysafe._core import headers, problems
from retrysafe._core.model import Header, Record, Request, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Result
from retrysafe.policy import Rules

_USABLE_HOST = re.compile(rb"[A-Za-z0-9.\-_~%:\[\]]{1,255}")

_ABOUT_THE_BODY = frozenset(
    {b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest"}
)
"""True of the body that was not stored, and not of the empty one that stands for it."""


def render(result: Result, request: Request, rules: Rules, request_id: str) -> Response | None:
    """The result as it goes out.  `None`: it was sent already, or there is no client left to send it to."""
    reply = result.reply
    if reply is None:
        return None
    if isinstance(reply, Problem):
        response = describe(reply, request, rules)
    elif isinstance(reply, Record):
        response = _replay(reply, rules)
    else:
        response = reply
    names, sent = rules.names, response.headers
    if names.request_id not in dict(sent):
        sent += ((names.request_id, request_id.encode()),)
    if not result.stored:
        sent += ((names.stored, b"false"),)
    return Response(response.status, sent, response.body)


def describe(problem: Problem, request: Request, rules: Rules) -> Response:
    """A problem as a response (RFC 9457)."""
    return problems.render(problem, specification_url(request, rules))


def specification_url(request: Request, rules: Rules) -> str:
    """The absolute address of what this service promises."""
    where = rules.wire.specification
    if not where.startswith("/"):
        return where
    host = request.fields.get(b"host")
    if host is None or not _USABLE_HOST.fullmatch(host):
        host = b"localhost"
    return f"{request.scheme}://{host.decode()}{request.root}{where}"


def _replay(record: Record, rules: Rules) -> Response:
    names, stored = rules.names, record.response or Response(500)
    original_id = record.request_id.encode()
    sent: list[Header] = []
    for name, value in stored.headers:
        if name == headers.ORIGINAL_ID or name == names.request_id:
            original_id = value
        elif name in names or (record.omitted and name in _ABOUT_THE_BODY):
            continue  # sent anew below, or not true any more
        elif stored.status < 500 or name not in problems.HINTS:
            sent.append((name, value))
    if stored.status >= 500:
        sent.extend(problems.retry_hints(False, 0))
    if stored.status not in (204, 304):  # RFC 9110 section 8.6
        sent.append((b"content-length", b"%d" % len(stored.body)))
    sent.append((names.replayed, b"true"))
    sent.append((names.original_id, original_id))
    if record.omitted:
        sent.append((names.body, b"omitted"))
    return Response(stored.status, tuple(sent), stored.body)
