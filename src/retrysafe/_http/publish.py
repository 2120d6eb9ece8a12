"""`GET /idempotency`: which form of the specification a client is sent (RFC 9110 section 12.5.1)."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from retrysafe._core.model import Header, Request, Response
from retrysafe._http.routes import Published
from retrysafe._http.specification import Document, document
from retrysafe._http.specification_html import CONTENT_SECURITY_POLICY, page
from retrysafe._http.specification_markdown import markdown

HTML = "text/html"
MARKDOWN = "text/markdown"
JSON = "application/json"
FORMS = (HTML, MARKDOWN, JSON)
"""The preferred one first: it is also for clients that ask for none, or for nothing that there is."""


def respond(request: Request, published: Published) -> Response:
    """The specification in the form that the client asks for."""
    form = negotiate(request.every(b"accept"), FORMS)
    body = render(document(published, request), form)
    tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    headers: tuple[Header, ...] = (
        (b"vary", b"accept"),
        (b"etag", tag),
        # Rules change with a deployment, and a page that promises what no longer holds does harm.
        (b"cache-control", b"no-cache"),
    )
    if _has(request.every(b"if-none-match"), tag):
        return Response(304, headers)
    charset = b"" if form == JSON else b"; charset=utf-8"
    headers = (
        (b"content-type", form.encode() + charset),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        *headers,
    )
    if form == HTML:
        headers = (*headers, (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()))
    return Response(200, headers, b"" if request.method == "HEAD" else body)


def render(document: Document, form: str) -> bytes:
    if form == JSON:
        return json.dumps(document, indent=2).encode() + b"\n"
    text = page(document) if form == HTML else markdown(document)
    return text.encode()


_QUOTED = re.compile(rb'"(?:[^"\\]|\\.?)*"?', re.DOTALL)
"""A quoted string, closed or not: it matches whatever follows, and so never looks at a byte twice."""
_RANGE = re.compile(r"[^\s/*]+/(?:\*|[^\s/*]+)|\*/\*")
_MOST = 64
"""Media ranges of a line that are looked at: browsers send some ten."""
_WEIGHT = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


class _Range(NamedTuple):
    media_type: str
    has_parameters: bool
    weight: float

    def specificity(self, form: str) -> int:
        """How closely it fits a media type; zero: not at all."""
        if self.media_type == form:
            # Parameters are about a variant, which ours may or may not be: what is said without them counts.
            return 3 if self.has_parameters else 4
        if self.media_type == f"{form.partition('/')[0]}/*":
            return 2
        return 1 if self.media_type == "*/*" else 0


def negotiate(accept: Sequence[bytes], offered: Sequence[str]) -> str:
    """The media type that is preferred; the first one, if none is, or nothing was asked for.

    What is not a media range is passed over: to understand a part of what a client says is better than a 406.
    """
    ranges = [found for line in accept for found in _ranges(line)]
    best, most = offered[0], 0.0
    for form in offered:
        # The most specific one counts, whatever else is said.
        fitting = [(specificity, it.weight) for it in ranges if (specificity := it.specificity(form))]
        weight = max(fitting, default=(0, 0.0))[1]
        if weight > most:
            best, most = form, weight
    return best


def _ranges(line: bytes) -> Iterator[_Range]:
    # Only names and weights matter here, and neither is quoted.
    for element in _QUOTED.sub(b'""', line).decode("latin-1").lower().split(",", _MOST)[:_MOST]:
        media_type, *parameters = (part.strip() for part in element.split(";"))
        named = [(name.strip(), value.strip()) for name, _, value in (it.partition("=") for it in parameters)]
        weight = next((value for name, value in named if name == "q"), "1")
        if _RANGE.fullmatch(media_type) and _WEIGHT.fullmatch(weight):
            yield _Range(media_type, any(name not in ("q", "") for name, _ in named), float(weight))


def _has(tags: Sequence[bytes], tag: bytes) -> bool:
    """Whether a client has this already (RFC 9110 section 13.1.2)."""
    given = [one.strip().removeprefix(b"W/") for line in tags for one in line.split(b",")]
    return tag in given or b"*" in given
