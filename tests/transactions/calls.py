"""One guarded request whose handler is written in a test."""

import asyncio
from collections.abc import Awaitable, Callable

from retrysafe import Guard
from tests.transactions.test_semantics import ask

Handler = Callable[[], Awaitable[int | None]]


class Ledger:
    """A guard with a database of its own, for handlers that are written in a test."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


def guarded(guard: Guard, handler: Handler, raises: type[Exception] | None = None) -> int:
    """Run one request with this handler, and give its status."""
    try:
        return asyncio.run(ask(Ledger(guard), handler, raises=raises)).status  # type: ignore[arg-type]
    finally:
        guard.close()
