"""What must hold of a round when it is over, key by key: each mode has its own promise."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from retrysafe.testing import linearize
from tools.crash.audit import Snapshot
from tools.crash.callers import Callers, Received
from tools.crash.clients import PLACED, Clients
from tools.crash.journal import Execution, Timeline
from tools.crash.modes import FAILED, RELEASED, TRANSACTIONAL, Mode
from tools.crash.senders import ACCEPTED, HANDLED, Senders


class Checked(NamedTuple):
    violations: list[str]
    unexcused: int
    """Executions that nothing excuses: a further one of the same key would have been a violation.  Where
    there are few of them, no violation means little."""
    undisturbed: int
    """Keys whose requests met no fault: their outcome must not be called unknown."""


def check(
    mode: Mode, keys: Iterable[str], snapshot: Snapshot, callers: Callers, timeline: Timeline
) -> Checked:
    """What must hold of the keys of clients, or of the events of senders."""
    if isinstance(callers, Senders):
        return check_events(mode, keys, snapshot, callers, timeline)
    assert isinstance(callers, Clients)
    return check_keys(mode, keys, snapshot, callers, timeline)


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
    return Checked(found + _histories(mode, clients, timeline), unexcused, undisturbed)


def check_events(
    mode: Mode, keys: Iterable[str], snapshot: Snapshot, senders: Senders, timeline: Timeline
) -> Checked:
    """What senders were told, what receipts say and what was executed agree, for each event."""
    found = senders.contradictions() + broken_acknowledgements(snapshot, senders.received)
    unexcused = undisturbed = 0
    for key in keys:
        found += _left(key, snapshot)
        done = (
            snapshot.orders(key)
            if mode in TRANSACTIONAL
            else [execution.id for execution in timeline.executions(key)]
        )
        found += _handled(key, done, snapshot, senders)
        if mode in TRANSACTIONAL:
            continue
        strict = _unexcused(mode, key, timeline)
        unexcused += len(strict)
        undisturbed += bool(timeline.executions(key)) and not timeline.lost_leases(key)
        found += _once(mode, key, strict, timeline)
    if mode not in TRANSACTIONAL:
        found += _unknown(mode, senders, timeline) + _derived(timeline)
    found += _histories(mode, senders, timeline) + _forgotten(senders)
    return Checked(found, unexcused, undisturbed)


def broken_acknowledgements(snapshot: Snapshot, received: Mapping[str, Sequence[Received]]) -> list[str]:
    """I23: what a sender was told before this snapshot is so.  Nothing that was acknowledged is lost."""
    found: list[str] = []
    for key, responses in received.items():
        state, told = snapshot.state(key), {response.status for response in responses}
        if HANDLED in told:
            expected, kept = "completed", False
        elif ACCEPTED in told:
            expected, kept = "completed", key in snapshot.due
        else:
            expected, kept = "failed", False
        if told and state != expected and not kept:
            found.append(f"{key}: its sender was told {sorted(told)}, and its receipt is {state}")
    return found


def _left(key: str, snapshot: Snapshot) -> list[str]:
    """I11: when all is over, no worker has anything left to do."""
    return [f"{key}: its payload is stored, and no worker has handled it"] if key in snapshot.due else []


def _handled(key: str, done: Sequence[str], snapshot: Snapshot, senders: Senders) -> list[str]:
    """A receipt that says that its event was handled is right, and so is the response of the handler."""
    found = [
        f"{key}: the order {received.id!r} of a response is not among what was done: {done}"
        for received in senders.received.get(key, ())
        if received.id is not None and received.id not in done
    ]
    if snapshot.state(key) == "completed" and not done:
        found.append(f"{key}: its receipt says that it was handled, and it was not")
    return found


def _forgotten(senders: Senders) -> list[str]:
    """I6: once a sender was told that its event was handled, every later delivery is told the same."""
    found: list[str] = []
    for key, deliveries in senders.told.items():
        handled = min((one.ended for one in deliveries if one.status == HANDLED), default=inf)
        found += [
            f"{key}: it was handled, and a later delivery was told {one.status or one.kind}"
            for one in deliveries
            if one.began > handled and one.status != HANDLED and one.kind != "mismatch"
        ]
    return found


def _histories(mode: Mode, clients: Callers, timeline: Timeline) -> list[str]:
    """I6: what the clients of a key saw could have happened one request after the other.

    What a worker did is in no history of deliveries; those of an inbox are about what is stored.
    """
    rules: linearize.Mode
    match mode:
        case "payload":
            return []
        case "nested":
            rules = "tx"
        case "inbox":
            rules = "retry"
        case _:
            rules = mode
    found: list[str] = []
    for key, history in clients.histories.items():
        why = linearize.check(history, mode=rules)
        if why is not None and mode == "inbox" and timeline.lost_leases(key):
            why = None if any(_with_first(history, rules)) else why
        if why is not None:
            found.append(f"{key}: its history is not linearizable.\n{why}")
    return found


def _with_first(history: linearize.History, rules: linearize.Mode) -> Iterator[bool]:
    """Whether a history is linearizable if one of its duplicates was the first delivery after all.

    A bid whose acknowledgement was lost is sent again, and may find that a worker has taken its event over
    meanwhile: then the very delivery that stored it is told that it is a duplicate.
    """
    if any(operation.received == "first" for operation in history):
        return
    for place, operation in enumerate(history):
        if operation.received == "replay":
            promoted = operation._replace(received="first")
            changed = [*history[:place], promoted, *history[place + 1 :]]
            yield linearize.check(changed, mode=rules) is None


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


def _unknown(mode: Mode, clients: Callers, timeline: Timeline) -> list[str]:
    """An outcome may be unknown only where its owner was killed, frozen, cut off or slow.

    In mode `retry`, only an owner that was overtaken gets it as its response, and another goes on.
    """
    return [
        f"{key}: its outcome was called unknown in mode {mode}, and no fault had met any of its requests"
        for key in sorted(clients.unknown)
        if not timeline.lost_leases(key)
    ]
