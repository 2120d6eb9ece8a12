"""`retrysafe migrate` and `retrysafe sql`: the tables, made or printed."""

from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.options import Dialect, JsonOption, StoreOption
from retrysafe.cli.store import admin_of


def migrate(store: StoreOption = None, json: JsonOption = False) -> None:
    """Bring the store's tables to this release's version. Doing it again does nothing."""
    with admin_of(store) as admin:
        done = admin.migrate()
    if json:
        output.dump({"done": done})
    else:
        output.write(f"{done[:1].upper()}{done[1:]}.\n")


def sql(
    dialect: Annotated[Dialect, typer.Option("--dialect", help="For which database.")] = Dialect.SQLITE,
    json: JsonOption = False,
) -> None:
    """Print the SQL that migrate would run on an empty database, for those who apply it themselves."""
    from retrysafe.stores.sql.statements import source  # slow to load, and only needed here

    # From the file, and not from a store: this needs neither a database nor its driver.
    text = source(dialect.value, "schema").strip("\n") + "\n"
    if json:
        output.dump({"dialect": dialect.value, "sql": text})
    else:
        output.write(text)
