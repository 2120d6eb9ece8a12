"""A shop, its customers, those who wreck it, and the audit: while it goes on, when it is over, and when every
key has been asked for once more."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from retrysafe.testing.proxy import Proxy
from tests.crash import audit, orders
from tests.crash.clients import Customers
from tests.crash.fleet import Fleet
from tests.crash.mischief import Mischief

EPSILON = 15.0
"""Seconds beyond the lease until every key must be answered again.  A machine may be busy; one that is stuck
for the retention is stuck for a day."""

MISTAKES = ("AssertionError", "AttributeError", "KeyError", "RuntimeError", "TypeError", "ValueError")

_AUDIT_EVERY = 0.5


class Plan(NamedTuple):
    url: str
    """The database itself: the auditor's way to it."""
    way: orders.Way
    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    lease: float = 0.5
    workers: int = 4
    customers: int = 12
    pace: float = 0.15
    """Seconds between two strokes."""


class Report(NamedTuple):
    plan: Plan
    seconds: float
    done: Mapping[str, int]
    places: Mapping[str, int]
    verdicts: Mapping[str, int]
    answered: int
    """Keys that have an answer."""
    walked_away: int
    """Keys that nobody had insisted on, and what became of them: see `undone`."""
    undone: int
    audits: int
    slowest: float
    """Seconds that a key took to be answered after the faults had stopped."""
    wrongs: list[str]
    log: str


def run(plan: Plan, folder: Path, tell: Callable[[str], None] = lambda line: None) -> Report:
    orders.create_tables(plan.url)
    if not plan.cuts:
        with Fleet(folder, plan.url, plan.way, lease=plan.lease, workers=plan.workers) as fleet:
            return asyncio.run(_Campaign(plan, fleet, None, tell).run())
    with (
        Proxy(int(plan.url.rpartition(":")[2].partition("/")[0])) as proxy,
        Fleet(folder, proxy.through(plan.url), plan.way, lease=plan.lease, workers=plan.workers) as fleet,
    ):
        return asyncio.run(_Campaign(plan, fleet, proxy, tell).run())


