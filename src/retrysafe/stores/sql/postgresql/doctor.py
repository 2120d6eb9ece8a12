"""Everything about a PostgreSQL store that could be wrong: the server and its settings, a pooler in front of
it, the tables and their records.

Nothing is created or changed.  Each check has a transaction of its own that reads one snapshot and is bounded
in time; one that fails is a finding, whatever it failed with, and the others go on.

Settings are those of the operator's session.  A service that connects as another role, or by another address,
may have other defaults and other rights; the findings say for which role they hold.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from retrysafe.errors import StoreError
from retrysafe.stores.admin import Finding
from retrysafe.stores.queue import Row
from retrysafe.stores.sql import doctor
from retrysafe.stores.sql.admin_session import AdminSession, Transaction
from retrysafe.stores.sql.backend import AdminConnection
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.admin import SNAPSHOT

Check = Callable[[Transaction], Iterator[Finding]]

_LITTER = 10_000
"""Dead rows, above as many as there are living ones, that are worth a warning: the server cleans up at a
fifth."""

_LONG = 10.0
"""Seconds.  Statements on records take milliseconds, and a caller's transaction touches its record at its
very end."""

_APART = 5.0
"""Seconds between the clocks that are worth a remark: a disciplined clock stays far below it."""

_SCARCE = 10
"""Free connections.  A service opens up to half a dozen, and one that restarts has the old ones for a
moment."""

_WITHOUT = {
    "retrysafe_meta": "do not take turns with cleanup, so that each of them removes expired records",
    "retrysafe_routes": "do not count calls by route",
}
"""What is not done by a role that lacks a right on a table, where it is not vital."""

_ASKED = 5
"""How often a session is asked who serves it."""


def examine(connect: Callable[[], AdminConnection], deadline: float) -> list[Finding]:
    """Run every check."""
    with contextlib.closing(AdminSession(connect, deadline)) as session:
        return _Examination(session, connect).findings()


class Server(NamedTuple):
    """The columns of `settings` in doctor.sql, and by how much its clock is ahead of ours, as far as we can
    tell."""

    version: str
    follows: bool
    reads_only: bool
    encoding: str
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    isolation: str
    role: str
    ahead: float
    process: int


def ask(transaction: Transaction) -> Server:
    before = time.time()
    [(*settings, now, process)] = transaction.query("settings")
    ahead = cast(float, now) - (before + time.time()) / 2
    return Server(*settings, ahead, process)  # type: ignore[call-arg, arg-type]  # in the order of the statement


def kind(server: Server) -> Iterator[Finding]:
    found = f"PostgreSQL {server.version}"
    if server.follows:
        yield Finding(
            "server",
            "problem",
            f"{found}, a replica: it accepts no writes",
            "use the address of the primary; with several hosts in one address, add "
            "target_session_attrs=read-write",
        )
    elif server.reads_only:
        yield Finding(
            "server",
            "problem",
            f"{found}, read-only for {server.role}: default_transaction_read_only is on",
            "no request can be accepted: turn it off for this role and database",
        )
    elif server.encoding != "UTF8":
        yield Finding(
            "server",
            "warning",
            f"{found}, and the database is encoded in {server.encoding}",
            "a request whose path or scope has other characters gets 503: use a database in UTF8",
        )
    else:
        yield Finding("server", "ok", f"{found}, accepts writes as {server.role}")


def durability(server: Server) -> Iterator[Finding]:
    found = (
        f"fsync {server.fsync}, synchronous_commit {server.synchronous_commit}, "
        f"full_page_writes {server.full_page_writes}"
    )
    if server.fsync != "on":
        yield Finding(
            "durability",
            "problem",
            found,
            "a crash of the machine can lose or damage everything: turn fsync on",
        )
    elif server.synchronous_commit == "off":
        yield Finding(
            "durability",
            "warning",
            f"{found}: commits are acknowledged before they are on the disk",
            "the store overrides it for its own commits, but not for those of handlers: a crash can lose "
            f"what a stored response says was done. ALTER ROLE {server.role} SET synchronous_commit = on",
        )
    elif server.full_page_writes != "on":
        yield Finding(
            "durability",
            "warning",
            found,
            "without full_page_writes a power failure can damage pages, unless the disk writes them whole",
        )
    else:
        yield Finding("durability", "ok", f"{found}: what was acknowledged is on the disk")


_WAITED_FOR = {
    "local": "no commit waits for them",
    "remote_write": "commits do not wait for their disks",
}
"""What `synchronous_commit` takes back.  `off` is not among them: the store overrides it."""


def standbys(server: Server, transaction: Transaction) -> Iterator[Finding]:
    """What a promotion would lose; nothing is found where there is no standby."""
    [(names, receiving)] = cast("list[tuple[str, int]]", transaction.query("standbys"))
    if server.follows or not (names or receiving):
        return
    if not names:
        yield Finding(
            "standbys",
            "warning",
            f"{receiving} connected, none of them synchronous",
            "if one is promoted, what it had not received is lost, and executed again on a retry: set "
            "synchronous_standby_names, with more standbys than are waited for",
        )
    elif not receiving:
        yield Finding(
            "standbys",
            "warning",
            f"synchronous_standby_names is {names!r}, and none is connected",
            "no commit is acknowledged, and requests get 503: start the standby, or have another one",
        )
    elif server.synchronous_commit in _WAITED_FOR:
        yield Finding(
            "standbys",
            "warning",
            f"{receiving} connected, and {_WAITED_FOR[server.synchronous_commit]}",
            "if one is promoted, acknowledged records can be lost: "
            f"ALTER ROLE {server.role} SET synchronous_commit = on",
        )
    else:
        yield Finding("standbys", "ok", f"{receiving} connected, commits wait for {names}")


def isolation(server: Server) -> Iterator[Finding]:
    if server.isolation in ("read committed", "read uncommitted"):
        yield Finding("isolation", "ok", f"transactions are {server.isolation} by default")
    else:
        yield Finding(
            "isolation",
            "warning",
            f"transactions are {server.isolation} by default",
            'with effects="database" a handler that takes longer than a third of the lease then fails with a '
            "serialization error (40001), because its lease was renewed meanwhile, and is rolled back: use "
            "read committed for such handlers, or a longer lease",
        )


def clock(server: Server) -> Iterator[Finding]:
    apart = f"{abs(server.ahead):.1f} s {'ahead of' if server.ahead > 0 else 'behind'} this machine's"
    if abs(server.ahead) > _APART:
        yield Finding(
            "clock",
            "ok",
            f"the server's clock is {apart}",
            "leases and expiry use the server's clock alone, so this does no harm; times that are shown are "
            "the server's",
        )
    else:
        yield Finding("clock", "ok", f"the server's clock is {apart}")


def connections(transaction: Transaction) -> Iterator[Finding]:
    [(most, reserved, used)] = cast("list[tuple[int, int, int]]", transaction.query("connections"))
    free = most - reserved - used
    found = f"{used} of {most} are in use, {max(free, 0)} are free for ordinary roles"
    if free < _SCARCE:
        yield Finding(
            "connections",
            "warning",
            found,
            "a service that cannot connect responds 503: raise max_connections, make the pools of "
            "applications smaller, or put a pooler between",
        )
    else:
        yield Finding("connections", "ok", found)


def pooler(connect: Callable[[], AdminConnection], within: float) -> Iterator[Finding]:
    """Whether the sessions that we see are the server's own.

    A new session learns which process serves it, and a pooler may give another one.  One that
    gives every transaction another process shows it in one of two ways, depending on whom it takes first: a
    session that asks again is answered by another process, or a second one, in a transaction, has the process
    that the first one has just had.
    """

    def process(connection: AdminConnection) -> int:
        [(number,)] = connection.query("backend_pid", {}, within)
        return cast(int, number)

    first = connect()
    try:
        second = connect()
        try:
            before = {process(first) for _ in range(_ASKED)}
            second.command("BEGIN READ ONLY", within)
            other, after = process(second), process(first)
            second.command("COMMIT", within)
            shared = len(before | {after}) > 1 or other in before
            between = shared or first.process not in {None, after}
        finally:
            second.close()
    finally:
        first.close()
    if shared:
        yield Finding(
            "pooler",
            "ok",
            "a pooler in transaction mode is between this machine and the server",
            "the store works behind it: it relies on no session, and prepares no statements there.  But "
            "LISTEN does not work through it, so requests that wait for the first one (waiting mode) poll; "
            "give the store an address that bypasses the pooler to avoid this",
        )
    elif between:
        yield Finding(
            "pooler",
            "ok",
            "a pooler is between this machine and the server, and each session kept its server process",
            "if it is in transaction mode, requests that wait for the first one (waiting mode) poll, because "
            "LISTEN does not work through it; nothing else changes",
        )
    else:
        yield Finding("pooler", "ok", "none")


class _Examination:
    def __init__(self, session: AdminSession, connect: Callable[[], AdminConnection]) -> None:
        self._session = session
        self._connect = connect

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
        found = [
            *kind(server),
            *durability(server),
            *self._run("standbys", lambda transaction: standbys(server, transaction)),
            *isolation(server),
            *clock(server),
            *doctor.run("pooler", lambda: pooler(self._connect, self._session.deadline)),
            *self._run("connections", connections),
        ]
        tables = self._run("schema", self._schema)
        found += tables
        if any(finding.level == "problem" for finding in tables):
            return found  # the rest would fail for the same reason
        checks: list[tuple[str, Check]] = [
            ("rights", self._rights),
            ("records", lambda transaction: doctor.records(transaction.query)),
            ("expired", lambda transaction: doctor.expired(transaction.query)),
            ("abandoned", lambda transaction: doctor.abandoned(transaction.query)),
            ("payloads", lambda transaction: doctor.payloads(transaction.query)),
            ("vacuum", self._vacuum),
            ("locks", self._locks),
        ]
        return found + [finding for name, check in checks for finding in self._run(name, check)]

    def _run(self, name: str, check: Check) -> list[Finding]:
        def within() -> Iterator[Finding]:
            with self._session.transaction(SNAPSHOT, doctor.PATIENCE) as transaction:
                yield from check(transaction)

        return doctor.run(name, within)

    def _schema(self, transaction: Transaction) -> Iterator[Finding]:
        place = "the search_path of this role"
        found = list(doctor.tables(transaction.query, schema.DIALECT, place))
        yield from found
        if found[0].level != "problem":
            yield from _kept(transaction)

    def _rights(self, transaction: Transaction) -> Iterator[Finding]:
        lacking: dict[str, list[str]] = {}
        is_vital = False
        for name, right, vital in transaction.query("missing_privileges"):
            lacking.setdefault(str(name), []).append(str(right))
            is_vital = is_vital or bool(vital)
        said = "; ".join(f"{', '.join(rights)} on {name}" for name, rights in lacking.items())
        if is_vital:
            yield Finding(
                "rights",
                "problem",
                f"this role lacks {said}",
                "GRANT these permissions, as the owner of the tables; a service needs all of them",
            )
        elif lacking:
            without = [text for name, text in _WITHOUT.items() if name in lacking]
            yield Finding(
                "rights",
                "warning",
                f"this role lacks {said}: everything works, but services with this role "
                f"{', and '.join(without)}",
                "GRANT these permissions, as the owner of the tables",
            )
        else:
            yield Finding("rights", "ok", "this role has every permission that services and operators need")

    def _vacuum(self, transaction: Transaction) -> Iterator[Finding]:
        for row in transaction.query("vacuum"):
            yield _litter(row)

    def _locks(self, transaction: Transaction) -> Iterator[Finding]:
        rows = transaction.query("lock_holders", {"age": _LONG})
        seen = [row for row in rows if row[1] is not None]
        if seen:
            process, age, state, application = seen[0]
            who = f"process {process}" + (f" ({application})" if application else "")
            yield Finding(
                "locks",
                "warning",
                f"{len(seen)} transactions that changed or locked records have been open for more than "
                f"{_LONG:.0f} s: {who}, {state}, for {cast(float, age):.0f} s",
                "requests with the keys of these records get 503 until they end: find out what they wait "
                f"for, or end one with SELECT pg_terminate_backend({process})",
            )
        elif len(rows) > len(seen):
            yield Finding(
                "locks",
                "ok",
                "transactions of other roles have changed records; this role cannot see for how long",
                "GRANT pg_read_all_stats to it",
            )
        else:
            yield Finding("locks", "ok", f"no transaction has locked records for more than {_LONG:.0f} s")


def _kept(transaction: Transaction) -> Iterator[Finding]:
    """Properties of a table that lose its rows or hide them."""
    for name, passing, hiding in transaction.query("table_properties"):
        if passing:
            yield Finding(
                "schema",
                "problem",
                f"{name} is unlogged or temporary: a crash of the server empties it",
                f"ALTER TABLE {name} SET LOGGED",
            )
        if hiding:
            yield Finding(
                "schema",
                "problem",
                f"row security hides rows of {name} from this role",
                f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY, or give the role BYPASSRLS: a record that "
                "is hidden is a request that runs twice, or one that is refused",
            )


def _litter(row: Row) -> Finding:
    living, dead, cleans, cleans_here, age = cast("tuple[int, int, bool, bool, float | None]", tuple(row))
    when = "never" if age is None else f"{age / 3600:.1f} hours ago"
    found = f"{dead} dead rows beside {living} living ones, last vacuum {when}"
    if not (cleans and cleans_here):
        return Finding(
            "vacuum",
            "warning",
            f"{found}, and autovacuum is off {'for this table' if cleans else 'on this server'}",
            "every request leaves a dead row behind: turn autovacuum on, or the table grows without bound",
        )
    if dead > living + _LITTER:
        return Finding(
            "vacuum",
            "warning",
            found,
            "autovacuum does not keep up: look for transactions, replication slots or replicas that hold "
            "back its horizon, and lower autovacuum_vacuum_scale_factor for retrysafe_records",
        )
    return Finding("vacuum", "ok", found)
