"""What all guarded calls of a process share: the store, the lease keeper, the waiting room, and the count of
what is running.

Nothing here decides; `protocol.py` asks and `drive.py` performs.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from retrysafe._core import protocol
from retrysafe._core.attempt import DEFAULT_SECRET
from retrysafe._core.model import Claim, Final
from retrysafe._core.steps import Flow, Result
from retrysafe._http.exchange import Exchange
from retrysafe._runtime import fork
from retrysafe._runtime.admission import WaitLimit
from retrysafe._runtime.leases import LeaseKeeper
from retrysafe.events import Observers, log
from retrysafe.stores.contract import Store

if TYPE_CHECKING:
    from asyncio import Task  # importing it takes longer than all of this library

    from retrysafe._runtime.admission import ConnectionLimit

T = TypeVar("T")

SLOW_BACKGROUND = 0.5
"""Seconds after the last byte of an answer that a client does not expect to wait for."""


class Runtime:
    connection_limit: "ConnectionLimit | None" = None
    """Before handlers in transactions, once there is somebody who waits in threads."""

    def __init__(self, store: Store, observers: Observers, secret: bytes) -> None:
        self.store = store
        self.aio = store.aio
        self.observers = observers
        self.secret = secret
        self.leases = LeaseKeeper(store)
        self.draining = False
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """Nothing runs at first, nor in a child process."""
        if self.connection_limit is not None:
            self.connection_limit.forked()
        self.wait_limit = WaitLimit(getattr(self.store, "subscribe", None))
        self.running: set[bytes] = set()
        """Tokens of the calls that are between their bid and their end."""
        self._tasks: dict[Task[Any], Callable[[Task[Any]], None] | None] = {}

    def begin(self, exchange: Exchange, claim: Claim) -> Flow[Result]:
        """The flow from a claim to an answer; from now on it counts as running."""
        self.running.add(claim.token)
        return protocol.once(exchange.call(claim, self.is_draining, self.secret))

    def end(self, exchange: Exchange, claim: Claim | None, answer: Result | None) -> None:
        """It is over, with this answer or by an exception: let go of everything, and tell observers."""
        if claim is not None:
            self.running.discard(claim.token)
            attempt = self.leases.drop(claim)
            if attempt is not None and attempt.derived and self.secret == DEFAULT_SECRET:
                _warn_of_missing_secret()
            if self.connection_limit is not None:
                self.connection_limit.leave(claim.token)
            exchange.drop_call()
        waited = exchange.rules.request.background == "before"
        if waited and exchange.body.on_disk:
            exchange.body.close()  # else the application may still be reading it
        if waited and exchange.background > SLOW_BACKGROUND:
            self.observers.once(
                exchange.request.method,
                exchange.request.path,
                "the client waited for work after the last byte of its answer (%.1f s this time); if a "
                'failure of that work does not concern the client, background="after" answers first',
                exchange.background,
            )
        if answer is not None:
            self.leases.note(answer.verdict)
            self.observers.ended(exchange.request, claim, answer)

    def at_most(self, calls: int | None) -> None:
        """So many calls in transactions may run at once, because each may block a thread for a connection."""
        if self.connection_limit is None:
            from retrysafe._runtime.admission import (
                ConnectionLimit,  # only those need it who use transactions
            )

            self.connection_limit = ConnectionLimit()
        self.connection_limit.limit = calls

    def nothing_joined(self, claim: Claim, final: Final) -> None:
        """A call said that its effects are in our database, and used no session or connection of ours."""
        if final.response.status >= 300:
            return  # a redirect or a refusal needs none
        self.observers.once(
            claim.action,
            claim.target,
            'effects="database", but the handler used no session or connection of the guard\'s: what it '
            "wrote by other means was not committed with its response, and a crash in between runs it again",
        )

    def unfinished(self) -> int:
        """How much is still running: calls, and what applications do after their answers."""
        return max(len(self.running), len(self._tasks))

    def is_draining(self) -> bool:
        return self.draining

    def remember(self, task: "Task[T]", ended: "Callable[[Task[T]], None] | None" = None) -> None:
        """Hold a task until it has ended, because the event loop holds it only weakly; then say so."""
        self._tasks[task] = ended
        task.add_done_callback(self._let_go)

    def _let_go(self, task: "Task[Any]") -> None:
        ended = self._tasks.pop(task, None)
        if ended is not None:
            ended(task)

    def close(self) -> None:
        self.leases.close()
        self.store.close()


@cache
def _warn_of_missing_secret() -> None:
    """Once per process.  Here and not in `derive`, which is in the core and does not log."""
    log.warning(
        "derive() was called below a guard without a secret: its keys can be computed from a client's scope "
        "and key. Build the guard with secret=; the keys that are derived change with it"
    )
