"""A purge under load: how much traffic a store still serves while expired records are removed from it.

The store holds as many expired records as another, which is measured by turns with it, holds live ones.  They
are removed at twice the rate at which the traffic adds new ones, by another process, as `retrysafe purge`
does.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import cores, goals, records
from benchmarks.client import Client
from benchmarks.growth import A_MILLION, available, server_of, trust
from benchmarks.load import Order, Tally
from benchmarks.records import Place
from benchmarks.rounds import CONNECTIONS, Progress, Spread
from retrysafe import stores

TURN = 1.0
"""Seconds of traffic with and without the purge, in turns."""

PACE = 2.0
"""Times the insert rate: a purge that only kept pace would never be done with what had piled up."""


@dataclass(frozen=True)
class Size:
    records: int = A_MILLION
    turns: int = 10

    @classmethod
    def quick(cls) -> "Size":
        return cls(records=3_000, turns=1)


@dataclass(frozen=True)
class Purge:
    store: str
    records: int
    """That had expired at the start."""
    share: Spread
    """Of the traffic, while it runs."""
    share_cleanup: Spread
    """The same without the purge: a server removes expired records itself as it works."""
    inserted_per_second: float
    """With neither."""
    asked_per_second: float
    removed_per_second: float
    """By the purge, while it was not halted."""
    removed: int
    removed_besides: int
    """By the server itself."""
    errors: int

    def document(self) -> dict[str, object]:
        return asdict(self)

    def figures(self) -> dict[str, float]:
        return {goals.purge_traffic(self.store): self.share.median} if self.records >= A_MILLION else {}


def measure(size: Size, folder: Path, tell: Progress, only: Sequence[str] = ()) -> list[Purge]:
    return [_measure(store, size, folder / store, tell) for store in available(only)]


def _measure(store: str, size: Size, folder: Path, tell: Progress) -> Purge:
    with server_of(store) as shared:
        expired, live = (Place.new(store, folder / name, shared) for name in ("expired", "live"))
        tell(f"{store}: inserting {size.records:,} records that have expired, and as many that live")
        records.fill(expired, size.records, expired=True)
        records.fill(live, size.records)
        return _under_load(store, expired, live, size, tell)


def _under_load(store: str, expired: Place, live: Place, size: Size, tell: Progress) -> Purge:
    """Traffic on a store that is being purged, and in turns on one of the same size that is not.

    The purge is stopped while the other one has its turn, for it would take disk and processor from it.
    """
    server_core, client_core = cores.plan()
    purged, calm = (place.serve(server_core) for place in (expired, live))
    purger: Purger | None = None
    share, share_cleanup, rates = list[float](), list[float](), list[float]()
    seconds, errors = 0.0, 0
    try:
        with Client(client_core) as client:
            for server in (purged, calm):
                server.wait()
                trust(client.carry_out(Order(server.port, "fresh", TURN / 2, CONNECTIONS)))
            for turn in range((size.turns + 1) // 2):
                tell(f"{store}: cleanup under load, turn {turn + 1} of {(size.turns + 1) // 2}")
                tidied = client.carry_out(Order(purged.port, "fresh", TURN, CONNECTIONS))
                alone = client.carry_out(Order(calm.port, "fresh", TURN, CONNECTIONS))
                errors += tidied.errors + alone.errors
                rates.append(_rate(alone))
                share_cleanup.append(_rate(tidied) / _rate(alone))
            inserted = Spread.of(rates).median
            purger = Purger(expired, client_core, PACE * inserted)
            purger.wait()
            for turn in range(size.turns):
                removed = purger.removed()
                tell(f"{store}: purge under load, turn {turn + 1} of {size.turns}, {removed:,} removed")
                purger.go_on()
                began = time.perf_counter()
                disturbed = client.carry_out(Order(purged.port, "fresh", TURN, CONNECTIONS))
                seconds += time.perf_counter() - began
                ended = purger.ended()
                if ended and share:
                    break  # it was not there for the whole of this turn
                if not ended:
                    purger.pause()
                alone = client.carry_out(Order(calm.port, "fresh", TURN, CONNECTIONS))
                errors += disturbed.errors + alone.errors
                share.append(_rate(disturbed) / _rate(alone))
            removed = purger.removed()
            return Purge(
                store=store,
                records=size.records,
                share=Spread.of(share),
                share_cleanup=Spread.of(share_cleanup),
                inserted_per_second=inserted,
                asked_per_second=PACE * inserted,
                removed_per_second=removed / seconds,
                removed=removed,
                removed_besides=size.records - removed - _still_expired(expired),
                errors=errors,
            )
    finally:
        if purger is not None:
            purger.stop()
        purged.stop()
        calm.stop()


class Purger:
    """A purge in another process, which can be halted."""

    def __init__(self, place: Place, core: int | None, per_second: float) -> None:
        self._told = place.folder / "purger.log"
        program = (sys.executable, "-m", "benchmarks.purger")
        with self._told.open("wb") as told:
            self._process = subprocess.Popen(
                [*program, place.url, str(per_second), str("" if core is None else core)],
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


def _still_expired(place: Place) -> int:
    store = stores.open(place.url, deadline=30)
    admin = store.open_admin()
    left = admin.expired()
    admin.close()
    store.close()
    return left


def _rate(tally: Tally) -> float:
    return tally.requests / tally.seconds
