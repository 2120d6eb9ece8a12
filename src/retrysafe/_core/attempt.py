"""The running attempt, as the code below a handler sees it: `current()`.

What is said here (a derived key was given out, nothing has begun) is all the flow learns from inside the
handler, and it is what `decisions.settle` believes or does not believe.
"""

import hmac
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final, Protocol

from retrysafe._core.model import Claim, Parts
from retrysafe.errors import NotGuarded

# Without a secret of the application's own, derived keys are still different per name and per record and do
# not reveal the client's key; but who knows scope and key could compute them.
DEFAULT_SECRET = b"retrysafe derived keys, version 1"


class Attempt:
    """One execution of a guarded call."""

    lost = False
    """Another attempt holds the key by now: what this one responds will not count."""
    lease_ends = 0.0
    """By this process's monotonic clock, as last confirmed by the store."""
    derived = False
    checkpointed = False
    """Bytes of its response have left."""
    promised = False
    """Bytes of its response have left as those of one that will be stored."""
    said_not_started = False
    callbacks: Sequence[Callable[[], object]] = ()
    """What is to be called after the commit, in this order."""
    parts: Sequence["Attempt"] = ()
    """Operations that were done in its transaction and have something to be called after the commit, too."""
    transaction: object = None
    """Where sessions and connections join, if there is one: see `_runtime/transactions.py`."""

    def __init__(
        self, claim: Claim, number: int, secret: bytes = DEFAULT_SECRET, *, leased: bool = True
    ) -> None:
        self.claim = claim
        self._secret = secret
        self.number = number
        """1 for the first; more where an earlier one failed or was abandoned."""
        self.leased = leased
        """Whether the store knows of it; not where it runs unprotected."""

    @property
    def scope(self) -> Parts:
        """Whose key it is."""
        return self.claim.scope

    @property
    def request_id(self) -> str:
        """The id that replays will carry as the original one."""
        return self.claim.request_id

    def derive(self, name: str) -> str:
        """A key for a call to another service, the same on every attempt.

        Pass it on as that service's idempotency key, and safety reaches end to end.  It depends on this
        record's identity and `name`, and on nothing that a retry could change.
        """
        if not name:
            raise ValueError('derive("") has no name: call it with one per outside call, like "charge"')
        self.derived = True
        return hmac.digest(self._secret, self.claim.id + name.encode(), "sha256").hex()

    def on_commit(self, callback: Callable[[], object]) -> None:
        """Have something called once the outcome is stored, and not at all if it is not.

        In transactional mode that is after the commit, and before the response is sent.  A coroutine
        function is awaited where the call is asynchronous.  What it raises is logged, and changes nothing.
        If the process dies in between it is not called: what must not be lost belongs into the transaction.
        """
        if not callable(callback):
            raise TypeError(f"on_commit({callback!r}): expected a function without arguments")
        self.callbacks = (*self.callbacks, callback)

    def not_started(self) -> None:
        """Say that nothing has begun: the response is sent but not stored, and the key stays free.

        For validation that the framework does not do itself.  Not believed once a derived key was given out
        or part of the response was sent.
        """
        self.said_not_started = True

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self.claim.id.hex()[:8]}>"


_running: ContextVar[Attempt | None] = ContextVar("retrysafe_attempt", default=None)


def current() -> Attempt:
    """The guarded call that is running here; raises `NotGuarded` if there is none."""
    attempt = _running.get()
    if attempt is None:
        raise NotGuarded
    return attempt


running = _running.get
"""The same, or `None`."""


enter = _running.set
"""Make an attempt the current one, for the rest of this task or context, or until `leave`."""


leave = _running.reset
"""Make the attempt the current one that was it before, given what `enter` returned."""


class UnclaimedSession(Protocol):
    """A session that has read before the key was claimed, and holds a connection since."""

    def release(self) -> None:
        """Give the connection back, unless it has written; the session goes on with another one."""
        ...

    def release_async(self) -> Awaitable[None]:
        """The same without blocking the event loop."""
        ...


class Unclaimed:
    """What a request has begun in a guard's database before its key is claimed.

    Tasks and threads of the request share it.
    """

    def __init__(self) -> None:
        self.writers: list[object] = []
        """What holds the database's one write lock: a claim would wait for what its own request holds."""
        self.connections: list[object] = []
        """The store of each connection that is open: none can join the transaction of the call."""
        self.sessions: list[UnclaimedSession] = []
        """Each holds a connection.  Calls that wait for a second one, with all others in such hands, would
        wait for each other."""

    @contextmanager
    def connected(self, store: object) -> Generator[None]:
        """While a connection is open."""
        self.connections.append(store)
        try:
            yield
        finally:
            self.connections.remove(store)


NOTHING_BEGUN: Final = Unclaimed()

_unclaimed: ContextVar[Unclaimed | None] = ContextVar("retrysafe_unclaimed", default=None)

unclaimed = _unclaimed.get
"""Of the request that runs here, if its key is not claimed yet; `None` elsewhere."""


def watch_unclaimed() -> Unclaimed:
    """Begin to take notes, for the rest of this task or context; of several guards all have the same."""
    watched = _unclaimed.get()
    if watched is None:
        watched = Unclaimed()
        _unclaimed.set(watched)
    return watched


def connected(store: object) -> AbstractContextManager[None]:
    """While an ordinary connection of a guard's is open, which belongs to no guarded call."""
    watched = _unclaimed.get()
    return nullcontext() if watched is None else watched.connected(store)


def check_unclaimed(watched: Unclaimed, store: object, *, in_database: bool) -> str | None:
    """Why a key cannot be claimed yet, in the words of its developer's next step."""
    if watched.writers:
        return _WROTE_BEFORE
    if in_database and store in watched.connections:
        return _OPENED_BEFORE
    return None


_WROTE_BEFORE = (
    "a session or connection of the guard's wrote before the key of this request was claimed, in "
    "authentication or another dependency, and its transaction is still open: the claim would wait for the "
    "write lock that it holds. Commit there, or write in the endpoint"
)
_OPENED_BEFORE = (
    "a connection of the guard's was opened before the key of this request was claimed, by a dependency or "
    "before_request, and is still open: what the endpoint writes with it would not be committed with the "
    "response. Open it in the endpoint, or use a session, which joins when the endpoint first uses it; for "
    "what is read before, use a connection that is not the guard's"
)
