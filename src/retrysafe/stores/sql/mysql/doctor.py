"""Everything about a store in MySQL or MariaDB that could be wrong: the server and its settings, the tables
and their records.

Nothing is created or changed.  Each check has a transaction of its own that reads one snapshot and is bounded
in time; one that fails is a finding, whatever it failed with, and the others go on.

The store sets what it needs in its own sessions: isolation, mode, character set, time zone.  A server's
defaults are looked at where they concern the handlers' transactions, or what no session can set.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

from retrysafe.errors import StoreError
from retrysafe.stores.admin import Finding
from retrysafe.stores.retry import NotPermitted
from retrysafe.stores.sql import doctor
from retrysafe.stores.sql.admin_session import AdminSession, Transaction
from retrysafe.stores.sql.backend import AdminConnection
from retrysafe.stores.sql.mysql import schema
from retrysafe.stores.sql.mysql.admin import SNAPSHOT

Check = Callable[[Transaction], Iterator[Finding]]

_LONG = 10
"""Seconds.  Statements on records take milliseconds, and a caller's transaction touches its record at its
very end."""

_APART = 5.0
"""Seconds between the clocks that are worth a remark: a disciplined clock stays far below it."""

_SCARCE = 10
"""Free connections.  A service opens up to half a dozen, and one that restarts has the old ones for a
moment."""

_PACKET = 4 << 20
"""Bytes.  Bodies are sent in hexadecimal, and the largest that is stored by default has a megabyte."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "retrysafe_records": ("select", "insert", "update"),
    "retrysafe_meta": ("select", "insert", "update"),
    "retrysafe_audit": ("select", "insert", "update"),
    "retrysafe_verdicts": ("select", "insert", "update"),
    "retrysafe_routes": ("select", "insert", "update"),
}
"""And DELETE on records."""

_WITHOUT = {
    "retrysafe_meta": "do not take turns with cleanup, so that each of them removes expired records",
    "retrysafe_routes": "do not count calls by route",
}
"""What is not done by a user who lacks a right on a table, where it is not vital."""


def examine(connect: Callable[[], AdminConnection], deadline: float) -> list[Finding]:
    """Run every check."""
    with contextlib.closing(AdminSession(connect, deadline)) as session:
        return _Examination(session).findings()


class Server(NamedTuple):
    flavour: str
    version: str
    user: str
    database: str | None
    ahead: float
    """By how much its clock is ahead of ours, as far as we can tell."""
    variables: Mapping[str, str]
    status: Mapping[str, str]

    def has_on(self, name: str) -> bool:
        return self.variables.get(name, "").upper() in ("ON", "1")


def ask(transaction: Transaction) -> Server:
    before = time.time()
    [(version, user, database, now)] = transaction.query("settings")
    ahead = cast(float, now) - (before + time.time()) / 2
    variables = {str(name).lower(): str(value) for name, value in transaction.query("variables")}
    status = {str(name).lower(): str(value) for name, value in transaction.query("status")}
    kind = schema.flavour(str(version))
    return Server(kind, str(version), str(user), cast("str | None", database), ahead, variables, status)


def kind(server: Server) -> Iterator[Finding]:
    found = f"{server.flavour} {server.version}"
    if server.has_on("read_only") or server.has_on("super_read_only") or server.has_on("innodb_read_only"):
        yield Finding(
            "server",
            "problem",
            f"{found}, and read_only is on: it accepts no writes",
            "use the address of the primary; on a primary, SET GLOBAL read_only = OFF",
        )
    elif server.database is None:
        yield Finding(
            "server",
            "problem",
            f"{found}, and the connection has no database",
            "name it in the address: mysql://user@host:3306/database",
        )
    elif schema.is_too_old(server.version):
        yield Finding(
            "server", "problem", f"{found}, which cannot skip locked rows", f"expected {schema.OLDEST}"
        )
    elif server.flavour == "MySQL":
        yield Finding(
            "server",
            "ok",
            f"{found}, accepts writes as {server.user}",
            "retrysafe is tested on MariaDB, and keeps to what both document: before you rely on it here, "
            "run "
            "`python -m retrysafe.testing.stores URL` against this server",
        )
    else:
        yield Finding("server", "ok", f"{found}, accepts writes as {server.user}")


