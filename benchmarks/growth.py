"""What a million records change: the time of a fresh key and of a replay, and the memory of a process."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

from benchmarks import cores, database, goals, records
from benchmarks.client import Client
from benchmarks.database import Database, Kind
from benchmarks.load import Order, Tally
from benchmarks.records import Place
from benchmarks.rounds import CONNECTIONS, Progress
from retrysafe import stores
from retrysafe._core.model import Found, Reserved
from retrysafe.stores.contract import Store

FEW = 10_000
A_MILLION = 1_000_000
MANY = {"PostgreSQL": 5_000_000}
"""Where it is not a million."""

BLOCK = 25
"""Calls in a row on one store: enough for a clock of processor time, few enough to disturb both alike."""


@dataclass(frozen=True)
class Size:
    """How long a run takes; figures of a quick one prove only that it works."""

    many: int | None = None
    """`None`: as many as the goals are about."""
    few: int = FEW
    operations: int = 1_000
    memory_seconds: float = 4.0

    @classmethod
    def quick(cls) -> "Size":
        return cls(many=2_000, few=1_000, operations=BLOCK, memory_seconds=0.0)


@dataclass(frozen=True)
class Pair:
    """The same figure with few records and with many."""

    few: float
    many: float

    @property
    def ratio(self) -> float:
        return self.many / self.few


@dataclass(frozen=True)
class Growth:
    store: str
    few: int
    records: int
    fresh: Pair
    """Seconds until a key is reserved and finished: the median, one caller, alone in its process."""
    replay: Pair
    fresh_cpu: Pair
    """Seconds of processor time, of the process and of the database, if that is another."""
    replay_cpu: Pair
    memory: Pair
    """Bytes of a server process; of the first on an empty store, after the same traffic."""

    def document(self) -> dict[str, object]:
        return asdict(self)

    def figures(self) -> dict[str, float]:
        """Those that goals are about; none, if there were too few records."""
        if self.records < MANY.get(self.store, A_MILLION):
            return {}
        return {
            goals.growth_fresh(self.store): self.fresh.ratio,
            goals.growth_replay(self.store): self.replay.ratio,
            goals.growth_memory(self.store): (self.memory.many - self.memory.few) / 1e6,
        }


def available(only: Sequence[str] = ()) -> list[str]:
    """The stores with many records that can be measured here; of those that were asked for, if any were."""
    asked = [store for store in goals.STORES if not only or store in only]
    return [store for store in asked if (kind := kind_of(store)) is None or not database.missing(kind)]


def kind_of(store: str) -> Kind | None:
    """The server that a store is in; none for a file."""
    return next((kind for kind in get_args(Kind) if kind == store), None)


@contextmanager
def server_of(store: str) -> Iterator[Database | None]:
    """Its server, while it runs on the core of the load generator."""
    if (kind := kind_of(store)) is None:
        yield None
        return
    with database.running(kind, cores.plan()[1]) as shared:
        yield shared


def measure(size: Size, folder: Path, tell: Progress, only: Sequence[str] = ()) -> list[Growth]:
    return [_measure(store, size, folder / store, tell) for store in available(only)]


def _measure(store: str, size: Size, folder: Path, tell: Progress) -> Growth:
    number = size.many or MANY.get(store, A_MILLION)
    with server_of(store) as shared:
        few, many, empty = (Place.new(store, folder / name, shared) for name in ("few", "many", "empty"))
        tell(f"{store}: inserting {size.few:,} and {number:,} records")
        records.fill(few, size.few)
        records.fill(many, number)
        tell(f"{store}: timing fresh keys and replays")
        timed_few, timed_many = _time((few, many), size.operations, shared)
        tell(f"{store}: weighing processes")
        return Growth(
            store,
            size.few,
            number,
            fresh=Pair(timed_few.fresh.p50, timed_many.fresh.p50),
            replay=Pair(timed_few.replay.p50, timed_many.replay.p50),
            fresh_cpu=Pair(timed_few.fresh.cpu, timed_many.fresh.cpu),
            replay_cpu=Pair(timed_few.replay.cpu, timed_many.replay.cpu),
            memory=Pair(_weigh(empty, size.memory_seconds), _weigh(many, size.memory_seconds)),
        )


@dataclass
class _Calls:
    """What calls of one kind took."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def cpu(self) -> float:
        """Of the median block: a database sometimes does other work beside."""
        return statistics.median(self.cpu_seconds)


@dataclass
class _Timed:
    fresh: _Calls = field(default_factory=_Calls)
    replay: _Calls = field(default_factory=_Calls)


def _time(places: tuple[Place, Place], operations: int, shared: Database | None) -> list[_Timed]:
    """Both stores by turns, in one process, so that a disturbance disturbs both."""
    opened = [stores.open(place.url, deadline=30) for place in places]
    known = [iter(records.some_ids(place, operations)) for place in places]
    timed = [_Timed() for _ in places]
    for store in opened:
        _fresh(store)  # opens it
    for _ in range(operations // BLOCK):
        for store, ids, took in zip(opened, known, timed, strict=True):
            _block(lambda: _fresh(store), took.fresh, shared)  # noqa: B023 - called at once
            _block(lambda: _replay(store, ids), took.replay, shared)  # noqa: B023
    for store in opened:
        store.close()
    return timed


def _fresh(store: Store) -> None:
    claim = records.claim()
    reserved = store.reserve(claim)
    if not isinstance(reserved, Reserved) or not store.finish(claim, records.ANSWER):
        raise RuntimeError(f"the store did not reserve and finish a fresh key: {reserved}")


def _replay(store: Store, ids: Iterator[bytes]) -> None:
    found = store.reserve(records.claim(next(ids)))
    if not isinstance(found, Found):
        raise RuntimeError(f"the store did not find a record that is there: {found}")


def _block(call: Callable[[], None], took: _Calls, shared: Database | None) -> None:
    cpu = time.process_time() + (shared.cpu() if shared else 0)
    for _ in range(BLOCK):
        began = time.perf_counter()
        call()
        took.seconds.append(time.perf_counter() - began)
    took.cpu_seconds.append((time.process_time() + (shared.cpu() if shared else 0) - cpu) / BLOCK)


def _weigh(place: Place, seconds: float) -> int:
    """Memory of a server process that has had its share of fresh keys and replays; with no time, of none."""
    server_core, client_core = cores.plan()
    server = place.serve(server_core)
    try:
        server.wait()
        with Client(client_core) as client:
            orders = (
                Order(server.port, "fresh", seconds / 2, CONNECTIONS),
                Order(server.port, "prime", 60, CONNECTIONS),
                Order(server.port, "replay", seconds / 2, CONNECTIONS),
            )
            for order in orders if seconds else ():
                trust(client.carry_out(order))
        return cores.resident_bytes(server.process.pid)
    finally:
        server.stop()


def trust(tally: Tally) -> None:
    if tally.errors:
        raise RuntimeError(f"{tally.errors} errors: {', '.join(tally.kinds)}")
