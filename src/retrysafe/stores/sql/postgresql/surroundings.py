"""What records in PostgreSQL depend on besides their tables: the server, its settings, whoever stands
between.

Asked for the session that the operator has.  A service that connects as another role, or by another address,
may have other defaults and other rights; the findings say for whom they hold.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from retrysafe.stores.admin import Finding
from retrysafe.stores.sql.postgresql.desk import Session, Transaction

_APART = 5.0
"""Seconds between the clocks that are worth a remark: a disciplined clock stays far below it."""

_SCARCE = 10
"""Free connections.  A service opens up to half a dozen, and one that restarts has the old ones for a
moment."""

_ASKED = 5
"""How often a session is asked who serves it."""


class Server(NamedTuple):
    """The columns of settings.sql, and by how much its clock is ahead of ours, as far as we can tell."""

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
            f"{found}, a replica: it follows another server and takes no writes",
            "give the address of the primary; with several hosts in one address, add "
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
            "a path or scope with characters that it does not have is answered 503: use a database in UTF8",
        )
    else:
        yield Finding("server", "ok", f"{found}, takes writes as {server.role}")


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
            "the store overrules it for its own commits, but not for those of handlers: a crash can lose "
            f"what a stored answer says was done. ALTER ROLE {server.role} SET synchronous_commit = on",
        )
    elif server.full_page_writes != "on":
        yield Finding(
            "durability",
            "warning",
            found,
            "without full_page_writes a power failure can damage pages, unless the disk writes them whole",
        )
    else:
        yield Finding("durability", "ok", f"{found}: what was answered is on the disk")


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
            "leases and expiry go by the server's alone, so this does no harm; times that are shown are the "
            "server's",
        )
    else:
        yield Finding("clock", "ok", f"the server's clock is {apart}")


def connections(transaction: Transaction) -> Iterator[Finding]:
    [(most, reserved, used)] = cast("list[tuple[int, int, int]]", transaction.query("room"))
    free = most - reserved - used
    found = f"{used} of {most} are in use, {max(free, 0)} are free for ordinary roles"
    if free < _SCARCE:
        yield Finding(
            "connections",
            "warning",
            found,
            "a service that cannot connect answers 503: raise max_connections, make the pools of "
            "applications smaller, or put a pooler between",
        )
    else:
        yield Finding("connections", "ok", found)


def pooler(connect: Callable[[], Session], within: float) -> Iterator[Finding]:
    """Whether the sessions that we see are the server's own.

    A session that begins is told which process serves it, and a pooler may not tell the truth.  One that
    gives every transaction another process shows it in one of two ways, depending on whom it takes first: a
    session that asks again is answered by another process, or a second one, in a transaction, has the process
    that the first one has just had.
    """

    def process(session: Session) -> int:
        [(number,)] = session.query("backend", {}, within)
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
            "a pooler that gives every transaction another session stands between us and the server",
            "the store works behind it: it relies on no session, and notices that it cannot prepare "
            "statements there.  But nobody can LISTEN through it, so requests that wait for the first one "
            "(waiting mode) ask again and again; give the store an address that goes past the pooler to "
            "have them told",
        )
    elif between:
        yield Finding(
            "pooler",
            "ok",
            "a pooler stands between us and the server, and our sessions kept theirs",
            "if it gives every transaction another session, requests that wait for the first one (waiting "
            "mode) ask again and again, because nobody can LISTEN through it; nothing else changes",
        )
    else:
        yield Finding("pooler", "ok", "none: sessions are the server's own")
