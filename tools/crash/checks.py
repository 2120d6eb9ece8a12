"""What must hold of a campaign when it is over, key by key: three modes, three promises."""

from collections.abc import Iterable
from typing import NamedTuple

from retrysafe.testing.linearize import check
from tools.crash.audit import Sight, id_in
from tools.crash.clients import Customers
from tools.crash.journal import Chronicle, Execution
from tools.crash.modes import FAILED, RELEASED, Mode


class Reckoning(NamedTuple):
    wrongs: list[str]
    accountable: int
    """Executions that nothing excuses: of each, the next one of its key would have been found.  Where there
    are few of them, that none was found says little."""
    undisturbed: int
    """Keys that nothing has happened to whoever was at them: their outcome must not be called unknown."""


def reckon(
    mode: Mode, keys: Iterable[str], sight: Sight, customers: Customers, chronicle: Chronicle
) -> Reckoning:
    """What was heard, what is stored and what was done belong together, for each key."""
    found = customers.contradictions()
    accountable = undisturbed = 0
    for key in keys:
        if mode == "tx":
            found += _transactional(key, sight, customers)
            continue
        strict = _accountable(mode, key, chronicle)
        accountable += len(strict)
        undisturbed += bool(chronicle.executions(key)) and not chronicle.losses(key)
        found += _once(mode, key, strict, chronicle) + _told(key, customers, chronicle)
    if mode != "tx":
        found += _unknown(mode, customers, chronicle)
    return Reckoning(found + _histories(mode, customers), accountable, undisturbed)


def _histories(mode: Mode, customers: Customers) -> list[str]:
    """I6: what the clients of a key saw can have come about by single steps, one after the other."""
    checked = ((key, check(history, mode=mode)) for key, history in customers.histories.items())
    return [f"{key}: its history is not linearizable.\n{why}" for key, why in checked if why is not None]


def _transactional(key: str, sight: Sight, customers: Customers) -> list[str]:
    """I14: what everybody was told is what was done, once."""
    told = customers.told.get(key)
    heard = id_in(told[0].body) if told else None
    if sight.orders(key) != ([heard] if told else []):
        return [f"{key}: heard {heard}, and there is {sight.orders(key)}"]
    return []


def _accountable(mode: Mode, key: str, chronicle: Chronicle) -> list[Execution]:
    """Those that nothing excuses, in their order.

    Where it may be tried again, each has to be excused by itself: that somebody else lost a lease is no
    reason to run once more.  Elsewhere, nothing is an excuse.
    """
    return [done for done in chronicle.executions(key) if mode == "hold" or not chronicle.is_excused(done)]


def _once(mode: Mode, key: str, strict: list[Execution], chronicle: Chronicle) -> list[str]:
    """I13, I15: how often a handler may have had its effect.

    Somebody else may follow whoever said that nothing had happened, and where it may be tried again whoever
    failed; but only if it came to tell the store so.  Whoever lost a lease may wake up later than its
    successor, and so has an excuse; but not whoever came when all was over.
    """
    believed = RELEASED if mode == "hold" else FAILED
    executions = chronicle.executions(key)
    final = [done for done in strict if not (done.mood in believed and chronicle.has_told(done))]
    too_many = [done for done in final if done != strict[-1]]
    too_late = [later for later in executions if any(chronicle.came_after(later, done) for done in final)]
    if not (too_many or too_late):
        return []
    why = "" if mode == "hold" else ", and not because a lease was lost"
    return [f"{key}: executed {len(executions)} times{why}: {executions}"]


def _told(key: str, customers: Customers, chronicle: Chronicle) -> list[str]:
    """What was told was done."""
    ids = {done.id for done in chronicle.executions(key)}
    return [
        f"{key}: was answered {told.body!r}, which nobody executed"
        for told in customers.told.get(key, ())
        if told.status == 201 and id_in(told.body) not in ids
    ]


def _unknown(mode: Mode, customers: Customers, chronicle: Chronicle) -> list[str]:
    """Only where an owner died, slept or was starved may its outcome be unknown.

    Where it may be tried again, only an owner that was overtaken is told so, and somebody else goes on.
    """
    return [
        f"{key}: its outcome was called unknown in mode {mode}, and nothing had happened to anybody"
        for key in sorted(customers.unknown)
        if not chronicle.losses(key)
    ]
