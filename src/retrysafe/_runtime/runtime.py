"""What all guarded calls of a process share, and the life of each of them, whichever door it came through.

A call begins when its flow says so, is counted as running until its flow is over, and ends in one place:
`Runtime.end`.  Nothing here decides; `protocol.py` asks and the drivers perform.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from retrysafe._core.attempt import DEFAULT_SECRET
from retrysafe._core.decisions import may_forget
from retrysafe._core.model import Claim, Door, Final
from retrysafe._core.steps import ASKED_AGAIN, Result
from retrysafe._runtime import fork
from retrysafe._runtime.admission import WAIT_THREADS, ConnectionLimit, WaitLimit
from retrysafe._runtime.leases import LeaseKeeper
from retrysafe.events import Observed, Observers, log
from retrysafe.stores.contract import Store

if TYPE_CHECKING:
    from asyncio import Future  # importing it takes longer than all of this library

T = TypeVar("T")


class Later(Enum):
    """What a door says to `Run` whose handler is running already: its outcome comes later."""

    LATER = auto()


LATER = Later.LATER


class GuardedCall(Observed, Protocol):
    """One call on its way, as a door brings it."""

    claim: Claim | None
    """Set once its flow has begun to bid for a key."""

    def close(self) -> None:
        """Give back what the call holds: it is over, whether it came to a result or not."""
        ...


class Runtime:
    connection_limit: ConnectionLimit | None = None
    """Before handlers in transactions, where these wait for connections in threads."""

    def __init__(
        self, store: Store, observers: Observers, secret: bytes, wait_threads: int = WAIT_THREADS
    ) -> None:
        self.store = store
        self.aio = store.aio
        self.observers = observers
        self.secret = secret
        self._wait_threads = wait_threads
        self.leases = LeaseKeeper(store)
        self.draining = False
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """Nothing runs at first, nor in a child process."""
        if self.connection_limit is not None:
            self.connection_limit.forked()
        self.wait_limit = WaitLimit(getattr(self.store, "subscribe", None), self._wait_threads)
        self.running: dict[bytes, float] = {}
        """When the calls began that are between their bid and their end, by their tokens."""
        self.tasks: set[Future[Any]] = set()
        """Held here until they have ended, because an event loop holds them only weakly."""

    # --- the life of a call

    def begin(self, call: GuardedCall, claim: Claim) -> None:
        """From now on it counts as running."""
        call.claim = claim
        self.running.setdefault(claim.token, monotonic())

    def end(self, call: GuardedCall, result: Result | None) -> None:
        """It is over, with this result or by an exception: free what it holds, and tell observers."""
        claim, leases = call.claim, self.leases
        seconds: float | None = None
        if claim is not None:
            if (begun := self.running.pop(claim.token, None)) is not None:
                seconds = monotonic() - begun
            attempt = leases.drop(claim)
            if attempt is not None and attempt.derived and self.secret == DEFAULT_SECRET:
                _warn_of_missing_secret()
            if self.connection_limit is not None:
                self.connection_limit.leave(claim.token)
        call.close()
        if result is not None:
            leases.count((result.verdict, call.door, call.route, call.source))
            asked_again = result.verdict in ASKED_AGAIN or result.attempt > 1
            if claim is not None and asked_again and not _is_of_worker(claim):
                leases.count_delivery(claim.id)
            self.observers.ended(call, result, seconds)

    def abandon(self, call: GuardedCall) -> None:
        """It was cancelled before its handler began: nothing was done, so the claim is not kept."""
        if call.claim is not None and may_forget(call.claim):
            self.leases.forget(call.claim)
        self.end(call, None)

    @contextmanager
    def still_running(self, token: bytes) -> Generator[None]:
        """Have a drain wait for what an application does after its response."""
        self.running[token] = monotonic()
        try:
            yield
        finally:
            self.running.pop(token, None)

    def keyless(
        self, action: str, target: str, route: str, *, warn: bool, door: Door = "request", source: str = ""
    ) -> None:
        """A request without a key is served, on a route that takes keys; or a call of a tool; or an event
        without an id."""
        self.leases.count(("keyless", door, route, source))
        self.observers.keyless(action, target, route, warn=warn, door=door, source=source)

    # --- what is shared

    def at_most(self, calls: int | None) -> None:
        """So many calls in transactions may run at once, because each may block a thread for a connection."""
        if self.connection_limit is None:
            self.connection_limit = ConnectionLimit()
        self.connection_limit.limit = calls

    def nothing_joined(self, claim: Claim, final: Final) -> None:
        """A call said that its effects are in our database, and used no session or connection of ours."""
        if final.response.status >= 300:
            return  # a redirect or a refusal needs none
        is_operation = claim.door != "request"  # whose target is an id
        self.observers.once(
            claim.door if is_operation else claim.action,
            claim.action if is_operation else claim.target,
            'effects="database", but it used no session or connection of the guard\'s: what it wrote by '
            "other means was not committed with its outcome, and a crash in between runs it again",
        )

    def unfinished(self) -> int:
        """How much is still running: calls, and what applications do after their responses."""
        return max(len(self.running), len(self.tasks))

    def is_draining(self) -> bool:
        return self.draining

    def remember(self, task: "Future[T]", ended: "Callable[[Future[T]], None] | None" = None) -> None:
        """Hold a task until it has ended; then call `ended`."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if ended is not None:
            task.add_done_callback(ended)

    def close(self) -> None:
        self.leases.close()
        self.store.close()


def _is_of_worker(claim: Claim) -> bool:
    """Whether it is for what was delivered before, and is not delivered now."""
    return claim.inbox is not None and claim.inbox.payload is None


@cache
def _warn_of_missing_secret() -> None:
    """Once per process.  Here and not in `derive`, which is in the core and does not log."""
    log.warning(
        "derive() was called below a guard without a secret: its keys can be computed from a client's scope "
        "and key. Build the guard with secret=; the keys that are derived change with it"
    )
