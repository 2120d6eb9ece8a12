"""How many may wait for somebody else's attempt, so that a storm of duplicates cannot fill a server.

Each waiter holds a connection, and often a thread.  Beyond the limits a duplicate gets its 409 at once.

Where the store can tell that an attempt has come to an end, waiters hear it; otherwise they ask now and then.
"""

from collections import Counter
from collections.abc import Callable
from threading import Lock

Wake = Callable[[], None]
Subscribe = Callable[[bytes, Wake], Callable[[], None]]
"""Has `wake` called from another thread when the record with this id has come to an end, until the function
that it gives back is called."""

PER_KEY = 10
"""One client's duplicates; more is a bug or an attack, and neither deserves a wait."""
PER_PROCESS = 100
"""A fraction of the connections that a worker commonly accepts: others must still be served."""


class WaitingRoom:
    def __init__(self, subscribe: Subscribe | None = None) -> None:
        self.listen: Subscribe = subscribe or _hear_nothing
        self._lock = Lock()
        self._waiting: Counter[bytes] = Counter()

    def enter(self, id: bytes) -> bool:
        with self._lock:
            if self._waiting[id] >= PER_KEY or self._waiting.total() >= PER_PROCESS:
                return False
            self._waiting[id] += 1
            return True

    def leave(self, id: bytes) -> None:
        with self._lock:
            self._waiting[id] -= 1
            if not self._waiting[id]:
                del self._waiting[id]


def _hear_nothing(id: bytes, wake: Wake) -> Callable[[], None]:  # noqa: ARG001
    return lambda: None
