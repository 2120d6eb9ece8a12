"""What can happen in a world, one action at a time, and what each action does to it."""

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from retrysafe._core.model import Final, Response
from retrysafe._core.steps import Checkpoint, Commit, Finish, Release, RollBack, Run
from retrysafe.errors import CommitRefused, StoreError, StoreUnavailable
from retrysafe.stores.admin import Note
from retrysafe.stores.contract import Store
from retrysafe.stores.queue import Outcome as CallOutcome
from retrysafe.testing.simulate import clocks
from retrysafe.testing.simulate.batches import QUEUED, Exchange, Lost, Refused
from retrysafe.testing.simulate.keystate import Outcome
from retrysafe.testing.simulate.model import Fragile
from retrysafe.testing.simulate.monitor import BY_HAND
from retrysafe.testing.simulate.request import SimulatedRequest, Worker
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.world import STORE_STEPS, World

Kind = Literal[
    "arrive", "step", "lose reply", "lose request", "delay", "deliver", "refuse", "crash", "crash after",
    "cancel", "cancel after", "freeze", "thaw", "renew", "forget", "elapse", "step clock", "purge", "outage",
    "recover", "release", "resolve", "lose lease", "revoke", "drain", "queue", "perform batch",
    "lose batch reply", "lose batch", "repeat batch", "delay batch", "refuse batch", "refuse row", "time out",
]  # fmt: skip

MEANING: dict[Kind, str] = {
    "arrive": "a request arrives",
    "step": "a request makes its next step",
    "lose reply": "the store performs a call, and the reply is lost",
    "lose request": "a call to the store never arrives",
    "delay": "a call to the store times out, and is still on its way",
    "deliver": "a call that timed out arrives after all",
    "refuse": "the database refuses a commit",
    "crash": "a worker dies, with all its requests",
    "crash after": "a worker dies right after the store has performed its call",
    "cancel": "a request's task is cancelled",
    "cancel after": "the same, right after its step was done",
    "freeze": "a worker is frozen",
    "thaw": "a frozen worker goes on",
    "renew": "a worker's keeper renews the leases that it holds",
    "forget": "a worker's keeper releases the claims that it was given to forget",
    "elapse": "time passes",
    "step clock": "a worker's clock is set to another time",
    "purge": "expired records are removed",
    "outage": "the store is down",
    "recover": "the store is available again",
    "release": "an operator releases an abandoned record",
    "resolve": "an operator settles an abandoned record",
    "lose lease": "a running record's lease is lost in the store",
    "revoke": "a principal may no longer see stored responses",
    "drain": "a worker is about to shut down",
    "queue": "a request hands its call to the queue of its worker",
    "perform batch": "the store performs what a worker's queue has in flight, and replies",
    "lose batch reply": "the store performs a batch, and its reply is lost with the connection",
    "lose batch": "a batch never arrives, and its connection is lost",
    "repeat batch": "the connection of a batch was stale, so the batch is sent again",
    "delay batch": "a batch times out, and is still on its way",
    "refuse batch": "the store refuses a batch as a whole, so its calls are run one by one",
    "refuse row": "the store refuses one call of a batch, and performs the others",
    "time out": "a call in a queue, and those before it, time out",
}


class Action(NamedTuple):
    kind: Kind
    who: int = 0
    """The number of a request, a worker or an identity."""
    how: tuple[Any, ...] = ()
    """Of an arrival: identity, what is asked for, worker.  Of time: seconds.  Of a batch: which of those in
    flight; then whether the store had performed it, of one that is repeated; whether it may pass, of one that
    is refused; or which of its calls is refused."""

    def __str__(self) -> str:
        how = f" ({', '.join(map(str, self.how))})" if self.how else ""
        return f"{self.kind} {self.who}{how}"


_UNINTERRUPTED = frozenset({Finish, Release, Checkpoint, Commit, RollBack})
"""Steps that the drivers complete even if the request is cancelled."""

_BY_HAND = Final("completed", Response(200, (), BY_HAND))
"""The outcome that an operator enters."""

_LOOKS = 3
"""How often a record is looked at, if the store raises an error."""


def perform(world: World, action: Action) -> bool:
    """Whether it happened: `False`, if it cannot in this state of the world."""
    world.tick += 1
    return _PERFORM[action.kind](world, action)


def _arrive(world: World, action: Action) -> bool:
    identity, asked, worker = action.how
    world.arrive(action.who, identity, asked, worker)
    return True


def _awake(world: World, action: Action) -> SimulatedRequest | None:
    request = world.requests.get(action.who)
    return None if request is None or request.flow is None or request.worker.frozen else request


def _step(world: World, action: Action) -> bool:
    request = _awake(world, action)
    if request is None or request.queued is not None or world.waits_for(request) is not None:
        return False
    world.turn(request)
    return True


def _talking(world: World, action: Action) -> SimulatedRequest | None:
    """The request, if it is about to call a store that is available."""
    request = _awake(world, action)
    if request is None or request.queued is not None or world.down:
        return None
    if request.refusal is not None or (world.waits_for(request) and action.kind != "lose request"):
        return None
    return request if type(request.step) in STORE_STEPS else None


