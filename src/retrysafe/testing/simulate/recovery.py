"""I11: faults stop, and every key has a response, is claimable, or is known as unknown."""

from retrysafe.testing.simulate.actions import Action, perform
from retrysafe.testing.simulate.keystate import KeyState
from retrysafe.testing.simulate.promises import broken
from retrysafe.testing.simulate.request import LATER, SimulatedRequest, Worker
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION
from retrysafe.testing.simulate.world import World

MAX_STEPS = 200
"""Of one request without faults; one that makes more never ends."""


def recover(world: World) -> None:
    """All faults stop: requests that are under way come to an end, and then each key is requested again."""
    world.down = False
    for worker in world.workers:
        worker.frozen = False
        world.settle(worker)
    for worker in world.workers:
        _empty_queue(world, worker)
    while world.delayed:
        if not any(perform(world, Action("deliver", number)) for number in range(len(world.delayed))):
            # They wait for a transaction, which comes to its end.
            _finish(world, next(request for request in world.live if request.within is not None))
    for request in list(world.live):
        _finish(world, request)
    for worker in world.workers:
        for _ in range(MAX_STEPS):
            if not worker.forgotten:
                break
            perform(world, Action("forget", worker.number))
        else:
            broken(
                "I11",
                f"the keeper of worker {worker.number} cannot release the claims that it was given to forget",
            )
        worker.draining = False
    for key in world.keys.values():
        _is_released(world, key)
    world.clock.now += LEASE + 1
    for key in list(world.keys.values()):
        _serve(world, key)


def expire(world: World) -> None:
    """All records expire: every key is a new one."""
    world.clock.now += RETENTION + HOLD + LEASE + 1
    for key in list(world.keys.values()):
        if not key.expired(world.clock.now):
            continue  # it has just been used again, as a part of another
        before = len(key.executions)
        request = _send(world, key)
        if len(key.executions) == before:
            broken("I11", f"an expired key is not a new one: {request} received {_verdict(request)}")
    world.monitor.balance(world.effects())
    world.clock.now += RETENTION + HOLD + LEASE + 1
    world.monitor.purged_all(world.store.purge().records, world.clock.now)


def _empty_queue(world: World, worker: Worker) -> None:
    """All that a worker's queue has in flight is performed, and all callers have a reply."""
    queue = worker.queue
    if queue is None:
        return
    for _ in range(MAX_STEPS):
        if not queue.in_flight:
            break
        perform(world, Action("perform batch", worker.number))
    else:
        broken("I11", f"the queue of worker {worker.number} sends batches without an end")
    for request in world.live:
        if request.queued is not None and request.worker is worker:
            broken("I11", f"{request} waits for its worker's queue, which has nothing in flight")


def _is_released(world: World, key: KeyState) -> None:
    """A request that is over and did nothing has left nothing behind: not even until a lease ends.

    A bid of a cancelled request may arrive late, and blocks the key for one lease; but not where abandoned
    attempts are held.
    """
    if key.standing != "running" or key.expired(world.clock.now):
        return
    held = world.setting.mode == "lease" and world.setting.abandoned == "hold"
    for request in world.requests.values():
        if request.claim.token != key.token or request.key is not key or request.stranded:
            continue
        if request.arrived_late and request.cancelled and not held:
            continue
        if request.execution is None and (request.result is not None or request.cancelled):
            broken("I11", f"{request} received {_verdict(request)} and never ran, and still holds the key")
        ran = request.execution
        over = request.result is not None or request.cancelled
        if ran is not None and world.setting.mode == "tx" and over and not ran.effect:
            broken(
                "I11", f"{request} received {_verdict(request)} and was rolled back, and still holds the key"
            )
        if request.result is not None and request.result.verdict == "released":
            broken("I11", f"{request} received that its key is free, and it is not, after faults had stopped")


def _serve(world: World, key: KeyState) -> None:
    """Send the first request of a key again, and check that it receives what is true by then."""
    setting, now = world.setting, world.clock.now
    standing = "absent" if key.expired(now) else key.standing
    outcome, checkpointed, lost = key.outcome, key.checkpointed, not key.lapsed(now)
    before = len(key.executions)
    request = _send(world, key)
    ran = len(key.executions) > before
    verdict = _verdict(request)
    if standing == "absent":
        expected = ran
    elif standing == "running":
        if lost:
            expected = verdict == "in-flight"
        elif setting.mode == "lease" and (setting.abandoned == "hold" or checkpointed):
            expected = verdict == "outcome-unknown"
        else:
            expected = ran
    elif outcome is not None and outcome.state == "failed" and setting.failed != "replay":
        expected = ran if setting.failed == "retry" else verdict == "previously-failed"
    elif key.identity in world.revoked:
        expected = verdict == "replay-forbidden"
    else:
        expected = verdict == "replayed" and not ran
    if not expected:
        ran_too = ", and ran" if ran else ""
        broken(
            "I11",
            f"after faults had stopped, the key was {standing}, and {request} received {verdict}{ran_too}",
        )


def _send(world: World, key: KeyState) -> SimulatedRequest:
    number = LATER + len(world.requests)
    request = world.arrive(number, key.identity, key.asked, 0)
    _finish(world, request)
    return request


def _finish(world: World, request: SimulatedRequest) -> None:
    for _ in range(MAX_STEPS):
        if request.flow is None:
            return
        holder = world.waits_for(request)
        if holder is not None:
            _finish(world, holder)
        world.tick += 1
        world.turn(request)
    broken("I11", f"{request} does not end after {MAX_STEPS} steps")


def _verdict(request: SimulatedRequest) -> str:
    return request.result.verdict if request.result is not None else "nothing"
