"""How a thread waits for a conversation: until it is over, and never beyond a deadline."""

import math
import select
import time
from collections.abc import Generator
from typing import TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.postgresql.session import READ, WRITE

T = TypeVar("T")


def wait(conversation: Generator[int, None, T], socket: int, until: float) -> T:
    """Its answer.  What broke off late is left in the middle: see `Session.is_idle`."""
    try:
        wanted = next(conversation)
        while True:
            if not _ready(socket, wanted, until - time.monotonic()):
                raise StoreUnavailable("timed out waiting for PostgreSQL")
            wanted = next(conversation)
    except StopIteration as answer:
        result: T = answer.value
        return result


def _by_poll(socket: int, wanted: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(socket, _EVENTS[wanted])
    return seconds > 0 and bool(poll.poll(math.ceil(seconds * 1000)))


def _by_select(socket: int, wanted: int, seconds: float) -> bool:
    if seconds <= 0:
        return False
    readable, writable, _ = select.select(
        [socket] if wanted & READ else [], [socket] if wanted & WRITE else [], [], seconds
    )
    return bool(readable or writable)


if hasattr(select, "poll"):
    _EVENTS = {READ: select.POLLIN, READ | WRITE: select.POLLIN | select.POLLOUT}
    _ready = _by_poll
else:  # Windows
    _ready = _by_select
