"""Everything about a store on Redis that could be wrong: its servers and their settings, the sentinels, the
records.

Nothing is created or changed, except that the scripts are loaded, as every service does.  Servers are looked
at one by one, on a connection that is refused by none of the rules for services: what is wrong with a server
is to be found out.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast

from retrysafe.errors import StoreError
from retrysafe.stores.admin import Finding, Sighting, waiting_payloads
from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.connect import INFO, connect, read_info
from retrysafe.stores.redis.errors import trouble_of
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.redis.scripts import Scripts, pack
from retrysafe.stores.redis.servers import primaries
from retrysafe.stores.redis.session import Session
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sightings import Totals, has_expired
from retrysafe.stores.sql.doctor import PATIENCE, run

OLDEST = (6, 2), (7, 2)
"""Redis and Valkey.  Before them a script could not write after it had asked for the time, or did not
exist."""

_APART = 5.0
"""Seconds between the clocks that are worth a remark: a disciplined clock stays far below it."""

_SLOW = 0.05
"""Seconds for a round trip, of which each request with a key has two."""

_FULL = 0.9
"""Of the memory that the server may use."""

_BACKLOG = 100_000
"""Expired records that are worth a warning: services keep up with what they create, so a service has
stopped."""


def examine(
    address: Address,
    scripts: Scripts,
    deadline: float,
    sentinels: Callable[[], Sequence[object]],
    sightings: Callable[[], Iterator[Sighting | None]],
) -> list[Finding]:
    """Run every check.  `sightings` gives the records, and `None` for one that cannot be read."""
    findings: list[Finding] = []
    nodes, found = _nodes(address, deadline)
    findings += found
    for node in nodes:
        findings += run("server", partial(_server, address, node, scripts, deadline, len(nodes) > 1))
    if nodes:
        armed = run("sentinels", lambda: _sentinels(sentinels()))
        findings += armed
        if all(finding.level == "ok" for finding in armed):
            findings += run("records", lambda: _records(sightings()))
    return findings


def _nodes(address: Address, deadline: float) -> tuple[list[Node], list[Finding]]:
    """Those that have records."""
    if not address.is_cluster:
        return list(address.nodes), []
    said: list[str] = []
    for node in address.nodes:
        try:
            with contextlib.closing(connect(address, node, deadline)) as session:
                reads = pack("CLUSTER", "SLOTS") + pack("CLUSTER", "INFO")
                slots, info = session.exchange(reads, 2, monotonic() + deadline)
        except (StoreError, Trouble) as error:
            said.append(str(error))
            continue
        if isinstance(slots, Refusal) or isinstance(info, Refusal):
            said.append(f"{node}: {slots if isinstance(slots, Refusal) else info}")
            continue
        of_slots = dict(primaries(slots, node))
        state = read_info(info).get("cluster_state")
        found = list(dict.fromkeys(of_slots.values()))
        if state != "ok" or len(of_slots) < 16384:
            advice = "look at CLUSTER NODES: keys of the slots that no node serves get 503"
            what = f"the cluster's state is {state}, and {len(of_slots)} of 16384 slots are served"
            return found, [Finding("cluster", "problem", what, advice)]
        return found, [Finding("cluster", "ok", f"{len(found)} primaries serve all slots")]
    return [], [
        Finding(
            "cluster",
            "problem",
            f"no node of the cluster could be asked: {'; '.join(said)}",
            "check the address, and that the nodes can be reached from here",
        )
    ]


def _server(
    address: Address, node: Node, scripts: Scripts, deadline: float, named: bool
) -> Iterator[Finding]:
    try:
        session = connect(address, node, deadline)
    except StoreError as error:
        yield Finding(
            "server", "problem", str(error), "check the address, and that it can be reached from here"
        )
        return
    of = f"{node}: " if named else ""
    with contextlib.closing(session):
        for finding in _checks(address, session, scripts, deadline):
            yield finding._replace(found=f"{of}{finding.found}")


def _checks(address: Address, session: Session, scripts: Scripts, deadline: float) -> Iterator[Finding]:
    def ask(*words: bytes | str) -> Any:  # noqa: ANN401 - as various as the server's replies
        [reply] = session.exchange(pack(*words), 1, monotonic() + deadline)
        return reply

    reply = session.exchange(INFO, 1, monotonic() + deadline)[0]
    if isinstance(reply, Refusal):
        yield Finding(
            "server",
            "warning",
            f"this user may not run INFO ({reply.code}): eviction, persistence and replicas are not checked",
            "grant it +info, or ask the operator of the server",
        )
    else:
        info = read_info(reply)
        yield _version(info)
        yield _role(info)
        yield _eviction(info, address)
        yield _memory(info)
        yield _persistence(info, ask("CONFIG", "GET", "appendfsync"))
        yield _replicas(info, address)
    yield _clock(ask)
    yield _latency(ask)
    yield _scripts(session, scripts, deadline)


def _version(info: Mapping[str, str]) -> Finding:
    flavour = "Valkey" if "valkey_version" in info else "Redis"
    text = info.get("valkey_version") or info.get("redis_version", "of an unknown version")
    oldest = OLDEST[flavour == "Valkey"]
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < oldest:
        wanted = ".".join(map(str, oldest))
        return Finding(
            "server", "problem", f"{flavour} {text}: expected {wanted} or newer", "upgrade the server"
        )
    return Finding("server", "ok", f"{flavour} {text}")


def _role(info: Mapping[str, str]) -> Finding:
    if info.get("role") == "slave":
        return Finding(
            "role",
            "problem",
            "the server is a replica: services are refused",
            f"write the address of its primary ({info.get('master_host')}:{info.get('master_port')})",
        )
    return Finding("role", "ok", "the server is a primary")


def _eviction(info: Mapping[str, str], address: Address) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    evicted = int(info.get("evicted_keys", "0"))
    if policy == "noeviction":
        return Finding("eviction", "ok", "the server evicts nothing (maxmemory-policy is noeviction)")
    found = (
        f"the server may evict records (maxmemory-policy is {policy}), and has evicted {evicted} keys so far"
    )
    level: Any = "warning" if address.accepts_eviction else "problem"
    return Finding("eviction", level, found, "set maxmemory-policy to noeviction: an evicted key runs again")


def _memory(info: Mapping[str, str]) -> Finding:
    used, limit = int(info.get("used_memory", "0")), int(info.get("maxmemory", "0"))
    if not limit:
        return Finding("memory", "ok", f"{_size(used)} used, no limit (maxmemory is 0)")
    found = f"{_size(used)} of {_size(limit)} used"
    if used > _FULL * limit:
        advice = "raise maxmemory, or shorten the retention: a full server refuses new keys (503)"
        return Finding("memory", "warning", found, advice)
    return Finding("memory", "ok", found)


def _persistence(info: Mapping[str, str], fsync: object) -> Finding:
    if info.get("aof_enabled") != "1":
        return Finding(
            "persistence",
            "warning",
            "there is no append-only file: best effort, because a restart loses records",
            "set appendonly to yes. Until then a restart loses everything, and the store refuses to work; "
            "or, where the server saves snapshots, what came after the last one, and nothing is noticed",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            "persistence",
            "problem",
            "the append-only file could not be written",
            "look at the disk of the server: it accepts no writes until that is over",
        )
    if isinstance(fsync, list) and len(cast("list[object]", fsync)) == 2:
        when = cast("list[bytes]", fsync)[1].decode("utf-8", "replace")
        if when == "always":
            return Finding("persistence", "ok", "every write is on the disk before it is acknowledged")
        lost = "the last second" if when == "everysec" else "what the system had not written yet"
        found = f"there is an append-only file (appendfsync is {when}): if the machine dies, {lost} is lost"
    else:
        found = "there is an append-only file; when it is written to the disk could not be checked (CONFIG)"
    return Finding("persistence", "ok", found, "with appendfsync always nothing is, and writes are slower")


def _replicas(info: Mapping[str, str], address: Address) -> Finding:
    number = int(info.get("connected_slaves", "0"))
    if number < address.wait:
        return Finding(
            "replicas",
            "problem",
            f"{number} replicas are connected, and {address.wait} are waited for: every key is refused",
            "repair the replicas, or lower wait",
        )
    if address.wait:
        return Finding("replicas", "ok", f"{number} replicas, of which {address.wait} are waited for")
    if number:
        return Finding(
            "replicas",
            "warning",
            f"{number} replicas, none of which is waited for: a fail-over may lose what was acknowledged",
            "add wait=1 to the address if that must not be",
        )
    return Finding("replicas", "ok", "no replicas")


def _clock(ask: Callable[..., Any]) -> Finding:
    before = time.time()
    said = ask("TIME")
    if isinstance(said, Refusal):
        return Finding(
            "clock",
            "problem",
            f"this user may not run TIME ({said.code}): every key is refused",
            "grant it +time: leases and expiry are counted by the server's clock",
        )
    seconds, microseconds = said
    ahead = int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2
    if abs(ahead) > _APART:
        relation = "ahead of" if ahead > 0 else "behind"
        return Finding(
            "clock",
            "warning",
            f"the server's clock is {abs(ahead):.0f} s {relation} this machine's",
            "only the server's counts, but times in lists will look odd: synchronise them",
        )
    return Finding("clock", "ok", "the server's clock agrees with this machine's")


def _latency(ask: Callable[..., Any]) -> Finding:
    took: list[float] = []
    for _ in range(7):
        began = monotonic()
        ask("PING")
        took.append(monotonic() - began)
    median = statistics.median(took)
    found = f"a round trip takes {median * 1000:.1f} ms"
    if median > _SLOW:
        return Finding("latency", "warning", found, "each request with a key has two: move it nearer")
    return Finding("latency", "ok", found)


def _scripts(session: Session, scripts: Scripts, deadline: float) -> Finding:
    for reply in session.exchange(scripts.load, scripts.number, monotonic() + deadline):
        if isinstance(reply, Refusal):
            trouble = trouble_of(reply)
            said = trouble.as_error() if isinstance(trouble, Trouble) else trouble
            return Finding(
                "scripts", "problem", str(said), "allow this user EVALSHA and SCRIPT LOAD (+@scripting)"
            )
    return Finding("scripts", "ok", "the scripts can be loaded")


def _sentinels(found: Sequence[object]) -> Iterator[Finding]:
    missing = sum(sentinel is None for sentinel in found)
    if not missing:
        yield Finding("sentinels", "ok", "the store is armed")
    elif missing == len(found):
        yield Finding(
            "sentinels",
            "problem",
            "the store is not armed: it is new, has lost its records, or this is another database",
            "if it is new, or if it is understood that keys used before will run again: `retrysafe arm`",
        )
    else:
        yield Finding(
            "sentinels",
            "problem",
            f"{missing} of {len(found)} sentinels are missing: records were evicted or deleted, or lost",
            "find out what deletes keys; then `retrysafe arm`, if keys that were lost may run again",
        )


def _records(sightings: Iterator[Sighting | None]) -> Iterator[Finding]:
    totals = Totals()
    unreadable = 0
    now = time.time()
    until = monotonic() + PATIENCE
    for sighting in sightings:
        if monotonic() > until:
            yield Finding(
                "records",
                "ok",
                f"skipped: it would take more than {PATIENCE:.0f} s",
                "`retrysafe stats` has no such limit",
            )
            return
        if sighting is None:
            unreadable += 1
            continue
        now = sighting.now
        if has_expired(sighting.record, now, sighting.due_at):
            totals.expired += 1
        else:
            totals.add(sighting)
    yield from _counted(totals, unreadable, now)


def _counted(totals: Totals, unreadable: int, now: float) -> Iterator[Finding]:
    found = totals.result(now, 0, {})
    if unreadable:
        yield Finding(
            "records",
            "problem",
            f"{unreadable} records cannot be read by this release",
            "their keys are refused (503): use the release that wrote them, or delete these keys by hand",
        )
    else:
        yield Finding("records", "ok", "every record has a known version and state")
    backlog = f"{found.expired} expired records are not removed yet"
    if found.expired > _BACKLOG:
        yield Finding(
            "expired",
            "warning",
            f"{backlog}: no service keeps up with them",
            "run `retrysafe purge` once a day",
        )
    else:
        yield Finding("expired", "ok", backlog)
    abandoned = found.total.records.get("abandoned", 0)
    if abandoned and found.oldest_abandoned is not None:
        hours = (now - found.oldest_abandoned) / 3600
        yield Finding(
            "abandoned",
            "warning",
            f"the outcome of {abandoned} records is unknown, the oldest of {hours:.1f} hours ago",
            "`retrysafe ls --state abandoned` lists them; find out what happened, then `retrysafe resolve` "
            "or `retrysafe release`",
        )
    else:
        yield Finding("abandoned", "ok", "no outcome is unknown")
    if found.oldest_due is not None:
        yield waiting_payloads(found.oldest_due, now)


def _size(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
