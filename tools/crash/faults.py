"""Who kills, freezes and cuts, and counts how often it succeeded."""

import asyncio
import contextlib
import signal
from collections import Counter, deque
from random import Random
from time import monotonic

from tools.crash.clients import Customers, Order
from tools.crash.journal import Chronicle
from tools.crash.modes import Aims, Mode, Stroke
from tools.crash.targets import Cable, Cut, Target
from tools.crash.workers import Fleet

AFTERMATH = 0.5
"""Seconds after the database was away in which somebody may still feel it."""

ANYWHERE = 0.4
"""Of the strokes.  There are more places than moments between them."""

CUT_BY = 5.0
"""Seconds until a connection is cut, or never will be."""

AT_ONCE: dict[Stroke, int] = {"kill": 6, "stop": 3}
"""Requests that are on their way to a named place.  Whoever sleeps there is one of them until it is woken."""

HEIRS = 3
"""The same for those who wait for a key whose owner is gone, and for its lease to end."""


class Stalled(Exception):
    """Nobody was served for too long."""


class Mischief:
    """One kill, freeze or cut after the other, as fast as workers come back."""

    def __init__(
        self,
        fleet: Fleet,
        customers: Customers,
        chronicle: Chronicle,
        aims: Aims,
        random: Random,
        *,
        lease: float,
        pace: float,
        patience: float,
    ) -> None:
        self._fleet = fleet
        self._customers = customers
        self._chronicle = chronicle
        self._aims = aims
        self._random = random
        self._lease = lease
        self._pace = pace
        self._patience = patience
        self._orders_for_heirs: deque[Order] = deque()
        self._given_up: list[tuple[str, Cut]] = []
        self._freezing: set[asyncio.Task[None]] = set()
        self._asleep: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.slowest = 0.0
        """Seconds until somebody was served again after the server had been killed and started."""
        self.is_down = False
        customers.inherited = self._order_for_an_heir
        customers.over = lambda order: aims.over(*order)

    def _order_for_an_heir(self) -> Order | None:
        return self._orders_for_heirs.popleft() if self._orders_for_heirs else None

    def _aim(self, how: Stroke) -> None:
        """Have somebody come who falls at the place whose turn it is."""
        if self.is_down:
            return  # nobody gets anywhere
        if self._aims.under_way(how, heirs=False) >= AT_ONCE[how]:
            return
        order = Order(how, self._aims.next(how, heirs=self._aims.under_way(how, heirs=True) < HEIRS))
        if order.place.heir:
            self._orders_for_heirs.append(order)
        else:
            self._customers.send(order)

    def _is_for_anywhere(self, how: Stroke) -> bool:
        return self.places[f"{how} anywhere"] <= ANYWHERE * self.done[how]

    async def kill(self, times: int) -> None:
        """Some of them anywhere, most at a named place."""
        while self.done["kill"] < times:
            await self._breathe()
            if self._is_for_anywhere("kill"):
                began = monotonic()
                if (pid := self._strike(signal.SIGKILL, "kill")) is not None:
                    self._chronicle.struck(pid, began)
            else:
                self._aim("kill")

    async def freeze(self, times: int) -> None:
        """The same, beyond the lease, and then they go on."""
        while self.done["stop"] < times:
            await self._breathe()
            if len(self._freezing) < max(1, len(self._fleet.workers()) // 2):
                if self._is_for_anywhere("stop"):
                    began = monotonic()
                    if (pid := self._strike(signal.SIGSTOP, "stop")) is not None:
                        self._thaw_later(pid, began)
                else:
                    self._aim("stop")
        await asyncio.gather(*self._freezing)

    async def cut(self, times: int, cable: Cable, mode: Mode) -> None:
        """Connections to the database."""
        while self.done["cut"] < times:
            await self._breathe()
            where, cut = cable.cut(mode, self._random, self._fleet.workers)
            if not await _springs(cut):
                await asyncio.to_thread(cable.restore)
                self._given_up.append((where, cut))
            else:
                self._was_cut(where, cut)
            if self._random.random() < 0.1:
                self.done["cut everything"] += 1
                began = monotonic()
                await asyncio.to_thread(cable.cut_all)
                self._chronicle.was_out(began, monotonic())

    def _was_cut(self, where: str, cut: Cut) -> None:
        """One connection was, and nobody but its owner is excused; and only for what it was at."""
        if (felt := cut.felt) is None:
            return  # whoever it was for was killed
        self.done["cut"] += 1
        self.places[where] += 1
        if felt.pid is not None:
            self._chronicle.was_cut(felt.pid, felt.at)
        else:
            self._chronicle.was_out(felt.at, felt.at)

    async def kill_server(self, times: int, target: Target) -> None:
        """The database itself, which is started again a moment later."""
        while self.done["server kill"] < times:
            await self._breathe()
            began = monotonic()
            self.is_down = True
            await asyncio.to_thread(target.kill)
            await asyncio.sleep(self._random.uniform(0, 0.3))
            await asyncio.to_thread(target.start)
            self.is_down = False
            started = monotonic()
            self.done["server kill"] += 1
            await self._served(self._customers.served)
            self.slowest = max(self.slowest, monotonic() - started)
            self._chronicle.was_out(began, monotonic() + AFTERMATH)

    async def _breathe(self) -> None:
        """Let some time pass, and somebody be served: who kills faster than that proves nothing."""
        served = self._customers.served
        await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._pace)
        await self._served(served)

    async def _served(self, before: int) -> None:
        """By itself: nobody helps the fleet."""
        since = monotonic()
        while self._customers.served == before:
            await asyncio.sleep(0.01)
            if monotonic() - since > self._patience:
                raise Stalled(f"nobody was served for {self._patience} s")

    def _strike(self, number: signal.Signals, name: str) -> int | None:
        workers = [pid for pid in self._fleet.workers() if not self._asleep[pid]]
        if len(workers) < 2:
            return None
        pid = self._random.choice(workers)
        if not self._fleet.signal(pid, number):
            return None
        self.done[name] += 1
        self.places[f"{name} anywhere"] += 1
        return pid

    async def watch(self) -> None:
        """Notice who falls, whatever else goes on: nobody is served while the only writer sleeps."""
        while True:
            self.notice()
            await asyncio.sleep(0.02)

    def notice(self) -> None:
        """What the workers have written down since we last looked."""
        entries = self._fleet.news()
        self._chronicle.add(entries)
        for what, at, pid, said in entries:
            if what == "fell":
                how, where, mood = said
                self.done[how] += 1
                self.places[f"{how} {where}"] += 1
                self._aims.fell[how, where, mood] += 1
                if how == "stop":
                    self._thaw_later(pid, at)

    def _thaw_later(self, pid: int, began: float) -> None:
        task = asyncio.ensure_future(self._thaw(pid, began))
        self._freezing.add(task)
        task.add_done_callback(self._freezing.discard)

    async def _thaw(self, pid: int, began: float) -> None:
        self._asleep[pid] += 1
        await asyncio.sleep(self._lease * self._random.uniform(1.2, 2.5))
        self._fleet.signal(pid, signal.SIGCONT)
        self._chronicle.struck(pid, began, monotonic())
        self._asleep[pid] -= 1

    async def stop(self) -> None:
        """No more of it; whoever sleeps is woken."""
        for where, cut in self._given_up:  # an answer that was waited for may have come, and been lost, later
            self._was_cut(where, cut)
        while self._orders_for_heirs:
            self._aims.drop(*self._orders_for_heirs.pop())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)
        self.notice()
        await asyncio.gather(*self._freezing)
        for pid in self._fleet.workers():
            self._fleet.signal(pid, signal.SIGCONT)


async def _springs(cut: Cut) -> bool:
    """False: nobody came there in time, or was killed between its statement and its answer."""
    since = monotonic()
    while cut.felt is None:
        if monotonic() - since > CUT_BY:
            return False
        await asyncio.sleep(0.005)  # it springs in another thread
    return True
