"""Who kills, freezes and cuts, and counts how often it succeeded."""

import asyncio
import contextlib
import random
import signal
from collections import Counter

from retrysafe.testing.proxy import Proxy
from tests.crash.clients import Customers
from tests.crash.fleet import Fleet

COMMIT, CONCLUDE = "^COMMIT", "UPDATE retrysafe_records AS record SET state"


class Mischief:
    """One kill, freeze or cut after the other, as fast as workers come back."""

    def __init__(
        self, fleet: Fleet, customers: Customers, lease: float, pace: float, proxy: Proxy | None = None
    ) -> None:
        self._fleet = fleet
        self._customers = customers
        self._lease = lease
        self._pace = pace
        self._proxy = proxy
        self._seen = 0
        self._wanted: list[str] = []
        self._freezing: set[asyncio.Task[None]] = set()
        self.done: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        customers.trap = self._next_trap

    def _next_trap(self) -> str | None:
        return self._wanted.pop() if self._wanted else None

    async def kill(self, times: int) -> None:
        """Half of them at a named place, half of them anywhere."""
        while self.done["kill"] < times:
            await self._breathe()
            if random.random() < 0.5:
                self._strike(signal.SIGKILL, "kill")
            elif len(self._wanted) < 4:
                self._wanted.append("kill")

    async def freeze(self, times: int) -> None:
        """The same, beyond the lease, and then they go on."""
        while self.done["stop"] < times:
            await self._breathe()
            if len(self._freezing) < max(1, len(self._fleet.workers()) // 2):
                if random.random() < 0.5:
                    pid = self._strike(signal.SIGSTOP, "stop")
                    if pid is not None:
                        self._thaw_later(pid)
                elif not self._wanted:
                    self._wanted.append("stop")
        await asyncio.gather(*self._freezing)

    async def cut(self, times: int) -> None:
        """Connections to the database: before, during and after the statements that end a transaction."""
        assert self._proxy is not None, "there is nothing to cut"
        proxy = self._proxy
        ways = [(set_trap, statement) for statement in (COMMIT, CONCLUDE)
                for set_trap in (proxy.cut_before, proxy.cut_during, proxy.lose_answer)]  # fmt: skip
        while self.done["cut"] < times:
            await self._breathe()
            set_trap, statement = random.choice(ways)
            trap = set_trap(statement)
            while not trap.sprung:  # noqa: ASYNC110 - it springs in another thread
                await asyncio.sleep(0.005)
            self.done["cut"] += 1
            self.places[f"{trap.action} {'COMMIT' if statement == COMMIT else 'conclude'}"] += 1
            if random.random() < 0.1:
                self.done["cut everything"] += 1
                await asyncio.to_thread(proxy.cut)

    async def _breathe(self) -> None:
        """Let some time pass, and somebody be served: who kills faster than that proves nothing."""
        served = self._customers.served
        await asyncio.sleep(random.uniform(0.5, 1.5) * self._pace)
        while self._customers.served == served:  # noqa: ASYNC110 - it is a number
            await asyncio.sleep(0.01)

    def _strike(self, number: signal.Signals, name: str) -> int | None:
        asleep = {pid for pid, what in self._fleet.falls() if what.startswith("stop")}
        workers = [pid for pid in self._fleet.workers() if pid not in asleep]
        if len(workers) < 2:
            return None
        pid = random.choice(workers)
        if not self._fleet.signal(pid, number):
            return None
        self.done[name] += 1
        self.places[f"{name} anywhere"] += 1
        return pid

    async def watch(self) -> None:
        """Notice who falls, whatever else goes on: nobody is served while the only writer sleeps."""
        while True:
            self._notice()
            await asyncio.sleep(0.02)

    def _notice(self) -> None:
        """Who has fallen into a trap since we last looked."""
        falls = self._fleet.falls()
        for pid, what in falls[self._seen :]:
            how = what.partition(" ")[0]
            self.done[how] += 1
            self.places[what] += 1
            if how == "stop":
                self._thaw_later(pid)
        self._seen = len(falls)

    def _thaw_later(self, pid: int) -> None:
        task = asyncio.ensure_future(self._thaw(pid))
        self._freezing.add(task)
        task.add_done_callback(self._freezing.discard)

    async def _thaw(self, pid: int) -> None:
        await asyncio.sleep(self._lease * random.uniform(1.2, 2.5))
        self._fleet.signal(pid, signal.SIGCONT)

    async def stop(self) -> None:
        """No more of it; whoever sleeps is woken."""
        self._wanted.clear()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)
        self._notice()
        await asyncio.gather(*self._freezing)
        for pid in self._fleet.workers():
            self._fleet.signal(pid, signal.SIGCONT)
        if self._proxy is not None:
            await asyncio.to_thread(self._proxy.restore)
