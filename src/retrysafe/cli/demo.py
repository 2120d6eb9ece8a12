"""`retrysafe demo`: what the library does, shown by an example."""

from typing import Annotated

import typer

from retrysafe.cli.store import check_address


def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Leave the payments service running, with curl commands to try.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Lose and retry the same requests as an earlier run."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Keep the keys in this store, beside what it has, and not in a temporary file.",
        ),
    ] = None,
) -> None:
    """Lose responses, retry, kill a server in the middle of a payment, and count the money."""
    from retrysafe.demo import run

    raise typer.Exit(run(serve=serve, seed=seed, store=None if store is None else check_address(store)))
