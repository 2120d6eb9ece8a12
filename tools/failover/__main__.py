"""The command: see the docstring of the package."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from retrysafe.testing.galera import GaleraCluster
from tools.failover import galera, galera_nodes, mariadb, postgresql, valkey, valkey_cluster
from tools.failover.traffic import Outcome

KEYS = 1000
"""Acknowledged before the fault, and again afterwards."""

RACES = 300

SEVERAL_NODES = "galera-nodes"
"""The name of what is no fault, and has no line in the table."""

BEGIN, END = "<!-- python -m tools.failover: begin -->", "<!-- end -->"


class Fault(NamedTuple):
    name: str
    what: str
    """As the table says it."""
    run: Callable[[int], Coroutine[Any, Any, Outcome]]
    may_lose: bool = False


FAULTS = (
    Fault("postgresql", "PostgreSQL, killed and started again", postgresql.restarted),
    Fault(
        "postgresql-off",
        "PostgreSQL with `synchronous_commit = off`, the same",
        partial(postgresql.restarted, synchronous_commit="off"),
    ),
    Fault(
        "postgresql-standby",
        "PostgreSQL, synchronous standby promoted",
        partial(postgresql.promoted, synchronous=True),
    ),
    Fault(
        "postgresql-standby-tx",
        'the same with `effects="database"`',
        partial(postgresql.promoted_with_transactions, synchronous=True),
    ),
    Fault(
        "postgresql-asynchronous",
        "PostgreSQL, asynchronous standby promoted",
        partial(postgresql.promoted, synchronous=False),
        may_lose=True,
    ),
    Fault(
        "postgresql-behind",
        "the same, the standby being behind",
        partial(postgresql.promoted, synchronous=False, behind=True),
        may_lose=True,
    ),
    Fault("mariadb", "MariaDB, killed and started again", mariadb.restarted),
    Fault(
        "mariadb-2",
        "MariaDB with `innodb_flush_log_at_trx_commit = 2`, the same",
        partial(mariadb.restarted, innodb_flush_log_at_trx_commit="2"),
    ),
    Fault(
        "mariadb-0",
        "MariaDB with `innodb_flush_log_at_trx_commit = 0`, the same",
        partial(mariadb.restarted, innodb_flush_log_at_trx_commit="0"),
        may_lose=True,
    ),
    Fault("galera", "Galera, the node killed that takes the writes", galera.node_killed),
    Fault(
        "valkey",
        "Valkey without persistence, killed, started and armed again",
        partial(valkey.restarted, is_empty=True),
        may_lose=True,
    ),
    Fault(
        "valkey-everysec",
        "Valkey with `appendonly yes`, the same",
        partial(valkey.restarted, appendonly="yes"),
    ),
    Fault("valkey-replica", "Valkey, replica promoted", partial(valkey.promoted, wait=False), may_lose=True),
    Fault(
        "valkey-behind",
        "the same, the replicas being behind",
        partial(valkey.promoted, wait=False, behind=True),
        may_lose=True,
    ),
    Fault(
        "valkey-wait",
        "Valkey with `?wait=1`, replica promoted, after all were behind",
        partial(valkey.promoted, wait=True, behind=True),
    ),
    Fault("cluster", "Valkey Cluster, a primary killed", valkey_cluster.node_killed, may_lose=True),
    Fault(
        "cluster-wait",
        "the same with `?wait=1`, and the primary back",
        partial(valkey_cluster.node_killed, wait=True),
    ),
    Fault("cluster-slots", "Valkey Cluster, slots moved", valkey_cluster.slots_moved),
)


def violations(fault: Fault, outcome: Outcome) -> list[str]:
    """What must not be, whatever the servers do; and where nothing may be lost, what is."""
    found = []
    if outcome.contradicted:
        found.append(f"{outcome.contradicted} keys were replayed with another result")
    # A handler that needs the database itself fails with it.
    if wrong := {code: n for code, n in outcome.unexpected.items() if code != "handler-failed"}:
        found.append(f"unexpected responses: {wrong}")
    if outcome.lost and not fault.may_lose:
        found.append(f"{outcome.lost} acknowledged records were lost")
    if outcome.repeated and not fault.may_lose:
        found.append(f"the effects of {outcome.repeated} keys happened more than once")
    return [f"{fault.name}: {what}" for what in found]


def table(measured: Sequence[tuple[Fault, Outcome]]) -> str:
    lines = [
        "| what happens | acknowledged | of these lost | effects twice | told: unknown | 503 | pause |",
        "|---|---|---|---|---|---|---|",
    ]
    for fault, outcome in measured:
        figures = (
            f"{outcome.acknowledged:,}",
            f"{outcome.lost:,}",
            f"{outcome.repeated:,}",
            f"{outcome.unknown:,}",
            f"{outcome.refused:,}",
            f"{outcome.pause:.1f} s",
        )
        lines.append(f"| {fault.what} | {' | '.join(figures)} |")
    return "\n".join(lines)


def several_nodes(keys: int) -> tuple[str, list[str]]:
    """What came of writes to two nodes of Galera, and what must not be."""
    with GaleraCluster() as cluster:
        races = galera_nodes.races(cluster, keys)
        reads = galera_nodes.reads(cluster, keys)
        with galera_nodes.synchronous_reads(cluster):
            waiting = galera_nodes.reads(cluster, keys)
    text = (
        f"Galera with writes to several nodes: {races.won_once} of {races.keys} races for a key at two nodes "
        f"had one winner. Of {reads.keys} reads at another node, right after a request was acknowledged, "
        f"{reads.stale} missed it; with `wsrep_sync_wait = 1`, {waiting.stale} of {waiting.keys} did."
    )
    found = []
    if races.won_once < races.keys:
        found.append(f"{SEVERAL_NODES}: {races.keys - races.won_once} races had no winner, or two")
    if waiting.stale:
        found.append(f"{SEVERAL_NODES}: {waiting.stale} reads were stale, with wsrep_sync_wait")
    return text, found


def write(page: Path, text: str) -> None:
    """Replace the table on a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the table: expected {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    names = {fault.name: fault for fault in FAULTS} | {SEVERAL_NODES: None}
    parser = argparse.ArgumentParser(prog="python -m tools.failover", description="measure fail-overs")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--keys", type=int, default=KEYS, help="acknowledged before and after each fault")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the table on this page")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(names)}")
    if options.write and options.names:
        parser.error("--write takes the whole table: give no names")
    # That connections break, and that the store is away, is what is done here.
    logging.disable(logging.ERROR)
    measured: list[tuple[Fault, Outcome]] = []
    found: list[str] = []
    for fault in filter(None, (names[name] for name in options.names or names)):
        outcome = asyncio.run(fault.run(options.keys))
        measured.append((fault, outcome))
        found += violations(fault, outcome)
        sys.stderr.write(f"{fault.name}: {outcome}\n")
    text = table(measured)
    if SEVERAL_NODES in (options.names or names):
        said, wrong = several_nodes(RACES)
        text += f"\n\n{said}"
        found += wrong
    sys.stdout.write(f"{text}\n")
    if options.write:
        write(options.write, text)
    for violation in found:
        sys.stderr.write(f"violation: {violation}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
