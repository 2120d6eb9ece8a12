"""One round: workers, clients, faults, and the audit of the database: meanwhile, when faults are over, and
when the keys have been retried once more."""

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
from tools.crash.audit import Snapshot, Stored
from tools.crash.callers import Callers
from tools.crash.clients import Clients
from tools.crash.faults import Faults, Stalled
from tools.crash.journal import Timeline
from tools.crash.modes import NESTED, TRANSACTIONAL, WITH_WORKERS, Door, Mode, Rotation
from tools.crash.senders import Senders
from tools.crash.targets import Link, Target
from tools.crash.workers import WorkerGroup

EPSILON = 15.0
"""Seconds beyond the lease until every key must get a response again.  A machine may be busy; a key that is
stuck for its retention is stuck for a day."""

MISTAKES = ("AssertionError", "AttributeError", "KeyError", "RuntimeError", "TypeError", "ValueError")

RETRY_AFTER = 0.5
"""Of a lease, until a client without a response retries, and goes on waiting for the first."""

ENOUGH_VIOLATIONS = 20
"""More of them tell nothing new."""

_AUDIT_EVERY = 0.5
_RETRIED = 200


class Plan(NamedTuple):
    mode: Mode
    way: str
    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    server_kills: int = 0
    outages: int = 0
    lease: float = 0.5
    workers: int = 4
    clients: int = 12
    pace: float = 0.15
    """Seconds between two faults of a kind."""
    patience: float = 60.0
    """Seconds in which some client must be served, whatever goes on."""
    door: Door = "request"

    @property
    def faults(self) -> int:
        return self.kills + self.freezes + self.cuts + self.server_kills + self.outages


class Result(NamedTuple):
    plan: Plan
    seconds: float
    done: Counter[str]
    """Kills, freezes, cuts, server kills and outages."""
    places: Counter[str]
    verdicts: Counter[str]
    """The responses that clients got."""
    answered: int
    """Keys that got a response that lasts."""
    unknown: int
    """Keys whose outcome is unknown in the end."""
    executions: int
    unexcused: int
    """Executions that nothing excuses."""
    undisturbed: int
    """Keys whose requests met no fault."""
    audits: int
    histories: int
    slowest: float
    """Seconds until all keys had a response after faults had stopped, or one key after a restart."""
    violations: list[str]


def run(
    target: Target,
    store: str,
    plan: Plan,
    rotation: Rotation,
    random: Random,
    folder: Path,
    tell: Callable[[Counter[str]], None] = lambda _: None,
) -> Result:
    """One round: one mode, one way, one group of workers."""
    url = target.prepare()
    with ExitStack() as stack:
        link = stack.enter_context(target.link(url)) if plan.cuts or plan.outages else None
        there = link.url if link is not None else url
        group = WorkerGroup(
            folder,
            store,
            there,
            plan.way,
            plan.mode,
            lease=plan.lease,
            workers=plan.workers,
            door=plan.door,
        )
        stack.enter_context(group)
        return asyncio.run(_Round(target, url, plan, group, link, rotation, random, tell).run())


async def _stop_watching(watching: "list[asyncio.Task[None]]") -> None:
    """They watch until the end.  One that ended before has missed something; its error says why."""
    for task in watching:
        task.cancel()
    for how in await asyncio.gather(*watching, return_exceptions=True):
        if not isinstance(how, asyncio.CancelledError):
            raise how if how is not None else AssertionError("a watcher ended before the round")


