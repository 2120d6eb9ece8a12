"""`ATOMIC_REQUESTS` of views that claim their key: the blocks begin after the claim, not around it.

Django wraps a view in a block for each database that has it, unless the view is marked as not atomic.  A claim
inside would not be seen by others until the view is done, and its completion would come before the COMMIT.  So
a view that claims is marked, for its requests only, and opens the same blocks itself.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction
from django.http import HttpRequest

_ALIASES = "_retrysafe_atomic"

_begins_itself: ContextVar[bool] = ContextVar("retrysafe_atomic", default=False)
"""Whether the view that is about to be called opens its blocks itself."""


class _NotAtomic(set[str]):
    """The aliases that a view is not atomic in: all of them, while a method that claims is called.

    Django asks for it once for each request, and of a class there is one view for all of its methods.
    """

    def __contains__(self, alias: object) -> bool:
        return _begins_itself.get() or super().__contains__(alias)


def leave_to_view(request: HttpRequest, callback: Any) -> None:  # noqa: ANN401 - any callable
    """Before a view that claims is called."""
    if iscoroutinefunction(callback):
        return  # of which Django says itself that there are no blocks
    marked: set[str] = getattr(callback, "_non_atomic_requests", set())
    if not isinstance(marked, _NotAtomic):
        callback._non_atomic_requests = marked = _NotAtomic(marked)
    vars(request)[_ALIASES] = [alias for alias in _atomic() if not set.__contains__(marked, alias)]
    _begins_itself.set(True)


def leave_to_django() -> None:
    """Before any other view is called."""
    _begins_itself.set(False)


def _atomic() -> list[str]:
    return [alias for alias, settings in connections.settings.items() if settings["ATOMIC_REQUESTS"]]


def aliases_of(request: HttpRequest) -> Sequence[str]:
    """The databases in which the view of a request has to open a block."""
    found: Sequence[str] = vars(request).pop(_ALIASES, ())
    return found


def blocks(aliases: Sequence[str]) -> ExitStack:
    """The blocks, to be left together."""
    stack = ExitStack()
    for alias in aliases:
        stack.enter_context(transaction.atomic(using=alias))
    return stack
