"""`retrysafe audit`: who intervened, when and why."""

import re
from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import entry_document, plural
from retrysafe.cli.options import JsonOption, ShowKeysOption, StoreOption, number
from retrysafe.cli.store import open_admin

_ID = re.compile(r"[0-9a-f]{6,64}")


def audit(
    store: StoreOption = None,
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="ID", help="Only of this record: the first 6 or more digits of its id."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=number(1), metavar="N", help="Show at most N entries.")
    ] = 50,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Show what operators did, who and why, latest first."""
    if record is not None and not _ID.fullmatch(record.lower()):
        raise Failure(
            f"--record {record} is not a valid id: expected 6 to 64 hexadecimal digits",
            "retrysafe ls and retrysafe show print ids.",
            Exit.USAGE,
        )
    with open_admin(store) as admin:
        found = admin.audit(limit + 1, record and record.lower())
    entries, more = found[:limit], len(found) > limit
    if json:
        output.write_json(
            {"entries": [entry_document(one, show_keys=show_keys) for one in entries], "more": more}
        )
        return
    if not entries:
        output.notice("No interventions." if record is None else "No interventions on this record.")
        return
    from retrysafe.cli.render_tables import render_audit

    output.draw(render_audit(entries, show_keys=show_keys))
    if more:
        output.notice(f"There are more than {plural(limit, 'entry', 'entries')}. Give a higher --limit.")
