"""One record, drawn in full: what it is, its timeline, its response, what comes next."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from retrysafe._core.model import Record
from retrysafe.cli import body_preview
from retrysafe.cli.format import (
    DIGITS,
    STANDINGS,
    STYLES,
    clean,
    key_text,
    relative,
    route_text,
    scope_text,
    size_text,
    standing_text,
    timeline,
    timestamp,
)
from retrysafe.cli.next_steps import advice, explained, next_results, possible_commands
from retrysafe.cli.payloads import waits
from retrysafe.cli.projects import as_called
from retrysafe.cli.redaction import redacted_header
from retrysafe.cli.words import exception_of, outcome_of, words
from retrysafe.stores.admin import Entry, Sighting

if TYPE_CHECKING:
    from retrysafe.callbacks.payload import Payload


def render_record(
    sighting: Sighting,
    entries: Sequence[Entry],
    store: str | None,
    delivered: "Payload | None" = None,
    *,
    preview: int,
    show_keys: bool,
    completed: str = "completed",
) -> list[RenderableType]:
    said = words(sighting.record.door)
    parts: list[RenderableType] = [_title(sighting, completed), "", _facts(sighting, show_keys=show_keys)]
    parts += _section("Timeline", _events(sighting, completed))
    if sighting.record.door == "operation":
        parts += _section("Outcome", *_outcome(sighting, preview))
    else:
        parts += _section("Response", *_response(sighting, preview))
    if delivered is not None:
        parts += _section("Payload", *_payload(sighting, delivered, preview))
    if entries:
        parts += _section("Interventions", *interventions(entries, sighting.now))
    parts += _section(f"The next {said.call} with this key", _next(sighting))
    commands = [as_called(command) for command in possible_commands(sighting, store)]
    if commands:
        parts += _section("What you can do", Text(advice(sighting), "dim"))
        parts += [f"  {command}" for command in commands]
    return parts


def render_summary(sighting: Sighting, *, show_keys: bool) -> Group:
    """The same record in short, above a question about it."""
    return Group(_title(sighting), _facts(sighting, show_keys=show_keys, short=True))


def _title(sighting: Sighting, completed: str = "completed") -> Text:
    record = sighting.record
    return Text.assemble(
        (record.id.hex()[:DIGITS], "bold"),
        "  ",
        (standing_text(sighting.standing, completed), STYLES[sighting.standing]),
        "  ",
        (explained(sighting), "dim"),
    )


def _facts(sighting: Sighting, *, show_keys: bool, short: bool = False) -> RenderableType:
    record, now = sighting.record, sighting.now
    facts = [
        (record.door, route_text(record.action, record.target)),
        ("scope", scope_text(record.scope)),
        ("key", key_text(record.key, show_keys=show_keys)),
    ]
    if short:
        facts += [("created", f"{relative(record.created_at, now)}, {timestamp(record.created_at)}")]
        facts += [(f"{words(record.door).call} id", clean(record.request_id))]
        if record.checkpointed and record.response:
            facts += [("sent", f"part of its response, {record.response.status}")]
        return _grid(facts)
    facts += [
        ("door", record.door),
        ("mode", _mode(record)),
        ("attempt", str(record.attempt)),
        ("fingerprint", record.fingerprint.hex()[: 2 * DIGITS]),
        (f"{words(record.door).call} id", clean(record.request_id)),
    ]
    if record.correlation_id:
        facts += [("correlation", clean(record.correlation_id))]
    if record.details:
        facts += [("details", scope_text(record.details))]
    return _grid([*facts, ("id", record.id.hex())])


def _mode(record: Record) -> str:
    if record.mode == "tx":
        return "tx: effects in the caller's transaction, rolled back if abandoned"
    return "lease: effects may be anywhere"


def _events(sighting: Sighting, completed: str) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for event in timeline(sighting):
        style = "dim" if event.at > sighting.now else ""
        emphasis = next((STYLES[standing] for standing in STANDINGS if standing == event.name), style)
        grid.add_row(
            Text(completed if event.name == "completed" else event.name, emphasis),
            Text(relative(event.at, sighting.now), style),
            Text(timestamp(event.at), style),
            Text(clean(event.remark), "dim"),
        )
    return grid


def _response(sighting: Sighting, limit: int) -> Iterable[RenderableType]:
    record = sighting.record
    response = record.response
    if response is None:
        yield Text("none yet", "dim")
        return
    remark = "  partly sent" if record.checkpointed and record.state == "in_progress" else ""
    yield Text.assemble((str(response.status), "bold"), (remark, "dim"))
    for name, value in response.headers:
        shown = name.decode("latin-1")
        yield Text.assemble(
            (f"{clean(shown)}: ", "cyan"), clean(redacted_header(shown, value.decode("latin-1")))
        )
    if record.omitted:
        yield Text("The body was not stored; retries get the status and headers.", "dim")
        return
    # Of a delivery only the status is stored: its sender is told that it was handled, and not what with.
    if record.state == "in_progress" or (record.door == "callback" and not response.body):
        return
    yield from _body(body_preview.preview(response.body, limit), len(response.body))


def _payload(sighting: Sighting, delivered: "Payload", limit: int) -> Iterable[RenderableType]:
    """What was delivered, and whether a worker handles it."""
    yield Text(waits(sighting))
    for name, value in delivered.headers.items():
        yield Text.assemble((f"{clean(name)}: ", "cyan"), clean(redacted_header(name, value)))
    seen = body_preview.preview(delivered.body, limit)
    yield from _body(seen, len(delivered.body), "--payload")


def _outcome(sighting: Sighting, limit: int) -> Iterable[RenderableType]:
    """What an operation returned or raised: its stored form has a status and headers, but no caller has."""
    record = sighting.record
    kind = outcome_of(record)
    if kind is None or record.response is None:
        yield Text("none yet", "dim")
        return
    exception = exception_of(record)
    told = f"{exception.type}: {exception.message}".rstrip(": ") if exception else ""
    yield Text.assemble((kind, "bold"), " with " if told and kind == "failed" else " ", clean(told))
    if record.omitted:
        yield Text("The value was not stored; retries are told that it was done.", "dim")
    elif exception is None:
        body = record.response.body
        yield from _body(body_preview.preview(body, limit, is_json=True), len(body))


def _body(seen: body_preview.Preview, size: int, option: str = "--body") -> Iterable[RenderableType]:
    if seen.kind == "empty":
        yield Text("The body is empty.", "dim")
        return
    yield Text(f"{size_text(size)} of {'JSON' if seen.kind == 'json' else seen.kind}:", "dim")
    for line in seen.lines:
        yield Text(f"  {line}", overflow="fold")
    if seen.cut:
        yield Text(f"  … there is more: --preview N shows more, {option} all of it, secrets included", "dim")


def interventions(entries: Sequence[Entry], now: float) -> Iterable[RenderableType]:
    for entry in entries:
        yield Text.assemble(
            (relative(entry.at, now), ""),
            ("  ", ""),
            (clean(entry.by), "bold"),
            (f"  {entry.act}: {clean(entry.outcome)}", ""),
        )
        yield Text(f"  {clean(entry.reason)}", "dim", overflow="fold")


def _next(sighting: Sighting) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    found = next_results(sighting)
    for one in found:
        grid.add_row(*([Text(f"with {one.when}", "dim")] if one.when else []), Text(one.result))
    if len(found) > 1 and sighting.standing == "abandoned":
        return Group(grid, Text("The service had chosen the first of these when it claimed the key.", "dim"))
    return grid


def _section(title: str, *inside: RenderableType) -> list[RenderableType]:
    return ["", Text(title, "bold"), Padding(Group(*inside), (0, 0, 0, 2))]


def _grid(facts: Sequence[tuple[str, str]]) -> Padding:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, Text(value))
    return Padding(grid, (0, 0, 0, 2))
