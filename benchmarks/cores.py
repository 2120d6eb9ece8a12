"""Which core does what, and how much of it was used.

Servers share one core and the load generator has another: idle servers do not disturb, and what the client
costs is not taken from the server that is measured.  All this is asked of Linux, in Linux's own terms.
"""

import contextlib
import os
import time
from pathlib import Path


def plan() -> tuple[int | None, int | None]:
    """The core of the servers and that of the load; neither is pinned where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) > 1 else (None, None)


def pin(core: int | None, process: int = 0) -> None:
    """Keep a process, by default this one, and the threads and processes that it will start on one core."""
    if core is not None:
        os.sched_setaffinity(process, {core})


def cpu_seconds(process: int) -> float:
    """CPU time of a process, its threads and its children, to the nanosecond.

    Linux gives every process a clock whose number is made of its id (`MAKE_PROCESS_CPUCLOCK` in the kernel);
    /proc/<id>/stat says the same in hundredths of a second, which is too coarse for a round.
    """
    return sum(_cpu_seconds(member) for member in _family(process))


def _cpu_seconds(process: int) -> float:
    try:
        return time.clock_gettime((~process << 3) | 2)
    except OSError:  # it has ended since it was seen, as processes of a database do
        return 0.0


def busy_seconds(core: int | None) -> float:
    """How long a core has worked for anybody since the machine was started; all cores, if none is named."""
    name = "cpu" if core is None else f"cpu{core}"
    for line in Path("/proc/stat").read_text().splitlines():
        label, *ticks = line.split()
        if label == name:
            user, nice, system, _idle, _waiting, *others = map(int, ticks[:8])  # interrupts, and stolen time
            return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def resident_bytes(process: int) -> int:
    """What a process and its children hold in memory.  The system's cache of files is not among it."""
    total = 0
    for member in _family(process):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def _family(process: int) -> list[int]:
    members = [process]
    for member in members:
        # One that has ended since it was seen has none, as processes of a database do.
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{member}/task/{member}/children").read_text()
            members += [int(child) for child in children.split()]
    return members
