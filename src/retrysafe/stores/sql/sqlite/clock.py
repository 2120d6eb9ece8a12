"""One time for all processes of the host, whatever their wall clocks say.

Leases are compared by several processes, so they must agree about the time, and it must never jump.  The
kernel has a clock like that, `CLOCK_BOOTTIME`, which counts from the boot, through suspensions, and which
no process can set.  The first process after a boot stores its distance from the epoch; the others read
it.  A wall clock that is wrong, or is put right, changes nothing until the next boot.

Then the new anchor is the wall clock, but never before the high-water mark, which writers raise while they
work: the store's time goes on, it does not go back.  Where the system has no such clock or does not tell its
boots apart, the time is the wall clock, and never before the mark.

Not served: processes in time namespaces of their own (`unshare --time`), whose boot clocks differ.
"""

import time
from collections.abc import Mapping

MARK_EVERY = 10.0
"""Seconds between two raises of the high-water mark: by so much at most may the store's time fall back, if
the wall clock is wrong after the next boot."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str | None:
    """What the kernel calls the present boot, if it has a name for it and a clock that counts from it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip() or None
    except OSError:
        return None


class HostClock:
    """Seconds since the epoch, once `adopt` has succeeded or `anchor` was called."""

    def __init__(self) -> None:
        self._boot = boot_id()
        self._offset: float | None = None
        self._mark = 0.0
        self._mark_at = 0.0

    def __call__(self) -> float:
        if self._offset is not None:
            return self._offset + time.clock_gettime(time.CLOCK_BOOTTIME)
        self._mark = max(time.time(), self._mark)
        return self._mark

    def adopt(self, meta: Mapping[str, object]) -> bool:
        """Go by what the store knows.  False: it has no anchor for this boot."""
        self.raise_to(meta.get("high_water"))
        if self._boot is None:
            return True
        offset = meta.get("offset")
        if meta.get("boot") != self._boot or not isinstance(offset, float):
            return False
        self._offset = offset
        return True

    def anchor(self) -> dict[str, object]:
        """Be the first of this boot.  Gives what the store should know from now on."""
        epoch = max(time.time(), self._mark)
        offset = epoch - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._offset = offset
        return {"boot": self._boot, "offset": offset}

    def mark_is_due(self) -> bool:
        """Whether the store's mark is to be raised, with the commit that is being made."""
        now = time.monotonic()
        if now < self._mark_at:
            return False
        self._mark_at = now + MARK_EVERY
        return True

    def raise_to(self, mark: object) -> None:
        """Never say less than this."""
        if isinstance(mark, float):
            self._mark = max(mark, self._mark)
