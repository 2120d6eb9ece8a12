"""One record, drawn in full: what it is, its life, its answer, what comes next."""

from collections.abc import Iterable, Sequence

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
    relative,
    sized,
    spoken_key,
    spoken_route,
    spoken_scope,
    spoken_standing,
    stamp,
    timeline,
)
from retrysafe.cli.next_steps import possible_commands, prospects
from retrysafe.cli.redaction import redacted_header
from retrysafe.stores.admin import Entry, Sighting

_EXPLAINED = {
    "abandoned": "Its owner died or lost the store; what it did is not known.",
    "in_progress": "Its lease is alive: its owner is at it, or has died only now.",
    "completed": "Settled; retries get its answer.",
    "failed": "Settled as a failure.",
}


def portrait(
    sighting: Sighting, entries: Sequence[Entry], store: str | None, *, preview: int, show_keys: bool
) -> list[RenderableType]:
    parts: list[RenderableType] = [_title(sighting), "", _facts(sighting, show_keys=show_keys)]
    parts += _section("Timeline", _events(sighting))
    parts += _section("Response", *_answer(sighting, preview))
    if entries:
        parts += _section("Interventions", *interventions(entries, sighting.now))
    parts += _section("The next request with this key", _next(sighting))
    commands = possible_commands(sighting, store)
    if commands:
        parts += _section("What you can do", Text("Find out what really happened, then say so:", "dim"))
        parts += [f"  {command}" for command in commands]
    return parts


def panel(sighting: Sighting, *, show_keys: bool) -> Group:
    """The same record in short, above a question about it."""
    return Group(_title(sighting), _facts(sighting, show_keys=show_keys, short=True))


def _title(sighting: Sighting) -> Text:
    record = sighting.record
    return Text.assemble(
        (record.id.hex()[:DIGITS], "bold"),
        "  ",
        (spoken_standing(sighting.standing), STYLES[sighting.standing]),
        "  ",
        (_EXPLAINED[sighting.standing], "dim"),
    )


def _facts(sighting: Sighting, *, show_keys: bool, short: bool = False) -> RenderableType:
    record, now = sighting.record, sighting.now
    facts = [
        ("request", spoken_route(record.action, record.target)),
        ("scope", spoken_scope(record.scope)),
        ("key", spoken_key(record.key, show_keys=show_keys)),
    ]
    if short:
        facts += [("created", f"{relative(record.created_at, now)}, {stamp(record.created_at)}")]
        facts += [("request id", clean(record.request_id))]
        if record.checkpointed and record.response:
            facts += [("sent", f"its answer, {record.response.status}, had begun to leave")]
        return _grid(facts)
    facts += [
        ("door", record.door),
        ("mode", _mode(record)),
        ("attempt", str(record.attempt)),
        ("fingerprint", record.fingerprint.hex()[: 2 * DIGITS]),
        ("request id", clean(record.request_id)),
    ]
    if record.correlation_id:
        facts += [("correlation", clean(record.correlation_id))]
    return _grid([*facts, ("id", record.id.hex())])


def _mode(record: Record) -> str:
    if record.mode == "tx":
        return "tx: in the caller's transaction, rolled back if it was abandoned"
    return "lease: effects may be anywhere"


def _events(sighting: Sighting) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for event in timeline(sighting):
        style = "dim" if event.at > sighting.now else ""
        emphasis = next((STYLES[standing] for standing in STANDINGS if standing == event.name), style)
        grid.add_row(
            Text(event.name, emphasis),
            Text(relative(event.at, sighting.now), style),
            Text(stamp(event.at), style),
            Text(clean(event.remark), "dim"),
        )
    return grid


def _answer(sighting: Sighting, limit: int) -> Iterable[RenderableType]:
    record = sighting.record
    response = record.response
    if response is None:
        yield Text("none yet", "dim")
        return
    remark = (
        "  so far: it had begun to leave" if record.checkpointed and record.state == "in_progress" else ""
    )
    yield Text.assemble((str(response.status), "bold"), (remark, "dim"))
    for name, value in response.headers:
        shown = name.decode("latin-1")
        yield Text.assemble(
            (f"{clean(shown)}: ", "cyan"), clean(redacted_header(shown, value.decode("latin-1")))
        )
    if record.omitted:
        yield Text("The body was not kept; status and headers stand for it.", "dim")
        return
    if record.state == "in_progress":
        return
    seen = body_preview.preview(response.body, limit)
    if seen.kind == "empty":
        yield Text("The body is empty.", "dim")
        return
    yield Text(f"{sized(len(response.body))} of {'JSON' if seen.kind == 'json' else seen.kind}:", "dim")
    for line in seen.lines:
        yield Text(f"  {line}", overflow="fold")
    if seen.cut:
        yield Text("  … there is more: --preview shows more of it, --body all, secrets included", "dim")


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
    found = prospects(sighting)
    for one in found:
        grid.add_row(*([Text(f"with {one.when}", "dim")] if one.when else []), Text(one.answer))
    if len(found) > 1 and sighting.standing == "abandoned":
        return Group(
            grid, Text("The first of these is what the service had chosen when it claimed the key.", "dim")
        )
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