def durability(server: Server) -> Iterator[Finding]:
    flush = server.variables.get("innodb_flush_log_at_trx_commit", "unknown")
    doublewrite = server.variables.get("innodb_doublewrite", "unknown")
    found = f"innodb_flush_log_at_trx_commit {flush}, innodb_doublewrite {doublewrite}"
    logs = server.has_on("log_bin")
    if logs:
        found += f", sync_binlog {server.variables.get('sync_binlog', 'unknown')}"
    clustered = server.has_on("wsrep_on")
    if flush not in ("1", "3") and not clustered:
        yield Finding(
            "durability",
            "problem",
            f"{found}: commits are acknowledged before they are on the disk",
            "a crash of the machine loses acknowledged records, and their requests run again: SET GLOBAL "
            "innodb_flush_log_at_trx_commit = 1, and in the server's configuration",
        )
    elif flush not in ("1", "3"):
        yield Finding(
            "durability",
            "warning",
            f"{found}: a node acknowledges commits before they are on its disk",
            "the other nodes have them, unless all lose power at once: innodb_flush_log_at_trx_commit = 1",
        )
    elif doublewrite.upper() in ("OFF", "0"):
        yield Finding(
            "durability",
            "warning",
            found,
            "without innodb_doublewrite a power failure can damage pages, unless the disk writes them whole",
        )
    elif logs and server.variables.get("sync_binlog") != "1":
        yield Finding(
            "durability",
            "warning",
            found,
            "after a crash replicas can have transactions that this server has not, or lack some that it "
            "has; "
            "a failover to one of them then loses records: sync_binlog = 1",
        )
    else:
        yield Finding("durability", "ok", f"{found}: what was acknowledged is on the disk")


def binary_log(server: Server) -> Iterator[Finding]:
    if server.has_on("log_bin") and server.variables.get("binlog_format", "").upper() == "STATEMENT":
        yield Finding(
            "binary log",
            "problem",
            "binlog_format is STATEMENT, with which InnoDB refuses to write in READ COMMITTED",
            "no request can be accepted (503): SET GLOBAL binlog_format = ROW, or MIXED",
        )


def mode(server: Server) -> Iterator[Finding]:
    modes = server.variables.get("sql_mode", "").upper().split(",")
    if any(each.startswith("STRICT_") for each in modes):
        yield Finding("mode", "ok", "sql_mode is strict: values that do not fit are refused")
    else:
        yield Finding(
            "mode",
            "warning",
            "sql_mode is not strict: the server cuts off values that do not fit their columns",
            "the store sets it in its own sessions, but a handler's transaction has the server's: "
            "sql_mode = STRICT_TRANS_TABLES, beside what it has",
        )


def isolation(server: Server) -> Iterator[Finding]:
    found = server.variables.get("transaction_isolation") or server.variables.get("tx_isolation", "unknown")
    said = f"transactions are {found.replace('-', ' ').lower()} by default"
    if found.upper() == "SERIALIZABLE":
        yield Finding(
            "isolation",
            "warning",
            said,
            'with effects="database" a handler locks whatever it reads: use READ COMMITTED for such handlers',
        )
    elif server.has_on("innodb_snapshot_isolation") and schema.refuses_snapshots(server.version):
        yield Finding(
            "isolation",
            "warning",
            f"{said}, and innodb_snapshot_isolation is on",
            'with effects="database" a call whose lease was renewed cannot be completed in REPEATABLE READ: '
            "switch it off, use READ COMMITTED for such handlers, or MariaDB 11.4.2 or later",
        )
    else:
        yield Finding("isolation", "ok", f"{said}; the store's own are read committed")


