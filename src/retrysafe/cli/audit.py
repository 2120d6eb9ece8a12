"""`retrysafe audit`: who intervened, when and why."""

import re
from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import entry_document, plural
from retrysafe.cli.options import LARGEST, JsonOption, ShowKeysOption, StoreOption
from retrysafe.cli.store import admin_of

_ID = re.compile(r"[0-9a-f]{6,64}")


def audit(
    store: StoreOption = None,
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="ID", help="Only about this record: the first 6 or more digits of its id."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=LARGEST, metavar="N", help="Show no more than so many.")
    ] = 50,
    show_keys: ShowKeysOption = False,
    json: JsonOption = False,
) -> None:
    """Show what operators did, by whom and why, the latest first."""
    if record is not None and not _ID.fullmatch(record.lower()):
        raise Failure(
            f"--record {record} is no id: it has 6 to 64 hexadecimal digits",
            "ls and show print the ids of records.",
            Exit.USAGE,
        )
    with admin_of(store) as admin:
        found = admin.audit(limit + 1, record and record.lower())
    entries, more = found[:limit], len(found) > limit
    if json:
        output.dump({"entries": [entry_document(one, show_keys=show_keys) for one in entries], "more": more})
        return
    if not entries:
        output.say("Nobody has intervened." if record is None else "Nobody has intervened here.")
        return
    from retrysafe.cli.render_tables import trail

    output.draw(trail(entries, show_keys=show_keys))
    if more:
        output.say(f"There are more than {plural(limit, 'entry', 'entries')}: --limit shows more of them.")
