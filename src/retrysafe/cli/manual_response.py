"""The answer that an operator gives on behalf of a request that never gave its own.

Kept as it was said, and checked as anything that is to be sent to clients.  Where no body is said, a
tombstone is kept: retries get the status and headers, an empty body, and a header that says that the body is
missing.
"""

import sys
from pathlib import Path
from typing import Literal, NamedTuple

from retrysafe._core import headers
from retrysafe._core.model import Final, Header, Headers, Record, Response
from retrysafe.cli.body_preview import recognise
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import clean, sized
from retrysafe.policy import RequestRules

Outcome = Literal["completed", "failed"]

LARGEST_BODY: int = RequestRules._field_defaults["max_response"]
"""What a service keeps of its own answers, if it was not told otherwise."""

_BODILESS = frozenset({204, 205, 304})
"""RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5: such an answer has no content."""


class Said(NamedTuple):
    """What was said on the command line."""

    status: int | None = None
    body: str | None = None
    headers: tuple[str, ...] = ()
    content_type: str | None = None


def final(outcome: Outcome, said: Said, seen: Record) -> Final:
    """What is to be kept."""
    status = _status(outcome, said, seen)
    body = None if said.body is None else _body(said.body)
    if body and status in _BODILESS:
        raise _wrong(f"an answer {status} has no body", "Leave --body out, or give another --status.")
    given = _headers(said)
    if headers.is_event_stream(given):
        raise _wrong(
            "an event stream has no end and cannot be kept", "Give the content type of a finished answer."
        )
    if body is None and status not in _BODILESS:
        # The head that had begun to leave is the truth as far as it goes, if nothing else was said.
        head = seen.response.headers if seen.response and seen.response.status == status else ()
        named = {name for name, _ in given}
        return Final(
            outcome, Response(status, (*(pair for pair in head if pair[0] not in named), *given)), True
        )
    if body and headers.find(given, b"content-type") is None:
        given = ((b"content-type", _guessed(body)), *given)
    return Final(outcome, Response(status, given, body or b""))


def _status(outcome: Outcome, said: Said, seen: Record) -> int:
    if said.status is None:
        head = seen.response.status if seen.response else 0
        if outcome == "completed":
            return head if 200 <= head < 500 else 200
        # A failure is never told with the success that its head had promised.
        return head if head >= 400 else 500
    status = said.status
    if not 200 <= status <= 599:
        raise _wrong(f"--status {status} is no final answer", "Give one from 200 to 599.")
    if outcome == "completed" and status >= 500:
        raise _wrong(
            f"--done with status {status} contradicts itself", "Give --failed, or a status below 500."
        )
    if outcome == "failed" and status < 400:
        raise _wrong(
            f"--failed with status {status} would look like a success",
            "Give a status from 400 on, or --done.",
        )
    return status


def _body(said: str) -> bytes:
    if not said.startswith("@"):
        body = said.encode()
    elif said == "@-":
        body = sys.stdin.buffer.read(LARGEST_BODY + 1)
    else:
        try:
            with Path(said[1:]).open("rb") as file:
                body = file.read(LARGEST_BODY + 1)
        except OSError as error:
            raise _wrong(
                f"{clean(said[1:])} cannot be read: {error.strerror}",
                "Give --body @FILE, --body @- for stdin, or the text itself.",
            ) from None
    if len(body) > LARGEST_BODY:
        raise _wrong(
            f"the body is larger than {sized(LARGEST_BODY)}, the most that is kept",
            "Leave --body out: retries then get the status, and a header that says that the body is missing.",
        )
    return body


def _headers(said: Said) -> Headers:
    given: list[Header] = [_header(line) for line in said.headers]
    if said.content_type is not None:
        if headers.find(given, b"content-type") is not None:
            raise _wrong("the content type is given twice", "Use --content-type or --header, not both.")
        given.insert(0, _header(f"content-type: {said.content_type}"))
    return tuple(given)


def _header(line: str) -> Header:
    name, colon, value = line.partition(":")
    try:
        header = (name.strip().lower().encode("ascii"), value.strip().encode("latin-1"))
    except UnicodeEncodeError:
        raise _wrong(f"--header {line} holds characters that no header may have", _FORM) from None
    if not colon or not headers.is_name(header[0]):
        raise _wrong(f"--header {line} has not the form of a header", _FORM)
    if not headers.are_fit(((header[0], b""),)) or header[0] == headers.ORIGINAL_ID:
        raise _wrong(
            f"the header {name.strip()} cannot be kept",
            "Cookies, credentials, lengths, dates and what belongs to one connection are never replayed.",
        )
    if not headers.are_fit((header,)):
        raise _wrong(
            f"the value of the header {name.strip()} holds a line break or another control character",
            f"{_FORM} Each further header takes a --header of its own.",
        )
    return header


_FORM = "Write --header 'Location: /orders/7'."


def _guessed(body: bytes) -> bytes:
    kind, _ = recognise(body)
    match kind:
        case "json":
            return b"application/json"
        case "text":
            return b"text/plain; charset=utf-8"
        case "binary" | "empty":
            return b"application/octet-stream"


def _wrong(message: str, advice: str) -> Failure:
    return Failure(message, f"{advice} Nothing was changed.", Exit.USAGE)
