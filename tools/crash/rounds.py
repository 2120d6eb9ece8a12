"""A shop, its customers, those who wreck it, and the audit: while it goes on, when it is over, and when the
keys have been asked for once more."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tools.crash import checks
from tools.crash.audit import Kept, Sight
from tools.crash.clients import Customers
from tools.crash.faults import Mischief, Stalled
from tools.crash.journal import Chronicle
from tools.crash.modes import Aims, Mode
from tools.crash.targets import Cable, Target
from tools.crash.workers import Fleet

EPSILON = 15.0
"""Seconds beyond the lease until every key must be answered again.  A machine may be busy; one that is stuck
for the retention is stuck for a day."""

MISTAKES = ("AssertionError", "AttributeError", "KeyError", "RuntimeError", "TypeError", "ValueError")

IMPATIENCE = 0.5
"""Of a lease, until a client that was not answered asks once more, and goes on listening."""

ENOUGH_WRONGS = 20
"""Nobody reads more of them."""

_AUDIT_EVERY = 0.5
_ASKED_AGAIN = 200


class Plan(NamedTuple):
    mode: Mode
    way: str
    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    server_kills: int = 0
    lease: float = 0.5
    workers: int = 4
    customers: int = 12
    pace: float = 0.15
    """Seconds between two strokes of a kind."""
    patience: float = 60.0
    """Seconds in which somebody must be served, whatever goes on."""

    @property
    def strokes(self) -> int:
        return self.kills + self.freezes + self.cuts + self.server_kills


class Result(NamedTuple):
    plan: Plan
    seconds: float
    done: Counter[str]
    """Kills, freezes, cuts and server kills."""
    places: Counter[str]
    verdicts: Counter[str]
    """What requests were answered."""
    answered: int
    """Keys that have an answer."""
    unknown: int
    """Keys whose outcome is unknown in the end."""
    executions: int
    accountable: int
    """Executions that nothing excuses."""
    undisturbed: int
    """Keys that nothing has happened to whoever was at them."""
    audits: int
    histories: int
    slowest: float
    """Seconds until everybody was answered after faults had stopped, or somebody after a restart."""
    wrongs: list[str]


def run(
    target: Target,
    store: str,
    plan: Plan,
    aims: Aims,
    random: Random,
    folder: Path,
    tell: Callable[[Counter[str]], None] = lambda _: None,
) -> Result:
    """One campaign: one mode, one way, one fleet."""
    url = target.prepare()
    with ExitStack() as stack:
        cable = stack.enter_context(target.cable(url)) if plan.cuts else None
        there = cable.url if cable is not None else url
        fleet = Fleet(folder, store, there, plan.way, plan.mode, lease=plan.lease, workers=plan.workers)
        stack.enter_context(fleet)
        return asyncio.run(_Campaign(target, url, plan, fleet, cable, aims, random, tell).run())


async def _dismiss(watching: "list[asyncio.Task[None]]") -> None:
    """They watch until the end.  One that ended before has overlooked something, and says why."""
    for task in watching:
        task.cancel()
    for how in await asyncio.gather(*watching, return_exceptions=True):
        if not isinstance(how, asyncio.CancelledError):
            raise how if how is not None else AssertionError("nobody watched to the end")


class _Campaign:
    def __init__(
        self,
        target: Target,
        url: str,
        plan: Plan,
        fleet: Fleet,
        cable: Cable | None,
        aims: Aims,
        random: Random,
        tell: Callable[[Counter[str]], None],
    ) -> None:
        self._target = target
        self._url = url
        self._plan = plan
        self._fleet = fleet
        self._cable = cable
        self._random = random
        self._tell = tell
        self._customers = Customers(fleet.port, plan.mode, random, plan.lease * IMPATIENCE)
        self._chronicle = Chronicle(plan.lease)
        self._mischief = Mischief(
            fleet,
            self._customers,
            self._chronicle,
            aims,
            random,
            lease=plan.lease,
            pace=plan.pace,
            patience=plan.patience,
        )
        self._kept: dict[str, Kept] = {}
        self._wrongs: list[str] = []
        self._audits = 0

    async def run(self) -> Result:
        began = time.monotonic()
        customers = self._customers
        slowest = 0.0
        keys: set[str] = set()
        sight = None
        try:
            async with asyncio.timeout(self._plan.patience):
                await customers.settle(uuid.uuid4().hex)  # all tables are there
        except TimeoutError:
            self._wrongs.append(f"nobody was served within {self._plan.patience} s, before anything happened")
        else:
            slowest, sight, keys = await self._wreck_and_recover()
        reckoned = checks.Reckoning([], 0, 0)
        if sight is not None:
            reckoned = checks.reckon(self._plan.mode, keys, sight, customers, self._chronicle)
            self._wrongs += reckoned.wrongs
        return Result(
            self._plan,
            time.monotonic() - began,
            self._mischief.done,
            self._mischief.places,
            customers.verdicts,
            sum(bool(told) for told in customers.told.values()),
            sum(not customers.told.get(key) for key in customers.unknown),
            self._chronicle.executed,
            reckoned.accountable,
            reckoned.undisturbed,
            self._audits,
            len(customers.histories),
            max(slowest, self._mischief.slowest),
            self._all_wrongs(),
        )

    def _all_wrongs(self) -> list[str]:
        # What an application raises while its database is wrecked is one thing, a mistake of ours another.
        mistakes = {
            f"a worker said: {line}" for line in self._fleet.log.splitlines() if line.startswith(MISTAKES)
        }
        found = list(dict.fromkeys([*self._wrongs, *self._customers.wrongs, *sorted(mistakes)]))
        more = len(found) - ENOUGH_WRONGS
        return [*found[:ENOUGH_WRONGS], *([f"and {more} more"] if more > 0 else [])]

    async def _wreck_and_recover(self) -> tuple[float, Sight, set[str]]:
        customers = self._customers
        coming = [asyncio.ensure_future(customers.come()) for _ in range(self._plan.customers)]
        watching = [
            asyncio.ensure_future(self._audit_for_ever()),
            asyncio.ensure_future(self._mischief.watch()),
        ]
        try:
            await self._until_done([asyncio.ensure_future(work) for work in self._wrecking()], watching)
        except Stalled as trouble:
            self._wrongs.append(f"{trouble}, waiting for {len(customers.waiting)} keys")
        customers.open = False
        await self._mischief.stop()
        if self._cable is not None:
            await asyncio.to_thread(self._cable.restore)
        slowest = await self._recover([*coming, *customers.sent])
        await _dismiss(watching)
        # Whoever walked away is still where he was; the books must balance as they are.
        sight = await self._look()
        self._mischief.notice()
        keys = {*sight.kept, *sight.unfinished, *customers.told, *self._chronicle.keys()}
        slowest = max(slowest, await self._ask_again(keys, sight))
        self._mischief.notice()
        return slowest, await self._look(), keys

    def _wrecking(self) -> list[Coroutine[Any, Any, None]]:
        plan, mischief = self._plan, self._mischief
        work: list[Coroutine[Any, Any, None]] = []
        if plan.kills:
            work.append(mischief.kill(plan.kills))
        if plan.freezes:
            work.append(mischief.freeze(plan.freezes))
        if plan.cuts:
            assert self._cable is not None
            work.append(mischief.cut(plan.cuts, self._cable, plan.mode))
        if plan.server_kills:
            work.append(mischief.kill_server(plan.server_kills, self._target))
        return work

    async def _until_done(
        self, wrecking: "list[asyncio.Task[None]]", others: "list[asyncio.Task[None]]"
    ) -> None:
        try:
            while not all(task.done() for task in wrecking):
                unfinished = [task for task in (*wrecking, *others) if not task.done()]
                await asyncio.wait(unfinished, timeout=0.25, return_when=asyncio.FIRST_COMPLETED)
                for task in (*wrecking, *others):
                    if task.done():
                        task.result()
                self._tell(self._mischief.done)
        finally:
            for task in wrecking:
                task.cancel()

    async def _recover(self, coming: "list[asyncio.Task[None]]") -> float:
        """Everybody who is still asking is answered."""
        began = time.monotonic()
        _, stuck = await asyncio.wait(coming, timeout=self._plan.lease + min(EPSILON, self._plan.patience))
        if stuck:
            self._wrongs.append(f"stuck after all was well again: {sorted(self._customers.waiting)}")
        for task in coming:
            if task in stuck:
                task.cancel()
            else:
                task.result()
        return time.monotonic() - began

    async def _ask_again(self, keys: set[str], sight: Sight) -> float:
        """Whatever anybody has given up, or was disturbed at, gets its answer; and some others, too."""
        doubtful = {
            key
            for key in keys
            if key in sight.unfinished or not self._customers.told.get(key) or self._chronicle.losses(key)
        }
        others = sorted(keys - doubtful)
        asked = [*doubtful, *self._random.sample(others, min(len(others), _ASKED_AGAIN))]
        gate = asyncio.Semaphore(16)
        slowest = 0.0

        async def ask(key: str) -> None:
            nonlocal slowest
            async with gate:
                began = time.monotonic()
                await self._customers.settle(key)
                slowest = max(slowest, time.monotonic() - began)

        patience = self._plan.lease + min(EPSILON, self._plan.patience) + len(asked) * 0.05
        asking = [asyncio.ensure_future(ask(key)) for key in asked]
        done, stuck = await asyncio.wait(asking, timeout=patience) if asking else ((), ())
        for task in done:
            task.result()
        if stuck:
            self._wrongs.append(f"asked for once more, {len(stuck)} of {len(asked)} keys were not answered")
        for task in stuck:
            task.cancel()
        return slowest

    async def _audit_for_ever(self) -> None:
        while True:
            began = time.monotonic()
            kills = self._mischief.done["server kill"]
            try:
                await self._look()
            except Exception:  # each store has its own
                if not (self._mischief.is_down or self._mischief.done["server kill"] > kills):
                    raise
            # On a machine that is busy the audit must not be what keeps it busy.
            await asyncio.sleep(max(_AUDIT_EVERY, 5 * (time.monotonic() - began)))

    async def _look(self) -> Sight:
        """I1, I5: what a client was told is stored, and what is stored stays as it is."""
        mode = self._plan.mode
        told = {key: answers[0] for key, answers in self._customers.told.items() if answers}
        sight = await asyncio.to_thread(self._target.look, self._url)
        self._audits += 1
        if mode == "tx":
            self._wrongs += sight.wrongs()
        final = {key: kept for key, kept in sight.kept.items() if mode == "hold" or kept.state == "completed"}
        self._wrongs += [
            f"{key}: told {answer.status} {answer.body!r}, and stored is {final.get(key)}"
            for key, answer in told.items()
            if key not in final or final[key][1:] != (answer.status, answer.body)
        ]
        self._wrongs += [
            f"{key}: stored was {kept}, and now is {final.get(key)}"
            for key, kept in self._kept.items()
            if final.get(key) != kept
        ]
        self._kept = final
        return sight
