"""Shuffled rounds: every variant has its turn in each, and is compared with the baseline of that round.

What disturbs the machine for seconds disturbs a round, and the median of the rounds' ratios is not moved by a
few of them.  Processor time per request is told beside the throughput: on a machine that others use too it is
by far the steadier figure.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import cores, database
from benchmarks.client import Client
from benchmarks.database import Database, Kind
from benchmarks.load import REPEATED, Order, Tally, Traffic
from benchmarks.servers import Running
from benchmarks.variants import Variant

CONNECTIONS = 32
CROWD = 128

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    rounds: int = 9
    seconds: float = 0.9
    warm_up: float = 0.5
    crowd_seconds: float = 0.5
    seed: int | None = None


@dataclass(frozen=True)
class Sample:
    """One turn of one variant."""

    per_second: float
    cpu: float
    """Seconds of the server's processor time per request."""
    server_share: float
    """Of its core, while it was measured."""
    company_share: float
    """Of that core, used by others meanwhile."""
    client_share: float
    """Of the load generator's core."""
    database_cpu: float | None = None
    """Seconds of the database's processor time per request, if it has one: on the load generator's core."""
    database_share: float = 0.0
    """Of that core."""


@dataclass
class Measured:
    variant: Variant
    samples: list[Sample] = field(default_factory=list)
    crowd_requests: int = 0
    crowd_errors: int = 0
    errors: int = 0
    kinds: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The median, and the quarters between which half of the values are."""
        known = sorted(values)
        if len(known) == 1:
            return cls(known[0], known[0], known[0])
        low, median, high = statistics.quantiles(known, n=4, method="inclusive")
        return cls(median, low, high)


def throughput(one: Measured, other: Measured) -> Spread:
    """How many times as many requests."""
    pairs = zip(one.samples, other.samples, strict=True)
    return Spread.of(mine.per_second / theirs.per_second for mine, theirs in pairs)


def economy(one: Measured, other: Measured) -> Spread:
    """How many times as many requests for the same processor time."""
    return Spread.of(theirs.cpu / mine.cpu for mine, theirs in zip(one.samples, other.samples, strict=True))


def added(one: Measured, other: Measured) -> Spread:
    """Seconds of processor time per request, over the other's."""
    return Spread.of(mine.cpu - theirs.cpu for mine, theirs in zip(one.samples, other.samples, strict=True))


def measure(variants: Sequence[Variant], plan: Plan, folder: Path, tell: Progress) -> dict[str, Measured]:
    kinds = [variant.server.database for variant in variants if variant.server.database is not None]
    with database.all_running(kinds, cores.plan()[1]) as shared:
        return _measure(variants, plan, folder, tell, shared)


def _measure(
    variants: Sequence[Variant], plan: Plan, folder: Path, tell: Progress, shared: Mapping[Kind, Database]
) -> dict[str, Measured]:
    server_core, client_core = cores.plan()
    running: dict[str, Running] = {}
    results = {variant.name: Measured(variant) for variant in variants}
    try:
        for variant in variants:
            kind = variant.server.database
            address = shared[kind].new() if kind is not None else None
            # One after the other: they share a core, and together each would take as long as all.
            running[variant.name] = Running(variant.server, folder / variant.name, server_core, address)
            running[variant.name].wait()
        with Client(client_core) as client:
            for variant in variants:
                tell(f"warming up: {variant.name}")
                _warm_up(client, variant, running[variant.name].port, plan, results[variant.name])
            order = list(variants)
            for number in range(plan.rounds):
                random.Random(None if plan.seed is None else plan.seed + number).shuffle(order)
                for variant in order:
                    tell(f"round {number + 1} of {plan.rounds}: {variant.name}")
                    kind = variant.server.database
                    used = shared[kind] if kind is not None else None
                    _turn(
                        client, running[variant.name], used, server_core, plan.seconds, results[variant.name]
                    )
            for variant in order:
                tell(f"{CROWD} connections: {variant.name}")
                _crowd(client, running[variant.name].port, plan, results[variant.name])
                _check_runs(running[variant.name], results[variant.name])
    finally:
        for server in running.values():
            server.dismiss()
        for server in running.values():
            server.stop()
    return results


def _warm_up(client: Client, variant: Variant, port: int, plan: Plan, result: Measured) -> None:
    if variant.traffic == "replay":
        _note(result, client.carry_out(_order(variant, port, 60.0, traffic="prime")))
    _note(result, client.carry_out(_order(variant, port, plan.warm_up)))


def _order(
    variant: Variant,
    port: int,
    seconds: float,
    connections: int = CONNECTIONS,
    traffic: Traffic | None = None,
) -> Order:
    return Order(port, traffic or variant.traffic, seconds, connections, replayed=variant.server.replayed)


def _turn(
    client: Client,
    server: Running,
    database: Database | None,
    core: int | None,
    seconds: float,
    result: Measured,
) -> None:
    kept = database.cpu() if database else 0.0
    busy, cpu, began = cores.busy_seconds(core), server.cpu(), time.perf_counter()
    tally = client.carry_out(_order(result.variant, server.port, seconds))
    busy, cpu, lasted = cores.busy_seconds(core) - busy, server.cpu() - cpu, time.perf_counter() - began
    kept = database.cpu() - kept if database else 0.0
    _note(result, tally)
    if not tally.requests:
        raise RuntimeError(f"{result.variant.name} answered nothing: {server.tail()}")
    result.samples.append(
        Sample(
            per_second=tally.requests / tally.seconds,
            cpu=cpu / tally.all_requests,
            server_share=cpu / lasted,
            company_share=max(0.0, busy - cpu) / lasted,
            client_share=tally.cpu_seconds / lasted,
            database_cpu=kept / tally.all_requests if database else None,
            database_share=kept / lasted,
        )
    )


def _crowd(client: Client, port: int, plan: Plan, result: Measured) -> None:
    tally = client.carry_out(_order(result.variant, port, plan.crowd_seconds, CROWD))
    result.crowd_requests, result.crowd_errors = tally.all_requests, tally.errors
    _note(result, tally)


def _check_runs(server: Running, result: Measured) -> None:
    """A replay is not run, whatever it looks like."""
    path = result.variant.server.runs
    if path is None or result.variant.traffic != "replay":
        return
    again = server.runs(path) - REPEATED
    if again > 0:
        result.errors += again
        result.kinds.add(f"the handler ran {again:,} times more than for the {REPEATED:,} keys")


def _note(result: Measured, tally: Tally) -> None:
    result.errors += tally.errors
    result.kinds.update(tally.kinds)