class _Campaign:
    def __init__(self, plan: Plan, fleet: Fleet, proxy: Proxy | None, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._fleet = fleet
        self._customers = Customers(fleet.port)
        self._mischief = Mischief(fleet, self._customers, plan.lease, plan.pace, proxy)
        self._tell = tell
        self._wrongs: list[str] = []
        self._audits = 0

    async def run(self) -> Report:
        began = time.monotonic()
        customers, plan = self._customers, self._plan
        await customers.settle_quietly(uuid.uuid4().hex)  # all tables are there
        coming = [asyncio.ensure_future(customers.come()) for _ in range(plan.customers)]
        watching = [
            asyncio.ensure_future(self._audit_for_ever()),
            asyncio.ensure_future(self._mischief.watch()),
        ]
        wrecking = [
            asyncio.ensure_future(wreck(times))
            for wreck, times in (
                (self._mischief.kill, plan.kills),
                (self._mischief.freeze, plan.freezes),
                (self._mischief.cut, plan.cuts),
            )
            if times
        ]
        await self._until_done(wrecking, [*coming, *watching])
        customers.open = False
        await self._mischief.stop()
        slowest = await self._recover(coming)
        for task in watching:
            task.cancel()
        # Whoever walked away is still where he was; the books must balance as they are.
        sight = await self._look()
        walked_away = [key for key in sight.unfinished if key not in customers.heard]
        undone = sum(not sight.orders(key) for key in walked_away)
        keys = {*sight.answered, *sight.unfinished, *customers.heard}
        slowest = max(slowest, await self._ask_again(keys))
        await self._close(keys)
        return Report(
            plan,
            time.monotonic() - began,
            dict(self._mischief.done),
            dict(sorted(self._mischief.places.items())),
            dict(customers.verdicts.most_common()),
            sum(bool(heard.answers) for heard in customers.heard.values()),
            len(walked_away),
            undone,
            self._audits,
            slowest,
            [*self._wrongs, *customers.wrongs],
            self._fleet.log,
        )

    async def _until_done(
        self, wrecking: "list[asyncio.Task[None]]", others: "list[asyncio.Task[None]]"
    ) -> None:
        told = time.monotonic()
        while not all(task.done() for task in wrecking):
            await asyncio.wait([*wrecking, *others], timeout=1, return_when=asyncio.FIRST_COMPLETED)
            for task in (*wrecking, *others):
                if task.done():
                    task.result()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._tell(f"{dict(self._mischief.done)}, {len(self._customers.heard)} keys answered")
        for task in wrecking:
            task.result()

    async def _recover(self, coming: "list[asyncio.Task[None]]") -> float:
        """Everybody who is still asking is answered."""
        began = time.monotonic()
        _, stuck = await asyncio.wait(coming, timeout=self._plan.lease + EPSILON)
        if stuck:
            self._wrongs.append(f"stuck after all was well again: {sorted(self._customers.waiting)}")
            for task in stuck:
                task.cancel()
        return time.monotonic() - began

    async def _ask_again(self, keys: set[str]) -> float:
        """Every key that there is gets its answer, whoever it was that gave it up."""
        began = time.monotonic()
        gate = asyncio.Semaphore(16)

        async def ask(key: str) -> None:
            async with gate:
                await self._customers.settle_quietly(key)

        try:
            async with asyncio.timeout(self._plan.lease + EPSILON + len(keys) * 0.02):
                await asyncio.gather(*(ask(key) for key in keys))
        except TimeoutError:
            missing = [key for key in keys if key not in self._customers.heard]
            self._wrongs.append(f"asked for once more, these keys were not answered in time: {missing}")
        return time.monotonic() - began - len(keys) * 0.02

    async def _close(self, keys: set[str]) -> None:
        """What was heard, what is stored and what was done are the same, for each key."""
        sight = await self._look()
        self._wrongs += self._customers.contradictions()
        for key in keys:
            heard = self._customers.id_heard(key)
            if heard is None or sight.orders(key) != [heard]:
                self._wrongs.append(f"{key}: heard {heard}, and there is {sight.orders(key)}")

    async def _audit_for_ever(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_AUDIT_EVERY)

    async def _look(self) -> audit.Sight:
        told = {key: heard.answers[0][1] for key, heard in self._customers.heard.items() if heard.answers}
        sight = await asyncio.to_thread(audit.look, self._plan.url)
        self._audits += 1
        self._wrongs += sight.wrongs()
        # What a client was told before is committed.
        self._wrongs += [
            f"{key}: told {answer!r}, and stored is {sight.answered.get(key)!r}"
            for key, answer in told.items()
            if sight.answered.get(key) != answer
        ]
        return sight


def shortfalls(report: Report, successes: int) -> list[str]:
    """What is wrong with a campaign: what it found, and whether it was worth anything."""
    found = list(report.wrongs)
    if report.answered < successes:
        found.append(
            f"only {report.answered} keys were answered, and {successes} were expected: it proves little"
        )
    # What an application raises while its database is wrecked is one thing, a mistake of ours another.
    found += {f"a worker said: {line}" for line in report.log.splitlines() if line.startswith(MISTAKES)}
    return found


def as_text(report: Report) -> str:
    plan = report.plan
    lines = [
        f"{plan.way}: {dict(report.done)} in {report.seconds:.0f} s, "
        f"{plan.workers} workers, lease {plan.lease} s",
        f"  {report.answered} keys answered; {report.walked_away} given up half-way, {report.undone} of them "
        f"without any effect; {report.audits} audits; recovered within {report.slowest:.1f} s",
        f"  heard: {dict(report.verdicts)}",
        f"  fell: {dict(report.places)}",
        f"  wrong: {report.wrongs or 'nothing'}",
    ]
    return "\n".join(lines)
