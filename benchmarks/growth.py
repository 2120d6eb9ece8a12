"""What a million records change: the time of a reservation, the memory of a process, a purge under load."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import cores, goals, records
from benchmarks.client import Client
from benchmarks.load import Order, Tally
from benchmarks.rounds import CONNECTIONS, Progress, Spread
from benchmarks.servers import Running, Server
from retrysafe import stores
from retrysafe._core.model import Found, Reserved

FEW = 10_000
MANY = 1_000_000
SQLITE = Server("sqlite")

TURN = 1.0
"""Seconds of traffic with and without the purge, in turns."""


@dataclass(frozen=True)
class Size:
    """How long a run takes; figures of a quick one prove only that it works."""

    many: int = MANY
    operations: int = 1_000
    memory_seconds: float = 4.0
    purge_turns: int = 10

    @classmethod
    def quick(cls) -> "Size":
        return cls(many=3 * FEW, operations=100, memory_seconds=0.3, purge_turns=2)


@dataclass(frozen=True)
class Latency:
    """The median of one operation, in seconds, alone in its process."""

    few: float
    many: float

    @property
    def ratio(self) -> float:
        return self.many / self.few


@dataclass(frozen=True)
class Purge:
    kept: Spread
    """Of the traffic, while it runs."""
    kept_tidying: Spread
    """The same without the purge: a server removes expired records itself as it works."""
    removed: int
    per_second: float
    removed_besides: int
    """By the server itself, which tidies up as it works."""
    finished: bool
    errors: int


@dataclass(frozen=True)
class Growth:
    records: int
    reserve: Latency
    finish: Latency
    whole: Latency
    """Reserving and finishing: what a fresh key costs."""
    replay: Latency
    memory_few: int
    """Bytes of a server process on an empty store, after the same traffic."""
    memory_many: int
    purge: Purge | None
    """`None`: this release cannot purge from another process."""

    def document(self) -> dict[str, object]:
        return asdict(self)

    def figures(self) -> dict[str, float]:
        """Those that goals are about; none, if there were not a million."""
        if self.records < MANY:
            return {}
        figures = {
            goals.GROWTH_RESERVE: self.reserve.ratio,
            goals.GROWTH_FRESH: self.whole.ratio,
            goals.GROWTH_REPLAY: self.replay.ratio,
            goals.GROWTH_MEMORY: (self.memory_many - self.memory_few) / 1e6,
        }
        return figures if self.purge is None else {**figures, goals.PURGE_TRAFFIC: self.purge.kept.median}


def measure(size: Size, folder: Path, tell: Progress) -> Growth:
    few, many = folder / "few" / "keys.db", folder / "many" / "keys.db"
    tell(f"inserting {FEW:,} and {size.many:,} records")
    records.fill(few, FEW)
    records.fill(many, size.many)
    tell("timing reservations")
    reserve, finish, whole, replay = _latencies(few, many, size.operations)
    tell("weighing processes")
    memory_few = _weigh(folder / "empty", size.memory_seconds)
    memory_many = _weigh(many.parent, size.memory_seconds)
    purge = None
    if hasattr(stores.open(records.url(few)), "open_admin"):
        tell(f"inserting {size.many:,} records that have expired")
        expired = folder / "expired" / "keys.db"
        records.fill(expired, size.many, expired=True)
        purge = _purge(expired, many, size.many, size.purge_turns, tell)
    return Growth(size.many, reserve, finish, whole, replay, memory_few, memory_many, purge)


def _latencies(few: Path, many: Path, operations: int) -> tuple[Latency, Latency, Latency, Latency]:
    """Both stores in turns, in one process, so that whatever disturbs, disturbs both."""
    paths = (few, many)
    opened = [stores.open(records.url(path), deadline=30) for path in paths]
    known = [iter(records.some_ids(path, operations)) for path in paths]
    took = [{name: list[float]() for name in ("reserve", "finish", "whole", "replay")} for _ in paths]
    for store in opened:
        store.look(bytes(32))  # opens it
    for _ in range(operations):
        for store, ids, times in zip(opened, known, took, strict=True):
            claim, again = records.claim(), records.claim(next(ids))
            reserved, reserve = _timed(lambda: store.reserve(claim))  # noqa: B023 - called at once
            finished, finish = _timed(lambda: store.finish(claim, records.ANSWER))  # noqa: B023
            found, replay = _timed(lambda: store.reserve(again))  # noqa: B023
            if not isinstance(reserved, Reserved) or not finished or not isinstance(found, Found):
                raise RuntimeError(f"the store answered {reserved}, {finished} and {found}")
            for name, seconds in (("reserve", reserve), ("finish", finish), ("replay", replay)):
                times[name].append(seconds)
            times["whole"].append(reserve + finish)
    for store in opened:
        store.close()
    reserve, finish, whole, replay = (
        Latency(statistics.median(took[0][name]), statistics.median(took[1][name]))
        for name in ("reserve", "finish", "whole", "replay")
    )
    return reserve, finish, whole, replay


def _timed(call: Callable[[], object]) -> tuple[object, float]:
    began = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - began


def _weigh(folder: Path, seconds: float) -> int:
    """Memory of a server process that has had its share of fresh keys and replays."""
    server_core, client_core = cores.plan()
    server = Running(SQLITE, folder, server_core)
    try:
        server.wait()
        with Client(client_core) as client:
            for order in (
                Order(server.port, "fresh", seconds / 2, CONNECTIONS),
                Order(server.port, "prime", 60, CONNECTIONS),
                Order(server.port, "replay", seconds / 2, CONNECTIONS),
            ):
                _trust(client.carry_out(order))
        return cores.resident_bytes(server.process.pid)
    finally:
        server.stop()


def _purge(expired: Path, live: Path, count: int, turns: int, tell: Progress) -> Purge:
    """Traffic on a store that is being purged, and in turns on one of the same size that is not.

    The purge is stopped while the other one has its turn, for it would take disk and processor from it.
    """
    server_core, client_core = cores.plan()
    purged, calm = (Running(SQLITE, path.parent, server_core) for path in (expired, live))
    purger: Purger | None = None
    kept: list[float] = []
    seconds, errors = 0.0, 0
    try:
        with Client(client_core) as client:
            for server in (purged, calm):
                server.wait()
                _trust(client.carry_out(Order(server.port, "fresh", TURN / 2, CONNECTIONS)))
            tidying: list[float] = []
            for turn in range((turns + 1) // 2):
                tell(f"tidying under load: turn {turn + 1} of {(turns + 1) // 2}")
                tidied = client.carry_out(Order(purged.port, "fresh", TURN, CONNECTIONS))
                alone = client.carry_out(Order(calm.port, "fresh", TURN, CONNECTIONS))
                errors += tidied.errors + alone.errors
                tidying.append(_rate(tidied) / _rate(alone))
            purger = Purger(expired, client_core)
            purger.wait()
            for turn in range(turns):
                tell(f"purging under load: turn {turn + 1} of {turns}, {purger.removed():,} records removed")
                purger.go_on()
                began = time.perf_counter()
                disturbed = client.carry_out(Order(purged.port, "fresh", TURN, CONNECTIONS))
                seconds += time.perf_counter() - began
                ended = purger.ended()
                if ended and kept:
                    break  # it was not there for the whole of this turn
                if not ended:
                    purger.pause()
                alone = client.carry_out(Order(calm.port, "fresh", TURN, CONNECTIONS))
                errors += disturbed.errors + alone.errors
                kept.append(_rate(disturbed) / _rate(alone))
            removed, ended = purger.removed(), purger.ended()
            besides = count - removed - _still_expired(expired)
            return Purge(
                kept=Spread.of(kept),
                kept_tidying=Spread.of(tidying),
                removed=removed,
                per_second=removed / seconds,
                removed_besides=besides,
                finished=ended,
                errors=errors,
            )
    finally:
        if purger is not None:
            purger.stop()
        purged.stop()
        calm.stop()


class Purger:
    """A purge in another process, which can be halted."""

    def __init__(self, path: Path, core: int | None) -> None:
        self._told = path.parent / "purger.log"
        with self._told.open("wb") as told:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.purger",
                    records.url(path),
                    str("" if core is None else core),
                ],
                stdout=told,
                cwd=Path(__file__).parent.parent,
            )

    def wait(self) -> None:
        """Until it has begun; then halt it."""
        while not self._told.read_text() and not self.ended():
            time.sleep(0.01)
        self.pause()

    def removed(self) -> int:
        lines = self._told.read_text().splitlines()
        return int(lines[-1]) if lines else 0

    def ended(self) -> bool:
        status = self._process.poll()
        if status:
            raise RuntimeError(f"the purge failed with status {status}; its own message is above")
        return status == 0

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def _still_expired(path: Path) -> int:
    store = stores.open(records.url(path))
    admin = store.open_admin()
    left = admin.expired()
    admin.close()
    store.close()
    return left


def _rate(tally: Tally) -> float:
    return tally.requests / tally.seconds


def _trust(tally: Tally) -> None:
    if tally.errors:
        raise RuntimeError(f"{tally.errors} errors: {', '.join(tally.kinds)}")
