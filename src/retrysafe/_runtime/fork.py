"""Who has to begin anew after a fork.

Threads, locks, connections and leases do not survive one.  Whoever holds some has itself watched, and is told
in the child before anything else runs there; asking for the process id at every use would be a system call
for every request.
"""

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    def forked(self) -> None:
        """This is a child process now: let go of what belongs to the parent."""
        ...


_watched: WeakSet[Forked] = WeakSet()


def watch(holder: Forked) -> None:
    """Tell `holder` in every child process, for as long as it lives."""
    _watched.add(holder)


def _after_in_child() -> None:
    for holder in list(_watched):
        holder.forked()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is nothing to notice
    os.register_at_fork(after_in_child=_after_in_child)