def clock(server: Server) -> Iterator[Finding]:
    apart = f"{abs(server.ahead):.1f} s {'ahead of' if server.ahead > 0 else 'behind'} this machine's"
    advice = (
        "leases and expiry use the server's clock alone, so this does no harm; times that are shown are the "
        "server's"
    )
    yield Finding(
        "clock", "ok", f"the server's clock is {apart}", *([advice] if abs(server.ahead) > _APART else [])
    )


def connections(server: Server) -> Iterator[Finding]:
    most = int(server.variables.get("max_connections", "0"))
    used = int(server.status.get("threads_connected", "0"))
    free = most - used
    found = f"{used} of {most} are in use, {max(free, 0)} are free"
    if free < _SCARCE:
        yield Finding(
            "connections",
            "warning",
            found,
            "a service that cannot connect responds 503: raise max_connections, or make the pools of "
            "applications smaller",
        )
    else:
        yield Finding("connections", "ok", found)


def packets(server: Server) -> Iterator[Finding]:
    largest = int(server.variables.get("max_allowed_packet", "0"))
    if largest < _PACKET:
        yield Finding(
            "packets",
            "warning",
            f"max_allowed_packet is {largest} bytes",
            "a response is sent in hexadecimal, which doubles it, and one that does not fit is not stored "
            "(503): "
            "max_allowed_packet = 16M",
        )
    else:
        yield Finding("packets", "ok", f"max_allowed_packet is {largest} bytes")


def cluster(server: Server) -> Iterator[Finding]:
    """Galera, which accepts commits that another node's then refuse."""
    if not server.has_on("wsrep_on"):
        return
    status = server.status.get("wsrep_cluster_status", "unknown")
    size = server.status.get("wsrep_cluster_size", "unknown")
    state = server.status.get("wsrep_local_state_comment", "unknown")
    found = f"Galera, {size} nodes, this one is {state} in a component that is {status}"
    if status.lower() != "primary" or server.status.get("wsrep_ready", "").upper() != "ON":
        yield Finding(
            "cluster",
            "problem",
            f"{found}: it serves no requests",
            "it has lost the majority of the cluster, or is catching up: use the address of a node that "
            "serves",
        )
        return
    sync = server.variables.get("wsrep_sync_wait", "0")
    yield Finding(
        "cluster",
        "warning",
        f"{found}, wsrep_sync_wait {sync}",
        "let all services write to one node, and to another one only if that fails: nodes that write the "
        "same key "
        "at once roll one of them back at its COMMIT"
        + (
            ", and a node may not see yet what another one has acknowledged (wsrep_sync_wait = 1 makes it "
            "wait). "
            if sync == "0"
            else ". "
        )
        + "Acknowledged transactions can be lost when nodes crash while the network is split",
    )


