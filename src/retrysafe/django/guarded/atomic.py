"""`ATOMIC_REQUESTS` of views that claim their key: the blocks begin after the claim, not around it.

Django wraps a view in a block for each database that has it, unless the view is marked as not atomic.  A
claim inside would not be seen by others until the view is done, and its completion would come before the
COMMIT.  So a view that claims is marked, for its requests only, and opens the same blocks itself.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest

from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.errors import CommitRefused

_ALIASES = "_retrysafe_atomic"
_BEFORE = "_retrysafe_before"

_begins_itself: ContextVar[bool] = ContextVar("retrysafe_atomic", default=False)
"""Whether the view that is about to be called opens its blocks itself."""


class _NotAtomic(set[str]):
    """The aliases that a view is not atomic in: all of them, while a method that claims is called.

    Django asks for it once for each request, and of a class there is one view for all of its methods.
    """

    def __contains__(self, alias: object) -> bool:
        return _begins_itself.get() or self.names(alias)

    def names(self, alias: object) -> bool:
        """Whether the project has said so of this one."""
        return super().__contains__(alias)


def leave_to_view(request: HttpRequest, callback: Any) -> None:  # noqa: ANN401 - any callable
    """Before a view that claims is called."""
    atomic = _atomic()
    if not atomic or is_awaited(callback):
        return  # of coroutines Django says itself that there are no blocks
    marked: set[str] = getattr(callback, "_non_atomic_requests", set())
    if not isinstance(marked, _NotAtomic):
        callback._non_atomic_requests = marked = _NotAtomic(marked)
    aliases = [alias for alias in atomic if not marked.names(alias)]
    vars(request)[_ALIASES] = aliases
    _begins_itself.set(True)
    # Within a transaction of a test's, a framework that refuses the request marks the innermost block for
    # rollback, which is not to be the test's own.
    if within := [alias for alias in aliases if connections[alias].in_atomic_block]:
        vars(request)[_BEFORE] = [(alias, _enter(alias)) for alias in within]


def _enter(alias: str) -> Any:  # noqa: ANN401 - Django's class is private
    block = transaction.atomic(using=alias)
    block.__enter__()
    return block


def leave_before(request: HttpRequest) -> None:
    """Leave the blocks around what comes before a claim; those within which others have begun stay."""
    entered: list[tuple[str, Any]] = vars(request).get(_BEFORE, [])
    for alias, block in reversed(tuple(entered)):
        if connections[alias].atomic_blocks[-1:] == [block]:
            entered.remove((alias, block))
            block.__exit__(None, None, None)


def leave_to_django() -> None:
    """Before any other view is called."""
    _begins_itself.set(False)


def _atomic() -> list[str]:
    return [alias for alias, settings in connections.settings.items() if settings["ATOMIC_REQUESTS"]]


def aliases_of(request: HttpRequest) -> Sequence[str]:
    """The databases in which the view of a request has to open a block."""
    leave_before(request)
    found: Sequence[str] = vars(request).pop(_ALIASES, ())
    return found


def mark_for_rollback() -> None:
    """Have the blocks undone that Django has opened around a view whose exception becomes a response."""
    for alias in _atomic():
        if connections[alias].in_atomic_block:
            transaction.set_rollback(True, using=alias)


def check_blocks(aliases: Sequence[str]) -> None:
    """Before the blocks of a view that responded with success are left: Django undoes one without a word."""
    for alias in aliases:
        connection = connections[alias]
        if connection.needs_rollback or connection.closed_in_transaction or connection.connection is None:
            raise CommitRefused(
                f"the block of ATOMIC_REQUESTS around a guarded view in {alias!r} could only be undone, "
                "and the view responded with success: it was marked by set_rollback(), or by an error of the "
                "database that was caught outside of a block of its own, or its connection was closed"
            )


def blocks(aliases: Sequence[str]) -> ExitStack:
    """The blocks, to be left together."""
    stack = ExitStack()
    for alias in aliases:
        stack.enter_context(transaction.atomic(using=alias))
    return stack
