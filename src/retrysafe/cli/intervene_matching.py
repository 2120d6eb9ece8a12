"""What changes all records that match a filter has in common; see `intervene.py` for one record."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from retrysafe._core.model import Record
from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import plural, short_id
from retrysafe.cli.intervene import Settings
from retrysafe.cli.store import open_admin
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Admin, Note, Query, Sighting

LIMIT = 1000
"""Records per run: each is changed and audited in a transaction of its own, a few seconds for all of them."""

NO_PAYLOAD = "Without a stored payload only its sender can deliver it again."

_ROWS = 20
"""Of the records to change, shown above the question: enough to see whether the filter is right."""


class Many(NamedTuple):
    """What to do to each of them."""

    verb: str
    past: str
    """The same, done; and its name in JSON."""
    noun: str
    """Of one record."""
    act: Callable[[Admin, Record, Note], bool]
    consequence: Callable[[Sequence[Sighting]], str]
    """Printed before the question, in whole sentences."""
    done: Callable[[Sequence[Sighting]], str]
    """Printed afterwards: what follows."""
    needs_payload: bool = False
    """Records without one are left as they are."""


def refuse_filters(verb: str, **given: object) -> None:
    useless = [f"--{name}" for name, value in given.items() if value is not None]
    if useless:
        raise Failure(
            f"a key was given, and with it {' and '.join(useless)}",
            f"Give a key to {verb} one record, or filters to {verb} many. Nothing was changed.",
            Exit.USAGE,
        )


def require_filter(verb: str, path: str | None, action: str | None) -> None:
    if path is None and action is None:
        raise Failure(
            "neither a key nor --path nor --action was given",
            f"Give the key or the id of one record, or --path or --action to {verb} all records of one.",
            Exit.USAGE,
        )


def intervene_matching(query: Query, many: Many, settings: Settings, limit: int, store: str | None) -> None:
    """Change those records, if the operator confirms it, and each if it is still as it was seen."""
    finished: list[Sighting] = []
    changed: list[Sighting] = []
    trouble: StoreError | None = None
    past = many.past.capitalize()
    with open_admin(store) as admin:
        found = admin.list(query, limit + 1)
        matching, more = found[:limit], len(found) > limit
        if not matching:
            raise Failure(
                f"no {many.noun} matches",
                "Run retrysafe ls with the same filters to see what there is. Nothing was changed.",
            )
        seen = [one for one in matching if one.payload is not None or not many.needs_payload]
        bare = plural(len(matching) - len(seen), many.noun)
        if not seen:
            raise Failure(f"{bare} not {many.past}: there is no stored payload", NO_PAYLOAD, Exit.FOUND)
        if len(seen) < len(matching):
            output.notice(f"{bare} left out: there is no stored payload. {NO_PAYLOAD}")
        number = plural(len(seen), many.noun)
        if not settings.yes:
            prompt.require_terminal()
            _introduce(seen, many.consequence(seen), more=more, show_keys=settings.show_keys)
        note = prompt.ask_note(settings.by, settings.reason)
        if not settings.yes:
            prompt.confirm(f"{many.verb.capitalize()} {number}?")
        try:
            for one in seen:
                (finished if many.act(admin, one.record, note) else changed).append(one)
        except StoreError as error:
            trouble = error
        except KeyboardInterrupt:
            output.notice(f"\n{past} {len(finished):,} of {number}.")
            raise
    if settings.json:
        output.write_json(
            {
                "done": trouble is None and not changed,
                many.past: [one.record.id.hex() for one in finished],
                "changed": [one.record.id.hex() for one in changed],
                "more": more,
                "by": note.by,
                "reason": note.reason,
            }
        )
    else:
        output.write(f"{past} {len(finished):,} of {number}; {many.done([*finished, *changed])}.\n")
    if trouble is not None:
        raise Failure(
            f"{many.past} {len(finished):,} of {number}, then the store failed: {trouble}",
            f"What was {many.past} stays {many.past}. Run retrysafe audit to see whether one more was, then "
            "run this again.",
            Exit.STORE,
        ) from trouble
    if more:
        output.notice(f"More records match. Run it again to {many.verb} them, or give a higher --limit.")
    if changed:
        ids = ", ".join(short_id(one.record.id) for one in changed)
        raise Failure(
            f"not {many.past}, because they changed meanwhile: {ids}",
            "Run retrysafe show to see what each is now.",
        )


def _introduce(seen: Sequence[Sighting], consequence: str, *, more: bool, show_keys: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from retrysafe.cli.render_tables import records_table

    table = records_table(seen[:_ROWS], show_keys=show_keys, stream=sys.stderr)
    rest = len(seen) - _ROWS
    hidden = [Text(f"… and {rest:,} more", "dim")] if rest > 0 else []
    beyond = [Text(f"More than {len(seen):,} match; the others stay.", "dim")] if more else []
    output.draw_stderr(table, *hidden, *beyond, Padding(Text(consequence), (1, 0, 1, 2)))