class _Examination:
    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def findings(self) -> list[Finding]:
        try:
            with self._session.transaction(SNAPSHOT, self._session.deadline) as transaction:
                server = ask(transaction)
        except StoreError as error:
            return [
                Finding(
                    "server",
                    "problem",
                    str(error),
                    "check the address, and that it can be reached from this machine",
                )
            ]
        of_server = (
            kind, durability, binary_log, mode, isolation, clock, connections, packets, cluster,
        )  # fmt: skip
        found = [finding for check in of_server for finding in check(server)]
        tables = self._run("schema", _schema)
        found += tables
        if any(finding.level == "problem" for finding in tables):
            return found  # the rest would fail for the same reason
        checks: list[tuple[str, Check]] = [
            ("records", lambda transaction: doctor.records(transaction.query)),
            ("expired", lambda transaction: doctor.expired(transaction.query)),
            ("abandoned", lambda transaction: doctor.abandoned(transaction.query)),
            ("payloads", lambda transaction: doctor.payloads(transaction.query)),
        ]
        found += doctor.run("rights", self._rights)
        found += [finding for name, check in checks for finding in self._run(name, check)]
        return [*found, *self._locks()]

    def _run(self, name: str, check: Check) -> list[Finding]:
        def within() -> Iterator[Finding]:
            with self._session.transaction(SNAPSHOT, doctor.PATIENCE) as transaction:
                yield from check(transaction)

        return doctor.run(name, within)

    def _rights(self) -> Iterator[Finding]:
        # Not in a transaction that only reads: the server refuses even to say how it would delete there.
        with self._session.transaction((), doctor.PATIENCE) as transaction:
            yield from _rights(transaction)

    def _locks(self) -> Iterator[Finding]:
        try:
            with self._session.transaction(SNAPSHOT, doctor.PATIENCE) as transaction:
                rows = transaction.query("long_transactions", {"age": _LONG})
        except StoreError:
            yield Finding(
                "locks",
                "ok",
                "this user may not see the transactions of others",
                "GRANT PROCESS ON *.* to it, for the operator's sake",
            )
            return
        if rows:
            thread, age = rows[0]
            yield Finding(
                "locks",
                "warning",
                f"{len(rows)} transactions have held locks for more than {_LONG} s: thread {thread}, for "
                f"{age} s",
                "if they are on records, requests with their keys get 503 until they end: find out what "
                "they wait "
                f"for, or end one with KILL {thread}",
            )
        else:
            yield Finding("locks", "ok", f"no transaction has held locks for more than {_LONG} s")


def _schema(transaction: Transaction) -> Iterator[Finding]:
    found = list(doctor.tables(transaction.query, schema.DIALECT, "the database of this address"))
    yield from found
    if found[0].level == "problem":
        return
    for name, engine, collation in transaction.query("table_properties"):
        if str(engine).lower() != "innodb":
            yield Finding(
                "schema",
                "problem",
                f"{name} is stored by {engine or 'an unknown engine'}, which has no transactions",
                f"ALTER TABLE {name} ENGINE = InnoDB",
            )
        if not str(collation).startswith("utf8mb4"):
            yield Finding(
                "schema",
                "problem",
                f"{name} has the collation {collation}, which cannot hold every text",
                f"ALTER TABLE {name} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            )
    for column, type, collation in transaction.query("column_types"):
        if "binary" not in str(type):
            yield Finding(
                "schema",
                "problem",
                f"retrysafe_records.{column} is {type} ({collation}), in which different keys can be the "
                "same",
                "create the column as `retrysafe sql --dialect mysql` prints it",
            )


def _rights(transaction: Transaction) -> Iterator[Finding]:
    held = {str(name): set(str(rights).split(",")) for name, rights in transaction.query("table_rights")}
    lacking = {
        name: missing
        for name, needed in _NEEDED.items()
        if (missing := [right.upper() for right in needed if right not in held.get(name, set())])
    }
    if not _may_delete(transaction):
        lacking.setdefault("retrysafe_records", []).append("DELETE")
    said = "; ".join(f"{', '.join(rights)} on {name}" for name, rights in lacking.items())
    vital = [
        name
        for name, rights in lacking.items()
        if name not in _WITHOUT or (name == "retrysafe_meta" and "SELECT" in rights)
    ]
    if vital:
        yield Finding(
            "rights",
            "problem",
            f"this user lacks {said}",
            "GRANT these privileges: a service needs all of them",
        )
    elif lacking:
        without = [text for name, text in _WITHOUT.items() if name in lacking]
        yield Finding(
            "rights",
            "warning",
            f"this user lacks {said}: everything works, but services with this user {', and '.join(without)}",
            "GRANT these privileges",
        )
    else:
        yield Finding("rights", "ok", "this user has every privilege that services and operators need")


def _may_delete(transaction: Transaction) -> bool:
    try:
        transaction.query("may_delete")
    except NotPermitted:
        return False
    return True
