"""The clock of the store, and that of the worker whose turn it is.

The flows read no clock, and stores have their own; the worker's is for planted bugs that use the wrong one.
"""

_local = 0.0


def local() -> float:
    """The time by the clock of the worker whose turn it is."""
    return _local


def set_local(now: float) -> None:
    global _local  # one world has its turn at a time
    _local = now


class StoreClock:
    """The store's time, which passes only when an action moves it."""

    __slots__ = ("now",)

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
