"""`retrysafe migrate` and `retrysafe sql`: make a store ready, or print the SQL of its tables."""

from typing import Annotated

import typer

from retrysafe.cli import output, projects
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.options import Dialect, Index, JsonOption, StoreOption, number
from retrysafe.cli.store import open_admin


def migrate(
    store: StoreOption = None,
    index: Annotated[
        list[Index] | None,
        typer.Option(
            "--index",
            metavar="WHAT",
            help="Create this index too, by which ls finds records without a scan: request-id or scope. "
            "Each costs every new request a little. Repeatable.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create the store's tables, or apply the migrations that they lack. Running it again does nothing."""
    _refuse_in_project("migrate")
    with open_admin(store) as admin:
        if index and not admin.schema():
            raise Failure(
                "--index is for tables, and this store has none: ls looks through all records here",
                "Leave --index out. Nothing was done.",
                Exit.USAGE,
            )
        done = admin.migrate([one.of_store for one in index or ()])
    if json:
        output.write_json({"done": done})
    else:
        output.write(f"{done[:1].upper()}{done[1:]}.\n")


def sql(
    dialect: Annotated[Dialect, typer.Option("--dialect", help="The database.")] = Dialect.SQLITE,
    after: Annotated[
        int,
        typer.Option(
            "--after",
            parser=number(0),
            metavar="NUMBER",
            help="Only migrations after this one; `retrysafe doctor` names the last that a database has.",
        ),
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Print the SQL that migrate would run on an empty database, to apply it yourself."""
    _refuse_in_project("sqlmigrate retrysafe 0001")
    from retrysafe.stores.sql.migrations import source  # slow to load, and only needed here

    # From the files and not from a store: this needs neither a database nor its driver.
    text = source(dialect.value, after).strip("\n") + "\n"
    if json:
        output.write_json({"dialect": dialect.value, "sql": text})
    else:
        output.write(text)


def _refuse_in_project(instead: str) -> None:
    """Where a framework applies the migrations: two that do would disagree on what is applied."""
    project = projects.current()
    if project is not None and project.migrates:
        raise Failure(
            "the tables are in the project's database, and Django applies its migrations",
            f"Run python manage.py {instead}.",
            Exit.USAGE,
        )
