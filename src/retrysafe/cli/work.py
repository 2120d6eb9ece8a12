"""`retrysafe work`: handle payloads that are stored and not handled yet."""

import logging
import signal
from typing import Annotated, cast

import typer

from retrysafe.cli import output
from retrysafe.cli.application import RECEIPTS, load
from retrysafe.cli.exits import Exit, Failure


def work(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            help="Receipts that store payloads, and have a handler: myapp:finished.",
            show_default=False,
        ),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="How many at a time.")
    ] = 4,
    poll: Annotated[
        str, typer.Option("--poll", metavar="DURATION", help="How long to wait before looking again.")
    ] = "1s",
    once: Annotated[
        bool, typer.Option("--once", help="Handle what is due now, and end: 1 if something of it failed.")
    ] = False,
    factory: Annotated[
        bool, typer.Option("--factory", help="The attribute is a function that returns the receipts.")
    ] = False,
) -> int:
    """Handle stored payloads of callbacks: of an inbox all, otherwise what failed or was interrupted.

    It runs until it is stopped, by SIGTERM or Ctrl+C, and then ends what it has begun.
    """
    from retrysafe.callbacks import Receipts
    from retrysafe.callbacks.worker import Worker

    found = load(target, factory=factory, kind=RECEIPTS)
    if not isinstance(found, Receipts):
        kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
        raise Failure(
            f"{target} is a {kind}, and not receipts",
            "Name what receipts(guard, ...) returned: myapp:finished.",
            Exit.USAGE,
        )
    receipts = cast("Receipts[object]", found)  # of whichever events
    worker = Worker(receipts, concurrency=concurrency, poll=poll)
    # All that is seen of a worker is its log, unless the application has said where that goes.
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: worker.stop())
    output.notice(f"Handling the payloads of {receipts.name}, {concurrency} at a time. Ctrl+C ends it.")
    try:
        if worker.is_async:
            import asyncio  # slow to load

            asyncio.run(worker.run_async(until_idle=once))
        else:
            worker.run(until_idle=once)
    finally:
        receipts.guard.close()
    output.notice(f"Handled {worker.handled}, failed {worker.failed}.")
    return Exit.FOUND if once and worker.failed else Exit.FINE
