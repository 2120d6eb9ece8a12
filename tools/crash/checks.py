"""What must hold of a round when it is over, key by key: each mode has its own promise."""

from collections.abc import Iterable
from typing import NamedTuple

from retrysafe.testing.linearize import check
from tools.crash.audit import Snapshot
from tools.crash.clients import PLACED, Clients
from tools.crash.journal import Execution, Timeline
from tools.crash.modes import FAILED, RELEASED, TRANSACTIONAL, Mode


class Checked(NamedTuple):
    violations: list[str]
    unexcused: int
    """Executions that nothing excuses: a further one of the same key would have been a violation.  Where
    there are few of them, no violation means little."""
    undisturbed: int
    """Keys whose requests met no fault: their outcome must not be called unknown."""


def check_keys(
    mode: Mode, keys: Iterable[str], snapshot: Snapshot, clients: Clients, timeline: Timeline
) -> Checked:
    """What clients received, what is stored and what was executed agree, for each key."""
    found = clients.contradictions() + clients.broken_promises()
    unexcused = undisturbed = 0
    for key in keys:
        if mode in TRANSACTIONAL:
            found += _transactional(key, snapshot, clients)
            continue
        strict = _unexcused(mode, key, timeline)
        unexcused += len(strict)
        undisturbed += bool(timeline.executions(key)) and not timeline.lost_leases(key)
        found += _once(mode, key, strict, timeline) + _executed(key, clients, timeline)
    if mode not in TRANSACTIONAL:
        found += _unknown(mode, clients, timeline) + _derived(timeline)
    return Checked(found + _histories(mode, clients), unexcused, undisturbed)


def _histories(mode: Mode, clients: Clients) -> list[str]:
    """I6: what the clients of a key saw could have happened one request after the other."""
    rules = "tx" if mode == "nested" else mode
    checked = ((key, check(history, mode=rules)) for key, history in clients.histories.items())
    return [f"{key}: its history is not linearizable.\n{why}" for key, why in checked if why is not None]


def _transactional(key: str, snapshot: Snapshot, clients: Clients) -> list[str]:
    """I14: what clients received is what was committed, once."""
    received = clients.received.get(key)
    id = received[0].id if received else None
    if snapshot.orders(key) != ([id] if received else []):
        return [f"{key}: the response has {id}, and the table has {snapshot.orders(key)}"]
    return []


def _unexcused(mode: Mode, key: str, timeline: Timeline) -> list[Execution]:
    """Executions that nothing excuses, in their order.

    In mode `retry` each has to be excused by itself: that another attempt lost its lease is not a reason to
    run again.  In mode `hold` nothing is.
    """
    return [
        done for done in timeline.executions(key) if mode == "hold" or not timeline.may_have_lost_lease(done)
    ]


def _once(mode: Mode, key: str, strict: list[Execution], timeline: Timeline) -> list[str]:
    """I13, I15: how often a handler may have had its effect.

    A further execution may follow one that declared that nothing had happened, and in mode `retry` one that
    failed; but only if that got as far as the store.  An attempt that lost its lease may go on later than its
    successor, and so is excused; but not one that arrived when all was over.
    """
    believed = RELEASED if mode == "hold" else FAILED
    executions = timeline.executions(key)
    final = [done for done in strict if not (done.ending in believed and timeline.has_stored(done))]
    too_many = [done for done in final if done != strict[-1]]
    too_late = [later for later in executions if any(timeline.arrived_after(later, done) for done in final)]
    if not (too_many or too_late):
        return []
    why = "" if mode == "hold" else ", and not because a lease was lost"
    return [f"{key}: executed {len(executions)} times{why}: {executions}"]


def _executed(key: str, clients: Clients, timeline: Timeline) -> list[str]:
    """Every order in a response was executed."""
    ids = {done.id for done in timeline.executions(key)}
    return [
        f"{key}: the order {received.id!r} of a response was never executed"
        for received in clients.received.get(key, ())
        if received.status in PLACED and received.id not in ids
    ]


def _derived(timeline: Timeline) -> list[str]:
    """Another service that is given a derived key does it once: all executions of a key have one, and no
    other key has it."""
    found: list[str] = []
    owners: dict[str, str] = {}
    for key in sorted(timeline.keys()):
        derived = {done.derived for done in timeline.executions(key) if done.derived}
        if len(derived) > 1:
            found.append(f"{key}: its executions passed on different derived keys: {sorted(derived)}")
        found += [
            f"{key}: passed on the derived key of {owners[one]}" for one in sorted(derived) if one in owners
        ]
        owners.update(dict.fromkeys(derived, key))
    return found


def _unknown(mode: Mode, clients: Clients, timeline: Timeline) -> list[str]:
    """An outcome may be unknown only where its owner was killed, frozen, cut off or slow.

    In mode `retry`, only an owner that was overtaken gets it as its response, and another goes on.
    """
    return [
        f"{key}: its outcome was called unknown in mode {mode}, and no fault had met any of its requests"
        for key in sorted(clients.unknown)
        if not timeline.lost_leases(key)
    ]
