"""The connections to a server, by way of a proxy that cuts them, and whose they are."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic

from retrysafe.testing.proxy import Proxy
from tools.crash.modes import Mode
from tools.crash.targets import Cut, Hit

Statements = Mapping[Mode, Sequence[tuple[str, str]]]
"""Those that decide, by mode: a name for each, and a pattern that the proxy finds it by."""


class _Cut:
    def __init__(self, workers: Callable[[], Sequence[int]]) -> None:
        self._workers = workers
        self.hit: Hit | None = None

    def happens(self, port: int) -> None:
        at = monotonic()
        self.hit = Hit(at, owner(port, self._workers()))


class ThroughProxy:
    """What the workers of a round have to the server, under control of the harness."""

    def __init__(self, proxy: Proxy, url: str, statements: Statements) -> None:
        self._proxy = proxy
        self._statements = statements
        self.url = proxy.through(url)

    def cut(self, mode: Mode, random: Random, workers: Callable[[], Sequence[int]]) -> tuple[str, Cut]:
        """Before, during and after the statements that decide."""
        proxy = self._proxy
        name, pattern = random.choice(self._statements[mode])
        cut = _Cut(workers)
        trap = random.choice([proxy.cut_before, proxy.cut_during, proxy.lose_response])(
            pattern, before=cut.happens
        )
        return f"{trap.action} {name}", cut

    def cut_all(self) -> None:
        self._proxy.cut()

    def refuse(self) -> None:
        self._proxy.refuse()
        self._proxy.cut()

    def restore(self) -> None:
        self._proxy.restore()


# --- whose a connection is, seen from its other end: the kernel knows, the worker is not asked

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def owner(port: int, candidates: Iterable[int]) -> int | None:
    """Which of these processes has a connection that ends at this port; `None` if it is gone."""
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
