"""The response that an operator stores for a request whose own response is unknown, or the value of a call.

Stored as given, after the checks that every response to clients passes.  Without a body it is a tombstone:
retries get the status and headers, an empty body, and a header that says that the body is missing.
"""

import json
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from retrysafe._core import headers
from retrysafe._core.model import FAILED, VALUE, Final, Header, Headers, Record, Response
from retrysafe.cli.body_preview import recognise
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import clean, size_text
from retrysafe.policy import OutcomeRules

Outcome = Literal["completed", "failed"]

LARGEST_BODY: int = OutcomeRules._field_defaults["max_response"]
"""The limit of services that set none of their own."""

_JSON: Headers = ((b"content-type", b"application/json"),)

_BODILESS = frozenset({204, 205, 304})
"""RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5: such a response has no content."""


class ResponseOptions(NamedTuple):
    """What was given by an operator."""

    status: int | None = None
    body: str | bytes | None = None
    """Text may name a file, or stdin; bytes are the body."""
    headers: tuple[str, ...] = ()
    content_type: str | None = None


class OperationOptions(NamedTuple):
    """The same for an operation."""

    value: str | bytes | None = None
    message: str | None = None


def refuse_options(given: NamedTuple, why: str, advice: str) -> None:
    """Options that belong to another door."""
    fields = given._asdict()
    named = [_OPTIONS.get(name, f"--{name}") for name in fields if fields[name] not in (None, ())]
    if named:
        raise _usage_error(f"{why}, and so no {' or '.join(named)}", advice)


_OPTIONS = {"headers": "--header", "content_type": "--content-type"}
"""Where an option is called otherwise than its field."""

_BY_HAND = "ResolvedByOperator"
"""Stands where the class of an exception stands in a failure: the caller reads it."""


def build_outcome(outcome: Outcome, given: OperationOptions) -> Final:
    """What to store for an operation, in the form in which its own outcome would be."""
    unused = "--message" if outcome == "completed" else "--value"
    if (given.message if outcome == "completed" else given.value) is not None:
        raise _usage_error(
            f"{unused} does not go with --{'done' if outcome == 'completed' else 'failed'}",
            "--value says what a call returned that was done, --message how it failed.",
        )
    if outcome == "failed":
        message = given.message or "an operator found that it failed"
        failure = json.dumps({"type": _BY_HAND, "message": message}).encode()
        return Final("failed", Response(FAILED, _JSON, failure))
    if given.value is None:
        return Final("completed", Response(VALUE, _JSON), True)
    body = _body(given.value, "--value")
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _usage_error(
            f"--value is not valid JSON: {error}",
            "Write it as the service stores it: retrysafe show prints the value of an earlier call. A text "
            """is written with its quotation marks: --value '"paid"'.""",
        ) from None
    return Final("completed", Response(VALUE, _JSON, json.dumps(value, ensure_ascii=False).encode()))


def build_final(outcome: Outcome, given: ResponseOptions, seen: Record) -> Final:
    """The outcome to store."""
    status = _status(outcome, given, seen)
    body = None if given.body is None else _body(given.body)
    if body and status in _BODILESS:
        raise _usage_error(
            f"a response with status {status} has no body", "Leave --body out, or give another --status."
        )
    fields = _headers(given)
    if headers.is_event_stream(fields):
        raise _usage_error(
            "an event stream has no end and cannot be stored", "Give the content type of a finished response."
        )
    if body is None and status not in _BODILESS:
        # The client may have received the head that was sent, so it stays, unless another one was given.
        head = seen.response.headers if seen.response and seen.response.status == status else ()
        named = {name for name, _ in fields}
        return Final(
            outcome, Response(status, (*(pair for pair in head if pair[0] not in named), *fields)), True
        )
    if body and headers.find(fields, b"content-type") is None:
        fields = ((b"content-type", _guess_type(body)), *fields)
    return Final(outcome, Response(status, fields, body or b""))


def _status(outcome: Outcome, given: ResponseOptions, seen: Record) -> int:
    if given.status is None:
        head = seen.response.status if seen.response else 0
        if outcome == "completed":
            return head if 200 <= head < 500 else 200
        # A failure must not be replayed with the success status that was sent before it failed.
        return head if head >= 400 else 500
    status = given.status
    if not 200 <= status <= 599:
        raise _usage_error(f"--status {status} is not a final status", "Give one from 200 to 599.")
    if outcome == "completed" and status >= 500:
        raise _usage_error(
            f"--done with status {status} is contradictory", "Give --failed, or a status below 500."
        )
    if outcome == "failed" and status < 400:
        raise _usage_error(
            f"--failed with status {status} would look like a success",
            "Give a status from 400 on, or --done.",
        )
    return status


def _body(text: str | bytes, option: str = "--body") -> bytes:
    if isinstance(text, bytes):
        body = text
    elif not text.startswith("@"):
        body = text.encode()
    elif text == "@-":
        body = sys.stdin.buffer.read(LARGEST_BODY + 1)
    else:
        try:
            with Path(text[1:]).open("rb") as file:
                body = file.read(LARGEST_BODY + 1)
        except OSError as error:
            raise _usage_error(
                f"{clean(text[1:])} cannot be read: {error.strerror}",
                f"Give {option} @FILE, {option} @- for stdin, or the text itself.",
            ) from None
    if len(body) > LARGEST_BODY:
        raise _usage_error(
            f"{option} is larger than {size_text(LARGEST_BODY)}, the most that is stored",
            f"Leave {option} out: retries then learn that it was done, and that this is missing.",
        )
    return body


def _headers(given: ResponseOptions) -> Headers:
    fields: list[Header] = [_header(line) for line in given.headers]
    if given.content_type is not None:
        if headers.find(fields, b"content-type") is not None:
            raise _usage_error("the content type is given twice", "Use --content-type or --header, not both.")
        fields.insert(0, _header(f"content-type: {given.content_type}"))
    return tuple(fields)


def _header(line: str) -> Header:
    name, colon, value = line.partition(":")
    try:
        header = (name.strip().lower().encode("ascii"), value.strip().encode("latin-1"))
    except UnicodeEncodeError:
        raise _usage_error(f"--header {line} contains characters that a header cannot have", _FORM) from None
    if not colon or not headers.is_name(header[0]):
        raise _usage_error(f"--header {line} is not of the form NAME: VALUE", _FORM)
    if not headers.are_fit(((header[0], b""),)) or header[0] == headers.ORIGINAL_ID:
        raise _usage_error(
            f"the header {name.strip()} cannot be stored",
            "Cookies, credentials, lengths, dates and connection headers are never replayed.",
        )
    if not headers.are_fit((header,)):
        raise _usage_error(
            f"the value of the header {name.strip()} contains a line break or another control character",
            f"{_FORM} Give --header again for each further header.",
        )
    return header


_FORM = "Write --header 'Location: /orders/7'."


def _guess_type(body: bytes) -> bytes:
    kind, _ = recognise(body)
    match kind:
        case "json":
            return b"application/json"
        case "text":
            return b"text/plain; charset=utf-8"
        case "binary" | "empty":
            return b"application/octet-stream"


def _usage_error(message: str, advice: str) -> Failure:
    return Failure(message, f"{advice} Nothing was changed.", Exit.USAGE)
