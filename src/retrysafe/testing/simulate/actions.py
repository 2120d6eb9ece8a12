"""What can happen in a world, one action at a time, and what each action does to it."""

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from retrysafe._core.model import Final, Response
from retrysafe._core.steps import Checkpoint, Commit, Finish, Release, RollBack, Run
from retrysafe.errors import CommitRefused, StoreError
from retrysafe.stores.admin import Note
from retrysafe.stores.contract import Store
from retrysafe.testing.simulate import clocks
from retrysafe.testing.simulate.keystate import Outcome
from retrysafe.testing.simulate.model import Fragile
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.world import STORE_STEPS, World

Kind = Literal[
    "arrive", "step", "lose reply", "lose request", "delay", "deliver", "refuse", "crash", "crash after",
    "cancel", "cancel after", "freeze", "thaw", "renew", "forget", "elapse", "step clock", "purge", "outage",
    "mend", "release", "resolve", "lose lease", "revoke", "drain",
]  # fmt: skip

MEANING: dict[Kind, str] = {
    "arrive": "a request comes in",
    "step": "a request makes its next step",
    "lose reply": "the store does what it was asked, and the reply is lost",
    "lose request": "what was asked of the store never arrives",
    "delay": "what was asked of the store is given up, and still on its way",
    "deliver": "what was given up arrives after all",
    "refuse": "the database refuses a commit",
    "crash": "a worker dies, with all its requests",
    "crash after": "a worker dies right after the store has done what it was asked",
    "cancel": "a request's task is cancelled",
    "cancel after": "the same, right after its step was done",
    "freeze": "a worker is frozen",
    "thaw": "a frozen worker goes on",
    "renew": "a worker's keeper renews the leases that it holds",
    "forget": "a worker's keeper releases what it was told to forget",
    "elapse": "time passes",
    "step clock": "a worker's clock is set to another time",
    "purge": "expired records are removed",
    "outage": "the store is down",
    "mend": "the store is there again",
    "release": "an operator releases an abandoned record",
    "resolve": "an operator settles an abandoned record",
    "lose lease": "a running record's lease is lost in the store",
    "revoke": "a principal may no longer see stored answers",
    "drain": "a worker is about to shut down",
}


class Action(NamedTuple):
    kind: Kind
    who: int = 0
    """The number of a request, a worker or an identity."""
    how: tuple[Any, ...] = ()
    """Of an arrival: identity, what is asked for, worker.  Of time: seconds."""

    def __str__(self) -> str:
        how = f" ({', '.join(map(str, self.how))})" if self.how else ""
        return f"{self.kind} {self.who}{how}"


_TO_THEIR_END = frozenset({Finish, Release, Checkpoint, Commit, RollBack})
"""What `drive.py` does not let a cancellation cut off."""

_BY_HAND = Final("completed", Response(200, (), b"by hand"))
"""What an operator found out."""

_LOOKS = 3
"""How often somebody looks at a record, if the store has trouble."""


def perform(world: World, action: Action) -> bool:
    """Make it happen."""
    world.tick += 1
    return _HAPPENS[action.kind](world, action)


def _arrive(world: World, action: Action) -> bool:
    identity, asked, worker = action.how
    world.arrive(action.who, identity, asked, worker)
    return True


def _awake(world: World, action: Action) -> Visit | None:
    visit = world.visits.get(action.who)
    return None if visit is None or visit.flow is None or visit.worker.frozen else visit


def _step(world: World, action: Action) -> bool:
    visit = _awake(world, action)
    if visit is None:
        return False
    world.turn(visit)
    return True


def _talking(world: World, action: Action) -> Visit | None:
    """The visit, if it is about to ask something of a store that is there."""
    visit = _awake(world, action)
    return None if visit is None or world.down or type(visit.step) not in STORE_STEPS else visit


def _lose_reply(world: World, action: Action) -> bool:
    visit = _talking(world, action)
    if visit is None:
        return False
    clocks.set_local(world.clock.now + visit.worker.offset)
    world.apply_unheard(visit, visit.step)
    world.fail(visit)
    return True


def _lose_request(world: World, action: Action) -> bool:
    visit = _talking(world, action)
    if visit is None:
        return False
    world.fail(visit)
    return True


def _delay(world: World, action: Action) -> bool:
    visit = _talking(world, action)
    if visit is None or visit.step is None:
        return False
    world.adrift.append((visit, visit.step))
    world.fail(visit)
    return True


def _deliver(world: World, action: Action) -> bool:
    if not world.adrift or world.down:
        return False
    visit, step = world.adrift.pop(action.who % len(world.adrift))
    visit.haunts = True
    world.apply_unheard(visit, step)
    return True


def _refuse(world: World, action: Action) -> bool:
    visit = _talking(world, action)
    if visit is None or type(visit.step) is not Commit:
        return False
    world.resume(visit, None, CommitRefused("a constraint"))
    return True


