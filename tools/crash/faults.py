"""Kills and freezes workers, cuts connections, takes the database away, and counts how often it succeeded."""

import asyncio
import contextlib
import signal
from collections import Counter, deque
from random import Random
from time import monotonic

from tools.crash.callers import Callers, Order
from tools.crash.journal import Timeline
from tools.crash.modes import Interruption, Mode, Rotation
from tools.crash.targets import Cut, Link, Target
from tools.crash.workers import WorkerGroup

AFTERMATH = 0.5
"""Seconds after the database was away in which requests may still be affected by it."""

ANYWHERE = 0.4
"""Of the interruptions.  There are more places than moments between them."""

CUT_BY = 5.0
"""Seconds until a connection is cut, or never will be."""

FLOWS_BY = 10.0
"""Seconds until a response flows, or the outage begins without one."""

WHILE_FLOWING = "outage while a response flows"
"""The place that an outage is meant for."""

AT_ONCE: dict[Interruption, int] = {"kill": 6, "stop": 3}
"""Requests that are on their way to a named place.  One that is frozen there counts until it is continued."""

SUCCESSORS = 3
"""The same for those that wait for a key whose owner is gone, and for its lease to end."""


class Stalled(Exception):
    """No client was served for too long."""


class Faults:
    """One fault after the other, as fast as workers come back."""

    def __init__(
        self,
        group: WorkerGroup,
        clients: Callers,
        timeline: Timeline,
        rotation: Rotation,
        random: Random,
        *,
        lease: float,
        pace: float,
        patience: float,
    ) -> None:
        self._group = group
        self._clients = clients
        self._timeline = timeline
        self._rotation = rotation
        self._random = random
        self._lease = lease
        self._pace = pace
        self._patience = patience
        self._successor_orders: deque[Order] = deque()
        self._given_up: list[tuple[str, Cut]] = []
        self._freezing: set[asyncio.Task[None]] = set()
        self._frozen: Counter[int] = Counter()
        self._link_in_use = asyncio.Lock()
        """Held while the database is away: to give up a cut restores the link, and would end the outage."""
        self.done: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.slowest = 0.0
        """Seconds until a client was served again after the database had been away."""
        self._away = 0
        """Reasons for which the database is away: its server may be killed during an outage."""
        clients.successor_order = self._next_successor_order
        clients.over = lambda order: rotation.over(*order)

    @property
    def is_down(self) -> bool:
        """Whether the database cannot be reached."""
        return self._away > 0

    def _next_successor_order(self) -> Order | None:
        return self._successor_orders.popleft() if self._successor_orders else None

    def _aim(self, how: Interruption) -> None:
        """Send a request that is interrupted at the place whose turn it is."""
        if self.is_down:
            return  # no request gets anywhere
        if self._rotation.under_way(how, successors=False) >= AT_ONCE[how]:
            return
        successors = self._rotation.under_way(how, successors=True) < SUCCESSORS
        order = Order(how, self._rotation.next(how, successors=successors))
        if order.place.successor:
            self._successor_orders.append(order)
        else:
            self._clients.send(order)

    def _is_for_anywhere(self, how: Interruption) -> bool:
        return self.places[f"{how} anywhere"] <= ANYWHERE * self.done[how]

    async def kill(self, times: int) -> None:
        """Some of them anywhere, most at a named place."""
        while self.done["kill"] < times:
            await self._pause()
            if self._is_for_anywhere("kill"):
                began = monotonic()
                if (pid := self._signal(signal.SIGKILL, "kill")) is not None:
                    self._timeline.interrupted(pid, began)
            else:
                self._aim("kill")

    async def freeze(self, times: int) -> None:
        """The same, beyond the lease, and then they are continued."""
        while self.done["stop"] < times:
            await self._pause()
            if len(self._freezing) < max(1, len(self._group.pids()) // 2):
                if self._is_for_anywhere("stop"):
                    began = monotonic()
                    if (pid := self._signal(signal.SIGSTOP, "stop")) is not None:
                        self._continue_later(pid, began)
                else:
                    self._aim("stop")
        await asyncio.gather(*self._freezing)

    async def cut(self, times: int, link: Link, mode: Mode) -> None:
        """Connections to the database."""
        while self.done["cut"] < times:
            await self._pause()
            where, cut = link.cut(mode, self._random, self._group.pids)
            if not await _is_cut(cut):
                async with self._link_in_use:
                    await asyncio.to_thread(link.restore)
                self._given_up.append((where, cut))
            else:
                self._was_cut(where, cut)
            if self._random.random() < 0.1:
                self.done["cut everything"] += 1
                began = monotonic()
                await asyncio.to_thread(link.cut_all)
                self._timeline.was_out(began, monotonic())

    def _was_cut(self, where: str, cut: Cut) -> None:
        """Only the owner of the connection is excused, and only for what it was doing then."""
        if (hit := cut.hit) is None:
            return  # its worker was killed before
        self.done["cut"] += 1
        self.places[where] += 1
        if hit.pid is not None:
            self._timeline.was_cut(hit.pid, hit.at)
        else:
            self._timeline.was_out(hit.at, hit.at)

    async def take_away(self, times: int, link: Link) -> None:
        """The database cannot be reached until every lease has ended; in mode `hold`, while a response flows.

        The head of that response has left and its end has not, so its client must not get the end: the
        outcome cannot be stored any more.
        """
        while self.done["outage"] < times:
            await self._pause()
            where = "outage"
            if self._clients.has_large:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLOWS_BY):
                        await self._clients.until_one_flows()
                        where = WHILE_FLOWING
            async with self._link_in_use:
                began = monotonic()
                self._away += 1
                await asyncio.to_thread(link.refuse)
                await asyncio.sleep(self._lease * self._random.uniform(1.5, 2.5))
                await asyncio.to_thread(link.restore)
                self._away -= 1
            self.done["outage"] += 1
            self.places[where] += 1
            await self._recovered(began)

    async def kill_server(self, times: int, target: Target) -> None:
        """The database server, which is started again a moment later."""
        while self.done["server kill"] < times:
            await self._pause()
            began = monotonic()
            self._away += 1
            await asyncio.to_thread(target.kill)
            await asyncio.sleep(self._random.uniform(0, 0.3))
            await asyncio.to_thread(target.start)
            self._away -= 1
            self.done["server kill"] += 1
            await self._recovered(began)

    async def _recovered(self, began: float) -> None:
        """The database is there again: wait until a client is served."""
        restored = monotonic()
        await self._served(self._clients.served)
        self.slowest = max(self.slowest, monotonic() - restored)
        self._timeline.was_out(began, monotonic() + AFTERMATH)

    async def _pause(self) -> None:
        """Let some time pass, and a client be served: a run that kills faster than that proves nothing."""
        served = self._clients.served
        await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._pace)
        await self._served(served)

    async def _served(self, before: int) -> None:
        """The workers recover by themselves."""
        since = monotonic()
        while self._clients.served == before:
            await asyncio.sleep(0.01)
            if monotonic() - since > self._patience:
                raise Stalled(f"no client was served for {self._patience} s")

    def _signal(self, number: signal.Signals, name: str) -> int | None:
        workers = [pid for pid in self._group.pids() if not self._frozen[pid]]
        if len(workers) < 2:
            return None
        pid = self._random.choice(workers)
        if not self._group.signal(pid, number):
            return None
        self.done[name] += 1
        self.places[f"{name} anywhere"] += 1
        return pid

    async def watch(self) -> None:
        """Notice workers that are trapped, whatever else goes on: the only writer may be frozen."""
        while True:
            self.notice()
            await asyncio.sleep(0.02)

    def notice(self) -> None:
        """Read what the workers have written since the last call."""
        entries = self._group.news()
        self._timeline.add(entries)
        for event, at, pid, fields in entries:
            if event == "trapped":
                how, where, ending = fields
                self.done[how] += 1
                self.places[f"{how} {where}"] += 1
                self._rotation.trapped[how, where, ending] += 1
                if how == "stop":
                    self._continue_later(pid, at)

    def _continue_later(self, pid: int, began: float) -> None:
        task = asyncio.ensure_future(self._continue(pid, began))
        self._freezing.add(task)
        task.add_done_callback(self._freezing.discard)

    async def _continue(self, pid: int, began: float) -> None:
        self._frozen[pid] += 1
        await asyncio.sleep(self._lease * self._random.uniform(1.2, 2.5))
        self._group.signal(pid, signal.SIGCONT)
        self._timeline.interrupted(pid, began, monotonic())
        self._frozen[pid] -= 1

    async def stop(self) -> None:
        """No more faults; frozen workers are continued."""
        for where, cut in self._given_up:  # a reply that was waited for may have come, and been lost, later
            self._was_cut(where, cut)
        while self._successor_orders:
            self._rotation.drop(*self._successor_orders.pop())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)
        self.notice()
        await asyncio.gather(*self._freezing)
        for pid in self._group.pids():
            self._group.signal(pid, signal.SIGCONT)


async def _is_cut(cut: Cut) -> bool:
    """False: no statement came in time, or its worker was killed between the statement and its reply."""
    since = monotonic()
    while cut.hit is None:
        if monotonic() - since > CUT_BY:
            return False
        await asyncio.sleep(0.005)  # it happens in another thread
    return True
