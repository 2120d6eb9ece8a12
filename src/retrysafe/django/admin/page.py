"""What the page of one record shows: what `retrysafe show` prints, in the same words and as redacted."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from retrysafe._core.model import Record as Known
from retrysafe.cli import body_preview, payloads
from retrysafe.cli.format import (
    DIGITS,
    clean,
    key_text,
    long_duration,
    plural,
    relative,
    route_text,
    scope_text,
    size_text,
    standing_text,
    timeline,
    timestamp,
)
from retrysafe.cli.next_steps import NextResult, advice, explained, next_results
from retrysafe.cli.redaction import redacted_header
from retrysafe.cli.words import exception_of, outcome_of, words
from retrysafe.django.admin.rows import EXPIRED
from retrysafe.stores.admin import Sighting

_PREVIEW = 2000
"""Characters of a body, as many as the command line shows."""


class Content(NamedTuple):
    """A stored body, as far as it is shown."""

    remark: str
    text: str = ""
    cut: bool = False
    is_there: bool = False
    """There are bytes that a user with the permission may see in full."""


class Moment(NamedTuple):
    name: str
    ago: str
    at: str
    remark: str
    is_ahead: bool


class Page(NamedTuple):
    title: str
    standing_text: str
    style: str
    explained: str
    advice: str
    next: Sequence[NextResult]
    next_remark: str
    facts: Sequence[tuple[str, str]]
    moments: Sequence[Moment]
    call: str
    outcome_title: str
    outcome: str
    """The status of a response, or how an operation ended."""
    headers: Sequence[tuple[str, str]]
    body: Content | None
    payload_remark: str
    payload_headers: Sequence[tuple[str, str]]
    payload: Content | None
    redrive: str
    """The command that has a worker handle the payload again."""


def page(seen: Sighting, *, expired: bool, payload: bytes | None, whole: bool, completed: str) -> Page:
    """`whole`: bodies and the key in full, secrets included."""
    record = seen.record
    said = words(record.door)
    outcome, headers, body = _outcome(seen, whole=whole)
    delivered = None if payload is None else payloads.readable(payload)
    standing = EXPIRED if expired else seen.standing
    can_redrive = payload is not None and standing in ("abandoned", "failed", "waiting")
    return Page(
        title=f"Record {record.id.hex()[:DIGITS]}",
        standing_text=EXPIRED if expired else standing_text(seen.standing, completed),
        style=standing.replace("_", "-"),
        explained="It counts as absent, and is removed by the next cleanup."
        if expired
        else explained(seen).replace("`", ""),
        advice="" if expired else advice(seen).removesuffix(":"),
        next=[NextResult("", f"runs the {said.code}")] if expired else next_results(seen),
        next_remark=(
            "The service had chosen the first of these when it claimed the key."
            if standing == "abandoned" and record.mode != "tx" and not record.checkpointed
            else ""
        ),
        facts=_facts(seen, whole=whole),
        moments=[
            Moment(
                completed if event.name == "completed" else event.name,
                relative(event.at, seen.now),
                timestamp(event.at),
                clean(event.remark),
                event.at > seen.now,
            )
            for event in timeline(seen)
        ],
        call=said.call,
        outcome_title="Outcome" if record.door == "operation" else "Response",
        outcome=outcome,
        headers=headers,
        body=body,
        payload_remark=payloads.waits(seen),
        payload_headers=[] if delivered is None else _shown_headers(delivered.headers.items(), whole=whole),
        payload=None if delivered is None else _content(delivered.body, whole=whole),
        redrive=f'manage.py retrysafe redrive {record.id.hex()[:DIGITS]} --reason "…"' if can_redrive else "",
    )


def _facts(seen: Sighting, *, whole: bool) -> list[tuple[str, str]]:
    record = seen.record
    said = words(record.door)
    facts = [
        (record.door, route_text(record.action, record.target)),
        ("scope", scope_text(record.scope)),
        ("key", key_text(record.key, show_keys=whole)),
        ("door", record.door),
        ("mode", _mode(record)),
        ("attempt", str(record.attempt)),
        ("fingerprint", record.fingerprint.hex()[: 2 * DIGITS]),
        (f"{said.call} id", clean(record.request_id)),
    ]
    if record.correlation_id:
        facts.append(("correlation id", clean(record.correlation_id)))
    if record.details:
        facts.append(("details", scope_text(record.details)))
    if record.deliveries > 1:
        facts.append(("asked for", _deliveries(seen)))
    return [*facts, ("id", record.id.hex())]


def _deliveries(seen: Sighting) -> str:
    record = seen.record
    asked = plural(record.deliveries, "time")
    again = ", ".join(timestamp(at) for at in record.delivery_times)
    return f"{asked}; again at {again}" if again else asked


def _mode(record: Known) -> str:
    if record.mode == "tx":
        return "tx: effects in the caller's transaction, rolled back if abandoned"
    return "lease: effects may be anywhere"


def _outcome(seen: Sighting, *, whole: bool) -> tuple[str, list[tuple[str, str]], Content | None]:
    record = seen.record
    response = record.response
    if record.door == "operation":
        kind = outcome_of(record)
        if kind is None or response is None:
            return "none yet", [], None
        exception = exception_of(record)
        told = f"{exception.type}: {exception.message}".rstrip(": ") if exception else ""
        outcome = f"{kind}{' with' if told and kind == 'failed' else ''} {clean(told)}".rstrip()
        if record.omitted:
            return outcome, [], Content("The value was not stored; retries are told that it was done.")
        if exception is not None and not whole:
            return outcome, [], Content("", cut=True, is_there=True)
        return outcome, [], _content(response.body, whole=whole, is_json=True)
    if response is None:
        return "none yet", [], None
    partly = record.checkpointed and record.state == "in_progress"
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
    headers = _shown_headers(pairs, whole=whole)
    outcome = f"{response.status}, partly sent" if partly else str(response.status)
    if record.omitted:
        return outcome, headers, Content("The body was not stored; retries get the status and headers.")
    # Of a delivery only the status is stored: its sender is told that it was handled, and not what with.
    if record.state == "in_progress" or (record.door == "callback" and not response.body):
        return outcome, headers, None
    return outcome, headers, _content(response.body, whole=whole)


def _shown_headers(pairs: Any, *, whole: bool) -> list[tuple[str, str]]:  # noqa: ANN401 - of any mapping
    return [(clean(name), clean(value if whole else redacted_header(name, value))) for name, value in pairs]


def _content(body: bytes, *, whole: bool, is_json: bool = False) -> Content:
    seen = body_preview.preview(body, _PREVIEW, is_json=is_json)
    if seen.kind == "empty":
        return Content("The body is empty.")
    lines = body_preview.whole(body) if whole else seen.lines
    kind = "JSON" if seen.kind == "json" else seen.kind
    return Content(f"{size_text(len(body))} of {kind}", "\n".join(lines), seen.cut and not whole, True)


def left(seen: Sighting) -> str:
    """How long the lease of a record in progress lasts."""
    until = seen.record.lease_until
    return "" if until is None else f" for another {long_duration(until - seen.now)}, or longer"