def _crash(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    lost = [visit for visit in world.live if visit.worker is worker]
    for visit in lost:
        world.lose(visit)
    for visit in (*lost, *worker.forgotten):
        visit.stranded = True
    worker.frozen = False
    worker.restart()
    return True


def _crash_after(world: World, action: Action) -> bool:
    visit = _talking(world, action)
    if visit is None:
        return False
    world.apply_unheard(visit, visit.step)
    return _crash(world, Action("crash", visit.worker.number))


def _cancel(world: World, action: Action) -> bool:
    visit = _awake(world, action)
    if visit is None or visit.cancelled:
        return False
    visit.cancelled = True
    step = visit.step
    # Nobody knows how far its handler came, so nothing is let go; but a transaction is rolled back.
    visit.stranded |= isinstance(step, Run) and world.setting.mode == "lease"
    if visit.inner is not None or type(step) in _TO_THEIR_END:
        world.turn(visit)
        return True
    if action.kind == "cancel after":
        if isinstance(step, Run):
            world.run(visit, step.attempt)
            if visit.inner is not None:
                return True
        elif type(step) in STORE_STEPS and not world.down:
            world.apply_unheard(visit, step)
    world.resume(visit, None, CancelledError())
    return True


def _freeze(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if worker.frozen:
        return False
    worker.frozen = True
    return True


def _thaw(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if not worker.frozen:
        return False
    worker.frozen = False
    return True


def _renew(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if worker.frozen or world.down or not worker.held:
        return False
    held = list(worker.held.values())
    local = world.clock.now + worker.offset
    clocks.set_local(local)
    try:
        answers = world.keeper().renew([visit.claim for visit, _ in held])
    except StoreError as trouble:
        return _failed(world, trouble)
    for (visit, attempt), kept in zip(held, answers, strict=True):
        world.monitor.renewed(visit, kept=kept, now=world.clock.now)
        if kept:
            attempt.lease_ends = local + LEASE
        else:
            attempt.lost = True
            worker.held.pop(visit.claim.token, None)
    return True


def _forget(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if worker.frozen or world.down or not worker.forgotten:
        return False
    half = (len(worker.forgotten) + 1) // 2
    due = worker.forgotten[:half]
    try:
        world.keeper().release([visit.claim for visit in due])
    except StoreError as trouble:
        return _failed(world, trouble)
    worker.forgotten = worker.forgotten[half:]
    for visit in due:
        world.monitor.released(visit)
    # The second time comes when whatever was on its way has arrived, or never will.
    last = [visit for visit in due if visit not in worker.forgotten]
    world.adrift = [(visit, step) for visit, step in world.adrift if visit not in last]
    return True


def _failed(world: World, trouble: StoreError) -> bool:
    """What a keeper tried has come to nothing: it notes that, and tries again when its time comes."""
    world.trouble = trouble
    world.drop_keeper()
    return True


def _elapse(world: World, action: Action) -> bool:
    world.clock.now += action.how[0]
    return True


def _step_clock(world: World, action: Action) -> bool:
    world.workers[action.who].offset += action.how[0]
    return True


def _purge(world: World, _: Action) -> bool:
    if world.down:
        return False
    try:
        purged = world.store.purge()
    except StoreError as trouble:
        world.trouble = trouble
    else:
        world.monitor.purged(purged.records, world.clock.now)
    return True


def _outage(world: World, _: Action) -> bool:
    if world.down:
        return False
    world.down = True
    return True


def _mend(world: World, _: Action) -> bool:
    if not world.down:
        return False
    world.down = False
    return True


def _intervene(world: World, action: Action) -> bool:
    account = world.accounts.get(action.who)
    if account is None or world.down:
        return False
    id = world.stage.claim(account.identity, account.asked, 0).id
    now = world.clock.now
    try:
        if not _settle(world.store, id, release=action.kind == "release"):
            world.monitor.denied(account, now)
            return False
    except StoreError as trouble:
        world.trouble = trouble
        return True
    world.intervened = True
    world.monitor.intervened(account, now)
    if action.kind == "release":
        account.close()
    else:
        token = _token(world, id)
        lasts = account.expires - account.created
        account.keep(Outcome(token, *_BY_HAND, account.asked, account.window), now)
        account.expires = now + lasts
    return True


def _settle(store: Store, id: bytes, *, release: bool) -> bool:
    """As an operator does it, who has looked at the record before."""
    found = store.look(id)
    if found is None:
        return False
    admin, note = store.open_admin(), Note("operator", "asked the bank")
    try:
        if release:
            return admin.release(found.record, note)
        return admin.resolve(found.record, _BY_HAND, note)
    finally:
        admin.close()


def _token(world: World, id: bytes) -> bytes:
    """Under which it was settled; empty, which is nobody's, if that cannot be seen."""
    for _ in range(_LOOKS):
        try:
            after = world.store.look(id)
        except StoreError as trouble:
            world.trouble = trouble
        else:
            return b"" if after is None else after.record.token
    return b""


def _lose_lease(world: World, action: Action) -> bool:
    account = world.accounts.get(action.who)
    if account is None or account.standing != "running" or account.expired(world.clock.now):
        return False
    id = world.stage.claim(account.identity, account.asked, 0).id
    if not isinstance(world.store, Fragile):
        return False
    try:
        world.store.lose_lease(id)
    except StoreError as trouble:
        world.trouble = trouble
        return True
    account.until = None
    return True


def _revoke(world: World, action: Action) -> bool:
    if not world.setting.reauthorise:
        return False
    world.revoked.setdefault(action.who, world.tick)
    return True


def _drain(world: World, action: Action) -> bool:
    world.workers[action.who].draining = True
    return True


_HAPPENS: dict[Kind, Callable[[World, Action], bool]] = {
    "arrive": _arrive,
    "step": _step,
    "lose reply": _lose_reply,
    "lose request": _lose_request,
    "delay": _delay,
    "deliver": _deliver,
    "refuse": _refuse,
    "crash": _crash,
    "crash after": _crash_after,
    "cancel": _cancel,
    "cancel after": _cancel,
    "freeze": _freeze,
    "thaw": _thaw,
    "renew": _renew,
    "forget": _forget,
    "elapse": _elapse,
    "step clock": _step_clock,
    "purge": _purge,
    "outage": _outage,
    "mend": _mend,
    "release": _intervene,
    "resolve": _intervene,
    "lose lease": _lose_lease,
    "revoke": _revoke,
    "drain": _drain,
}
