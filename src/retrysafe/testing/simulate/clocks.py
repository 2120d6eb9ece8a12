"""The time of the worker whose turn it is.

The flows ask no clock, and stores have their own; only what is planted in them to go by the wrong clock asks
here.
"""

_local = 0.0


def local() -> float:
    """By the clock of the worker that acts."""
    return _local


def set_local(now: float) -> None:
    global _local  # one world has its turn at a time
    _local = now


class StoreClock:
    """The store's time, which passes when it is told to."""

    __slots__ = ("now",)

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
