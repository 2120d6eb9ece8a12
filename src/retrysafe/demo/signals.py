"""Ctrl-C, a closed terminal and a supervisor's SIGTERM end the demo, at a point where it is safe to.

A handler that raises does so wherever the program happens to be, and that may be inside a lock, which is then
never released: the clean-up waits for it for ever.  So a signal is only recorded, and every loop of the demo
checks for it.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

POLL_INTERVAL = 0.1
"""Seconds that a loop may wait before it checks again: a person does not notice them."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_received = False


def raise_if_stopped() -> None:
    """Raise `KeyboardInterrupt` if a signal was received."""
    if _received:
        raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Generator[None]:
    global _received  # signals belong to the process, and so does this
    _received = False
    before = {number: signal.signal(number, _record) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _record(_signal: int, _frame: FrameType | None) -> None:
    global _received
    _received = True
