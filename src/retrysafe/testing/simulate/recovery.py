"""I11: faults stop, and every key is answered, claimable, or known as unknown."""

from retrysafe.testing.simulate.actions import Action, perform
from retrysafe.testing.simulate.keystate import Account
from retrysafe.testing.simulate.promises import broken
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION
from retrysafe.testing.simulate.world import World

ENOUGH = 200
"""Steps of one request in peace; one that takes more runs in circles."""

LATER = 1_000_000
"""Numbers of requests that come afterwards begin here."""


def recover(world: World) -> None:
    """Everything works again: whoever is still at it comes to an end, and then everybody is served."""
    world.down = False
    for worker in world.workers:
        worker.frozen = False
    while world.adrift:
        perform(world, Action("deliver"))
    for visit in list(world.live):
        _finish(world, visit)
    for worker in world.workers:
        for _ in range(ENOUGH):
            if not worker.forgotten:
                break
            perform(world, Action("forget", worker.number))
        else:
            broken("I11", f"the keeper of worker {worker.number} cannot release what it was told to forget")
        worker.draining = False
    for account in world.accounts.values():
        _is_let_go(world, account)
    world.clock.now += LEASE + 1
    for account in list(world.accounts.values()):
        _serve(world, account)


def expire(world: World) -> None:
    """All is past its time: every key is a new one."""
    world.clock.now += RETENTION + HOLD + LEASE + 1
    for account in list(world.accounts.values()):
        before = len(account.executions)
        visit = _come(world, account)
        if len(account.executions) == before:
            broken("I11", f"an expired key is not a new one: {visit} was told {_said(visit)}")
    world.monitor.balance(world.effects())
    world.clock.now += RETENTION + HOLD + LEASE + 1
    world.monitor.swept(world.store.purge().records, world.clock.now)


def _is_let_go(world: World, account: Account) -> None:
    """A request that is over and did nothing has left nothing behind: not even until a lease ends.

    Who was cancelled may have a bid that comes late, and blocks the key for one lease; but not where what is
    abandoned is held.
    """
    if account.standing != "running" or account.expired(world.clock.now):
        return
    held = world.setting.mode == "lease" and world.setting.abandoned == "hold"
    for visit in world.visits.values():
        if visit.claim.token != account.token or visit.account is not account or visit.stranded:
            continue
        if visit.haunts and visit.cancelled and not held:
            continue
        if visit.execution is None and (visit.answer is not None or visit.cancelled):
            broken("I11", f"{visit} was told {_said(visit)} and never ran, and keeps the key")
        ran = visit.execution
        over = visit.answer is not None or visit.cancelled
        if ran is not None and world.setting.mode == "tx" and over and not ran.effect:
            broken("I11", f"{visit} was told {_said(visit)} and was rolled back, and keeps the key")
        if visit.answer is not None and visit.answer.verdict == "released":
            broken("I11", f"{visit} was told that its key is free, and it is not, when all is quiet")


def _serve(world: World, account: Account) -> None:
    """Somebody asks for what was asked first, and is told what is true by then."""
    setting, now = world.setting, world.clock.now
    standing = "absent" if account.expired(now) else account.standing
    outcome, checkpointed, lost = account.outcome, account.checkpointed, not account.lapsed(now)
    before = len(account.executions)
    visit = _come(world, account)
    ran = len(account.executions) > before
    told = _said(visit)
    if standing == "absent":
        expected = ran
    elif standing == "running":
        if lost:
            expected = told == "in-flight"
        elif setting.mode == "lease" and (setting.abandoned == "hold" or checkpointed):
            expected = told == "outcome-unknown"
        else:
            expected = ran
    elif outcome is not None and outcome.state == "failed" and setting.failed != "replay":
        expected = ran if setting.failed == "retry" else told == "previously-failed"
    elif account.identity in world.revoked:
        expected = told == "replay-forbidden"
    else:
        expected = told == "replayed" and not ran
    if not expected:
        ran_too = ", and ran" if ran else ""
        broken("I11", f"when all was quiet, the key was {standing}, and {visit} was told {told}{ran_too}")


def _come(world: World, account: Account) -> Visit:
    number = LATER + len(world.visits)
    visit = world.arrive(number, account.identity, account.asked, 0)
    _finish(world, visit)
    return visit


def _finish(world: World, visit: Visit) -> None:
    for _ in range(ENOUGH):
        if visit.flow is None:
            return
        world.tick += 1
        world.turn(visit)
    broken("I11", f"{visit} runs in circles")


def _said(visit: Visit) -> str:
    return visit.answer.verdict if visit.answer is not None else "nothing"
