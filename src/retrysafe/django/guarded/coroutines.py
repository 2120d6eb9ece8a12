"""Which functions Django awaits."""

from collections.abc import Callable
from typing import Any

from asgiref import sync


def is_awaited(function: object) -> bool:
    """Whether Django takes it for a coroutine function.

    On Python 3.11 that is one that asgiref has marked, too, of which `inspect` knows nothing.
    """
    return bool(sync.iscoroutinefunction(function))  # pyright: ignore[reportDeprecated]  # see above


def mark_awaited(function: Callable[..., Any]) -> None:
    """Have Django await what a plain function or object returns."""
    sync.markcoroutinefunction(function)