class _Round:
    def __init__(
        self,
        target: Target,
        url: str,
        plan: Plan,
        group: WorkerGroup,
        link: Link | None,
        rotation: Rotation,
        random: Random,
        tell: Callable[[Counter[str]], None],
    ) -> None:
        self._target = target
        self._url = url
        self._plan = plan
        self._group = group
        self._link = link
        self._random = random
        self._tell = tell
        retry_after = plan.lease * RETRY_AFTER
        self._clients: Callers = (
            Senders(group.port, plan.mode, random, retry_after)
            if plan.door == "callback"
            else Clients(group.port, plan.mode, random, retry_after, plan.door)
        )
        self._timeline = Timeline(plan.lease)
        self._faults = Faults(
            group,
            self._clients,
            self._timeline,
            rotation,
            random,
            lease=plan.lease,
            pace=plan.pace,
            patience=plan.patience,
        )
        self._stored: dict[str, Stored] = {}
        self._violations: list[str] = []
        self._audits = 0

    async def run(self) -> Result:
        began = time.monotonic()
        clients = self._clients
        slowest = 0.0
        keys: set[str] = set()
        snapshot = None
        try:
            async with asyncio.timeout(self._plan.patience):
                await clients.settle(uuid.uuid4().hex)  # all tables are there
        except TimeoutError:
            self._violations.append(
                f"no client was served within {self._plan.patience} s, before the first fault"
            )
        else:
            slowest, snapshot, keys = await self._disturb_and_recover()
        checked = checks.Checked([], 0, 0)
        if snapshot is not None:
            checked = checks.check(self._plan.mode, keys, snapshot, clients, self._timeline)
            self._violations += checked.violations
        return Result(
            self._plan,
            time.monotonic() - began,
            self._faults.done,
            self._faults.places,
            clients.verdicts,
            sum(bool(received) for received in clients.received.values()),
            sum(not clients.received.get(key) for key in clients.unknown),
            self._timeline.executed,
            checked.unexcused,
            checked.undisturbed,
            self._audits,
            len(clients.histories),
            max(slowest, self._faults.slowest),
            self._all_violations(),
        )

    def _all_violations(self) -> list[str]:
        # An application may raise database errors while its database is away; these are mistakes of ours.
        mistakes = {
            f"a worker logged: {line}" for line in self._group.log.splitlines() if line.startswith(MISTAKES)
        }
        found = list(dict.fromkeys([*self._violations, *self._clients.violations, *sorted(mistakes)]))
        more = len(found) - ENOUGH_VIOLATIONS
        return [*found[:ENOUGH_VIOLATIONS], *([f"and {more} more"] if more > 0 else [])]

    async def _disturb_and_recover(self) -> tuple[float, Snapshot, set[str]]:
        clients = self._clients
        coming = [asyncio.ensure_future(clients.keep_asking()) for _ in range(self._plan.clients)]
        watching = [
            asyncio.ensure_future(self._audit_repeatedly()),
            asyncio.ensure_future(self._faults.watch()),
        ]
        try:
            await self._until_done([asyncio.ensure_future(work) for work in self._disturbing()], watching)
        except Stalled as trouble:
            self._violations.append(f"{trouble}, waiting for {len(clients.waiting)} keys")
        clients.open = False
        await self._faults.stop()
        if self._link is not None:
            await asyncio.to_thread(self._link.restore)
        slowest = await self._recover([*coming, *clients.sent])
        if self._plan.mode in WITH_WORKERS:
            slowest = max(slowest, await self._until_workers_are_idle())
        await _stop_watching(watching)
        # Clients that gave up have left their keys as they were; the database must be consistent as it is.
        snapshot = await self._audit()
        self._faults.notice()
        keys = {*snapshot.stored, *snapshot.unfinished, *clients.received, *self._timeline.keys()}
        slowest = max(slowest, await self._retry_once_more(keys, snapshot))
        if self._plan.mode in WITH_WORKERS:  # some of these had never arrived before
            slowest = max(slowest, await self._until_workers_are_idle())
        self._faults.notice()
        return slowest, await self._audit(), keys

    def _disturbing(self) -> list[Coroutine[Any, Any, None]]:
        plan, faults = self._plan, self._faults
        work: list[Coroutine[Any, Any, None]] = []
        if plan.kills:
            work.append(faults.kill(plan.kills))
        if plan.freezes:
            work.append(faults.freeze(plan.freezes))
        if plan.cuts:
            assert self._link is not None
            work.append(faults.cut(plan.cuts, self._link, plan.mode))
        if plan.server_kills:
            work.append(faults.kill_server(plan.server_kills, self._target))
        if plan.outages:
            assert self._link is not None
            work.append(faults.take_away(plan.outages, self._link))
        return work

    async def _until_done(
        self, disturbing: "list[asyncio.Task[None]]", others: "list[asyncio.Task[None]]"
    ) -> None:
        try:
            while not all(task.done() for task in disturbing):
                unfinished = [task for task in (*disturbing, *others) if not task.done()]
                await asyncio.wait(unfinished, timeout=0.25, return_when=asyncio.FIRST_COMPLETED)
                for task in (*disturbing, *others):
                    if task.done():
                        task.result()
                self._tell(self._faults.done)
        finally:
            for task in disturbing:
                task.cancel()

    async def _recover(self, coming: "list[asyncio.Task[None]]") -> float:
        """Every client that is still retrying gets its response."""
        began = time.monotonic()
        _, stuck = await asyncio.wait(coming, timeout=self._plan.lease + min(EPSILON, self._plan.patience))
        if stuck:
            self._violations.append(f"stuck after all faults were over: {sorted(self._clients.waiting)}")
        for task in coming:
            if task in stuck:
                task.cancel()
            else:
                task.result()
        return time.monotonic() - began

    async def _until_workers_are_idle(self) -> float:
        """What was acknowledged, or begun and left, is handled although its sender does not come back."""
        began = progressed = time.monotonic()
        patience = self._plan.lease + min(EPSILON, self._plan.patience)
        left: frozenset[str] | None = None
        while due := (await asyncio.to_thread(self._target.read, self._url)).due:
            if left is None or len(due) < len(left):
                left, progressed = due, time.monotonic()
            elif time.monotonic() - progressed > patience:
                self._violations.append(f"{len(due)} events are due, and no worker handles any of them")
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    async def _retry_once_more(self, keys: set[str], snapshot: Snapshot) -> float:
        """Keys that a client gave up, or that met a fault, get their response; and some others, too."""
        doubtful = {
            key
            for key in keys
            if key in snapshot.unfinished
            or not self._clients.received.get(key)
            or self._timeline.lost_leases(key)
        }
        others = sorted(keys - doubtful)
        asked = [*doubtful, *self._random.sample(others, min(len(others), _RETRIED))]
        gate = asyncio.Semaphore(16)
        slowest = 0.0

        async def ask(key: str) -> None:
            nonlocal slowest
            async with gate:
                began = time.monotonic()
                await self._clients.settle(key)
                slowest = max(slowest, time.monotonic() - began)

        patience = self._plan.lease + min(EPSILON, self._plan.patience) + len(asked) * 0.05
        asking = [asyncio.ensure_future(ask(key)) for key in asked]
        done, stuck = await asyncio.wait(asking, timeout=patience) if asking else ((), ())
        for task in done:
            task.result()
        if stuck:
            self._violations.append(
                f"{len(stuck)} of {len(asked)} keys got no response when they were retried"
            )
        for task in stuck:
            task.cancel()
        return slowest

    async def _audit_repeatedly(self) -> None:
        while True:
            began = time.monotonic()
            kills = self._faults.done["server kill"]
            try:
                await self._audit()
            except Exception:  # each store has its own
                if not (self._faults.is_down or self._faults.done["server kill"] > kills):
                    raise
            # On a busy machine the audit must not be the reason for it.
            await asyncio.sleep(max(_AUDIT_EVERY, 5 * (time.monotonic() - began)))

    async def _audit(self) -> Snapshot:
        """I1, I5: the response that a client got is stored, and what is stored stays as it is."""
        mode = self._plan.mode
        received = {key: list(responses) for key, responses in self._clients.received.items() if responses}
        snapshot = await asyncio.to_thread(self._target.read, self._url)
        self._audits += 1
        self._clients.backlog = len(snapshot.due)
        if self._plan.door == "callback":
            self._violations += snapshot.violations_of_receipts() if mode in TRANSACTIONAL else []
            self._violations += checks.broken_acknowledgements(snapshot, received)
        elif mode == "tx":
            self._violations += snapshot.violations()
        elif mode == NESTED:
            self._violations += snapshot.violations_of_parts()
        final = {
            key: stored
            for key, stored in snapshot.stored.items()
            if mode == "hold" or stored.state == "completed"
        }
        if self._plan.door != "callback":
            self._violations += [
                f"{key}: a client got {response.stored}, and stored is {final.get(key)}"
                for key, (response, *_) in received.items()
                if key not in final or final[key][1:] != response.stored
            ]
        self._violations += [
            f"{key}: stored was {stored}, and now is {final.get(key)}"
            for key, stored in self._stored.items()
            if final.get(key) != stored
        ]
        self._stored = final
        return snapshot
