"""What must hold of a campaign when it is over, key by key: three modes, three promises."""

import json
from collections.abc import Iterable

from retrysafe.testing.crash.audit import Sight
from retrysafe.testing.crash.chronicle import Chronicle
from retrysafe.testing.crash.clients import Customers
from retrysafe.testing.crash.modes import RELEASED, Mode
from retrysafe.testing.linearize import check


def reckon(
    mode: Mode, keys: Iterable[str], sight: Sight, customers: Customers, chronicle: Chronicle
) -> list[str]:
    """What was heard, what is stored and what was done belong together, for each key."""
    found = customers.contradictions()
    for key in keys:
        if mode == "tx":
            found += _transactional(key, sight, customers)
        else:
            found += _executions(mode, key, customers, chronicle)
    if mode != "tx":
        found += _unknown(mode, customers, chronicle)
    return found + _histories(mode, customers)


def _histories(mode: Mode, customers: Customers) -> list[str]:
    """I6: what the clients of a key saw can have come about by single steps, one after the other."""
    checked = ((key, check(history, mode=mode)) for key, history in customers.histories.items())
    return [f"{key}: its history is not linearizable.\n{why}" for key, why in checked if why is not None]


def _transactional(key: str, sight: Sight, customers: Customers) -> list[str]:
    """I14: what everybody was told is what was done, once."""
    told = customers.told.get(key)
    heard = json.loads(told[0].body)["id"] if told else None
    if sight.orders(key) != ([heard] if heard else []):
        return [f"{key}: heard {heard}, and there is {sight.orders(key)}"]
    return []


def _executions(mode: Mode, key: str, customers: Customers, chronicle: Chronicle) -> list[str]:
    """I13, I15: how often a handler may have had its effect; and that what was told was done."""
    found: list[str] = []
    executions = chronicle.executions(key)
    # Whoever said that nothing had happened, and where it may be tried again whoever failed, leaves the key
    # to somebody else.
    counted = [done for done in executions if done.mood not in RELEASED and (mode == "hold" or not done.mood)]
    if mode == "retry":
        # Each has to be excused by itself: that somebody else lost a lease is no reason to run once more.
        counted = [done for done in counted if not chronicle.is_excused(key, done)]
    if len(counted) > 1:
        excuse = "" if mode == "hold" else " by owners that cannot have lost their leases"
        found.append(f"{key}: executed {len(counted)} times{excuse}: {executions}")
    ids = {done.id for done in executions}
    for told in customers.told.get(key, ()):
        if told.status == 201 and json.loads(told.body)["id"] not in ids:
            found.append(f"{key}: was answered {told.body!r}, which nobody executed")
    return found


def _unknown(mode: Mode, customers: Customers, chronicle: Chronicle) -> list[str]:
    """Only where an owner died, slept or was starved may its outcome be unknown.

    Where it may be tried again, only an owner that was overtaken is told so, and somebody else goes on.
    """
    return [
        f"{key}: its outcome was called unknown in mode {mode}, and nothing had happened to anybody"
        for key in sorted(customers.unknown)
        if not chronicle.losses(key)
    ]
