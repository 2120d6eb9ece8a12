"""Whose a connection is, seen from its other end: known from the kernel, and not from whoever it is."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def owner(port: int, candidates: Iterable[int]) -> int | None:
    """Which of these processes has the end of a connection that is at this port; none, if it is gone."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for pid in candidates:
        with suppress(OSError):  # it may end, or close what we look at, at any moment
            folder = f"/proc/{pid}/fd"
            for name in os.listdir(folder):
                with suppress(OSError):
                    if os.readlink(f"{folder}/{name}") in wanted:
                        return pid
    return None


def _inodes(port: int) -> set[str]:
    """Of the sockets that are bound to it."""
    found: set[str] = set()
    for table in _TABLES:
        with suppress(FileNotFoundError):  # a machine without IPv6
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found - {"0"}