def _lose_reply(world: World, action: Action) -> bool:
    request = _talking(world, action)
    if request is None:
        return False
    clocks.set_local(world.clock.now + request.worker.offset)
    world.apply_without_reply(request, request.step)
    world.fail(request)
    return True


def _lose_request(world: World, action: Action) -> bool:
    request = _talking(world, action)
    if request is None:
        return False
    world.fail(request)
    return True


def _delay(world: World, action: Action) -> bool:
    request = _talking(world, action)
    if request is None or request.step is None or request.calls_part:
        return False  # in a transaction, a statement that arrives late has none to belong to
    world.delayed.append([(request, request.step)])
    world.fail(request)
    return True


def _deliver(world: World, action: Action) -> bool:
    if not world.delayed or world.down:
        return False
    which = action.who % len(world.delayed)
    if any(world.locked(request.claim.id, request) for request, _ in world.delayed[which]):
        return False
    for request, step in world.delayed.pop(which):
        request.arrived_late = True
        world.apply_without_reply(request, step)
    return True


def _refuse(world: World, action: Action) -> bool:
    request = _talking(world, action)
    if request is None or type(request.step) is not Commit:
        return False
    world.resume(request, None, CommitRefused("a constraint"))
    return True


def _crash(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    lost = [request for request in world.live if request.worker is worker]
    for request in lost:
        world.remove(request)
    for request in (*lost, *worker.forgotten):
        request.stranded = True
    worker.frozen = False
    worker.restart()
    return True


def _crash_after(world: World, action: Action) -> bool:
    request = _awake(world, action)
    if request is not None and request.queued is not None:
        return _crash_after_batch(world, request)
    request = _talking(world, action)
    if request is None:
        return False
    world.apply_without_reply(request, request.step)
    return _crash(world, Action("crash", request.worker.number))


def _crash_after_batch(world: World, request: SimulatedRequest) -> bool:
    worker = request.worker
    in_flight = [] if world.down or worker.queue is None else worker.queue.in_flight
    for exchange in in_flight:
        if request.queued in exchange.queued():
            world.perform(worker, exchange)
            return _crash(world, Action("crash", worker.number))
    return False


def _cancel(world: World, action: Action) -> bool:
    request = _awake(world, action)
    if request is None or request.cancelled or world.waits_for(request) is not None:
        return False
    request.cancelled = True
    step = request.step
    if request.queued is not None:
        # It stops waiting, and what was sent goes on.  A write is made again, to its end.
        assert request.worker.queue is not None
        request.worker.queue.cancel(request.queued)
        request.queued = None
        if request.inner is not None or type(step) in _UNINTERRUPTED:
            world.enqueue(request)
        else:
            world.resume(request, None, CancelledError())
        return True
    # How far its handler came is not known, so nothing is released; but a transaction is rolled back.
    request.stranded |= isinstance(step, Run) and world.setting.mode == "lease"
    if (request.inner is not None and not request.calls_part) or type(step) in _UNINTERRUPTED:
        world.turn(request)
        return True
    if action.kind == "cancel after":
        if isinstance(step, Run):
            called = request.calls_part
            world.run(request, step.attempt)
            if request.inner is not None and not called:
                return True
        elif type(step) in STORE_STEPS and not world.down:
            world.apply_without_reply(request, step)
    world.resume(request, None, CancelledError())
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
    world.settle(worker)
    return True


def _renew(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if worker.frozen or world.down or not worker.held:
        return False
    held = list(worker.held.values())
    if any(world.locked(request.claim.id, request) for request, _ in held):
        return False
    local = world.clock.now + worker.offset
    clocks.set_local(local)
    try:
        renewals = world.keeper().renew([request.claim for request, _ in held])
    except StoreError as error:
        return _failed(world, error)
    for (request, attempt), renewed in zip(held, renewals, strict=True):
        world.monitor.renewed(request, renewed=renewed, now=world.clock.now)
        if renewed:
            attempt.lease_ends = local + LEASE
        else:
            attempt.lost = True
            worker.held.pop(request.claim.token, None)
    return True


def _forget(world: World, action: Action) -> bool:
    worker = world.workers[action.who]
    if worker.frozen or world.down or not worker.forgotten:
        return False
    half = (len(worker.forgotten) + 1) // 2
    due = worker.forgotten[:half]
    # The second release comes when a call that was given up has arrived, or never will.
    last = [request for request in due if request not in worker.forgotten[half:]]
    if any(world.locked(request.claim.id, request) for request in due):
        return False
    if worker.queue is not None and any(worker.queue.is_sent(request) for request in last):
        return False
    try:
        world.keeper().release([request.claim for request in due])
    except StoreError as error:
        return _failed(world, error)
    worker.forgotten = worker.forgotten[half:]
    for request in due:
        world.monitor.released(request)
    world.delayed = [[call for call in calls if call[0] not in last] for calls in world.delayed]
    world.delayed = [calls for calls in world.delayed if calls]
    for request in last:
        world.roll_back(request)
    return True


def _failed(world: World, error: StoreError) -> bool:
    """A call of a lease keeper failed.  It opens another connection, and tries again at its next turn."""
    world.store_error = error
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
    except StoreError as error:
        world.store_error = error
    else:
        world.monitor.purged(purged.records, world.clock.now)
    return True


def _outage(world: World, _: Action) -> bool:
    if world.down:
        return False
    world.down = True
    return True


def _recover(world: World, _: Action) -> bool:
    if not world.down:
        return False
    world.down = False
    return True


def _intervene(world: World, action: Action) -> bool:
    key = world.keys.get(action.who)
    if key is None or world.down:
        return False
    id = world.stage.claim(key.identity, key.asked, 0).id
    if world.locked(id):
        return False
    now = world.clock.now
    try:
        if not _settle(world.store, id, release=action.kind == "release"):
            world.monitor.denied(key, now)
            return False
    except StoreError as error:
        world.store_error = error
        return True
    world.intervened = True
    world.monitor.intervened(key, now)
    if action.kind == "release":
        key.close()
    else:
        token = _token(world, id)
        lasts = key.expires - key.created
        key.store(Outcome(token, *_BY_HAND[:3], key.asked, key.window), now)
        key.expires = now + lasts
    return True


def _settle(store: Store, id: bytes, *, release: bool) -> bool:
    """Settle a record as an operator does: look at it first, then release or resolve what was seen."""
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
    """The token under which the record was settled; empty, which no request has, if it cannot be read."""
    for _ in range(_LOOKS):
        try:
            after = world.store.look(id)
        except StoreError as error:
            world.store_error = error
        else:
            return b"" if after is None else after.record.token
    return b""


def _lose_lease(world: World, action: Action) -> bool:
    key = world.keys.get(action.who)
    if key is None or key.standing != "running" or key.expired(world.clock.now):
        return False
    id = world.stage.claim(key.identity, key.asked, 0).id
    if world.locked(id):
        return False
    if not isinstance(world.store, Fragile):
        return False
    try:
        world.store.lose_lease(id)
    except StoreError as error:
        world.store_error = error
        return True
    key.until = None
    return True


def _revoke(world: World, action: Action) -> bool:
    if not world.setting.reauthorise:
        return False
    world.revoked.setdefault(action.who, world.tick)
    return True


def _drain(world: World, action: Action) -> bool:
    world.workers[action.who].draining = True
    return True


def _queue(world: World, action: Action) -> bool:
    request = _awake(world, action)
    if request is None or request.queued is not None or type(request.step) not in QUEUED:
        return False
    world.enqueue(request)
    return True


def _batch(world: World, action: Action) -> bool:
    """Decide what becomes of something that a queue has in flight."""
    worker = world.workers[action.who]
    if worker.queue is None or not worker.queue.in_flight:
        return False
    which, *how = action.how or (0,)
    kind = action.kind
    # A frozen worker reads no reply; that its connection was lost it notices later.
    if worker.frozen and kind not in ("lose batch reply", "lose batch"):
        return False
    if world.down and kind not in ("perform batch", "lose batch"):
        return False
    exchange = worker.queue.take(which)
    worker.queue.history.append(action)
    reply = exchange.reply
    if world.down:
        reply.set_exception(Lost(stale=False))
    elif kind == "perform batch":
        reply.set_result(world.perform(worker, exchange))
    elif kind == "lose batch reply":
        world.perform(worker, exchange)
        reply.set_exception(Lost(stale=False))
    elif kind == "lose batch":
        reply.set_exception(Lost(stale=False))
    elif kind == "repeat batch":
        if how[0]:
            world.perform(worker, exchange)
        reply.set_exception(Lost(stale=True))
    elif kind == "delay batch":
        world.delayed.append([(queued.request, step) for queued, step in exchange.steps()])
        reply.set_exception(StoreUnavailable("timed out"))
    elif kind == "refuse batch":
        reply.set_exception(Refused(passing=bool(how[0])))
    else:
        reply.set_result(_all_but_one(world, worker, exchange, how[0]))
    world.settle(worker)
    return True


def _all_but_one(world: World, worker: Worker, exchange: Exchange, which: int) -> list[CallOutcome]:
    which %= len(exchange.calls)
    others = [call for number, call in enumerate(exchange.calls) if number != which]
    outcomes = world.perform(worker, exchange._replace(calls=others))
    outcomes.insert(which, Refused(passing=True))
    return outcomes


def _time_out(world: World, action: Action) -> bool:
    request = _awake(world, action)
    if request is None or request.queued is None or request.worker.queue is None:
        return False
    request.worker.queue.time_out(request.queued)
    world.settle(request.worker)
    return True


_PERFORM: dict[Kind, Callable[[World, Action], bool]] = {
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
    "recover": _recover,
    "release": _intervene,
    "resolve": _intervene,
    "lose lease": _lose_lease,
    "revoke": _revoke,
    "drain": _drain,
    "queue": _queue,
    "perform batch": _batch,
    "lose batch reply": _batch,
    "lose batch": _batch,
    "repeat batch": _batch,
    "delay batch": _batch,
    "refuse batch": _batch,
    "refuse row": _batch,
    "time out": _time_out,
}
