"""Which process this is, without asking the kernel for it.

Threads, connections and leases do not survive a fork.  Whoever holds some compares the generation they were
made in with the present one; asking for the process id instead would be a system call for every request.
"""

import os


class _Process:
    __slots__ = ("generation",)

    def __init__(self) -> None:
        self.generation = 0

    def forked(self) -> None:
        self.generation += 1


this = _Process()

if hasattr(os, "register_at_fork"):  # where there is no fork, there is nothing to notice
    os.register_at_fork(after_in_child=this.forked)
