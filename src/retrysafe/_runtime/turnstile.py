"""How many guarded calls may be inside of their handlers at once, where these block threads for a connection.

A call in a transaction holds its connection until its answer is committed, which is after its handler has
returned; and frameworks need a thread once more in between, as FastAPI does to check what a handler gave.  If
by then all threads wait for a connection, nobody gets any further.  So whoever would have to wait for a
connection waits here, where it takes no thread.
"""

import asyncio
from collections import deque
from threading import Lock

PATIENCE = 30.0
"""Seconds to wait for a place: as long as SQLAlchemy and psycopg_pool wait for a connection."""


class Turnstile:
    limit: int | None = None
    """As many as there are connections; `None` where nobody waits for one in a thread."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Nobody is inside at first, nor in a child process."""
        self._lock = Lock()
        self._inside: set[bytes] = set()
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()

    async def enter(self, token: bytes) -> bool:
        """Wait for a place.  False: there was none in time."""
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
