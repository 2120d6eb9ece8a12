"""Who may wait, and for how long: duplicates for the first request, transactions for a connection."""

from collections import Counter, deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

Wake = Callable[[], None]
Subscribe = Callable[[bytes, Wake], Callable[[], None]]
"""Has `wake` called from another thread when the record with this id has come to an end, until the function
that it gives back is called."""

PER_KEY = 10
"""One client's duplicates; more is a bug or an attack, and neither deserves a wait."""
PER_PROCESS = 100
"""A fraction of the connections that a worker commonly accepts: others must still be served."""
WAIT_THREADS = 1
"""Of a server that gives each request a thread: a quarter of waitress's 4, and others have more.  How many it
has is not known here, and waiters in all of them would delay requests that have nothing to do with theirs."""


class WaitLimit:
    """How many may wait for another attempt, so that a storm of duplicates cannot fill a server.

    Each waiter holds a connection, and outside of event loops a thread, of which at most `threads` may wait.
    Beyond the limits a duplicate gets its 409 at once.  Where the store can tell that an attempt has ended,
    waiters are woken; otherwise they poll.
    """

    def __init__(self, subscribe: Subscribe | None = None, threads: int = WAIT_THREADS) -> None:
        self.listen: Subscribe = subscribe or _never_wake
        self._threads = threads
        self._lock = Lock()
        self._waiting: Counter[bytes] = Counter()
        self._blocked = 0

    def enter(self, id: bytes, *, blocks: bool = False) -> bool:
        """Whether there is a place; `blocks`: a thread waits in it."""
        with self._lock:
            if self._waiting[id] >= PER_KEY or self._waiting.total() >= PER_PROCESS:
                return False
            if blocks and self._blocked >= self._threads:
                return False
            self._waiting[id] += 1
            self._blocked += blocks
            return True

    def leave(self, id: bytes, *, blocks: bool = False) -> None:
        with self._lock:
            self._blocked -= blocks
            self._waiting[id] -= 1
            if not self._waiting[id]:
                del self._waiting[id]


def _never_wake(id: bytes, wake: Wake) -> Callable[[], None]:  # noqa: ARG001
    return lambda: None


PATIENCE = 30.0
"""Seconds to wait for a place: as long as SQLAlchemy and psycopg_pool wait for a connection."""


class ConnectionLimit:
    """How many calls may be inside their handlers at once, where these block threads for a connection.

    A call in a transaction holds its connection until its response is committed, which is after its handler
    has returned; and frameworks need a thread once more in between, as FastAPI does to validate what a
    handler returned.  If by then all threads wait for a connection, none of them gets any further.  So a call
    that would have to wait for a connection waits here, where it takes no thread.
    """

    limit: int | None = None
    """As many as there are connections; `None` where no call waits for one in a thread."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """No call is inside at first, nor in a child process."""
        self._lock = Lock()
        self._inside: set[bytes] = set()
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()

    async def enter(self, token: bytes) -> bool:
        """Wait for a place.  False: there was none in time."""
        import asyncio  # only calls on an event loop come here

        with self._lock:
            if self.limit is None or len(self._inside) < self.limit:
                self._inside.add(token)
                return True
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((token, turn))
        try:
            async with asyncio.timeout(PATIENCE):
                await turn
        except TimeoutError:
            self.leave(token)
            return False
        except BaseException:
            self.leave(token)
            raise
        return True

    def leave(self, token: bytes) -> None:
        """Give the place to the next, from whichever thread; again, or without having one: nothing."""
        with self._lock:
            if token not in self._inside:
                self._waiting = deque(one for one in self._waiting if one[0] != token)
                return
            self._inside.remove(token)
            while self._waiting and (self.limit is None or len(self._inside) < self.limit):
                following, turn = self._waiting.popleft()
                loop = turn.get_loop()
                if not loop.is_closed():
                    self._inside.add(following)
                    loop.call_soon_threadsafe(_let_in, turn)


def _let_in(turn: "asyncio.Future[None]") -> None:
    if not turn.done():  # else it was cancelled, and gives the place back itself
        turn.set_result(None)
