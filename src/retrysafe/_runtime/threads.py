"""Threads in which blocking transactions are ended for an event loop: ours alone.

The loop's own threads are the handlers': all of them may be waiting for a lock or a pooled connection that is
held by a transaction whose commit would then wait for a thread, until somebody's patience ends.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from retrysafe._runtime import fork

P = ParamSpec("P")
T = TypeVar("T")

MOST = 32
"""As many as asyncio would have at most: a commit is short, and more would only wait for the disk."""


class _Threads:
    def __init__(self) -> None:
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """A child process has none of its parent's threads."""
        self._pool: ThreadPoolExecutor | None = None

    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST, "retrysafe-ending")
        return self._pool


_threads = _Threads()


def in_own_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """`asyncio.to_thread`, but never behind a handler, and begun at once.

    No task waits for it, so an event loop that cancels all of its tasks neither prevents it nor forgets it.
    """
    call = partial(copy_context().run, work, *args, **kwargs)
    return asyncio.get_running_loop().run_in_executor(_threads.pool(), call)
