"""Ctrl-C, a closed terminal and a supervisor's SIGTERM: all end the demo, where it is safe to.

A handler that raises does so wherever the program happens to be, and that may be the inside of a lock, which
is then never released: the tidying up waits for it for ever.  So a signal is only noted, and whatever takes
longer than a moment asks for it in between.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

PAUSE = 0.1
"""Seconds for which one may wait without asking."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_noted = False


def stop_if_asked() -> None:
    if _noted:
        raise KeyboardInterrupt


@contextmanager
def noting_signals() -> Generator[None]:
    global _noted  # signals belong to the process, and so does this
    _noted = False
    before = {end: signal.signal(end, _note) for end in _ENDS}
    try:
        yield
    finally:
        for end, handler in before.items():
            signal.signal(end, handler)


def _note(_signal: int, _frame: FrameType | None) -> None:
    global _noted
    _noted = True
