"""One guarded request whose handler is written in a test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from retrysafe import Guard
from tests.transactions.test_semantics import ask

Handler = Callable[[], int | None]


class Ledger:
    """A guard with a database of its own, for handlers that are written in a test."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


def guarded(guard: Guard, handler: Handler, raises: type[Exception] | None = None) -> int:
    """Run one request with this blocking handler, in a thread as frameworks do, and give its status."""
    try:
        return asyncio.run(ask(Ledger(guard), in_thread(handler), raises=raises)).status  # type: ignore[arg-type]
    finally:
        guard.close()


def in_thread(handler: Handler) -> Callable[[], Coroutine[Any, Any, int | None]]:
    """A plain function, run as frameworks run one under ASGI."""
    return lambda: asyncio.to_thread(handler)
