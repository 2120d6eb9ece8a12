"""Faults stop: senders come back, workers run, and every event is settled as promised."""

from retrysafe.testing.simulate.callbacks.setting import HORIZON, RETENTION, RETRIES
from retrysafe.testing.simulate.callbacks.truth import Event
from retrysafe.testing.simulate.callbacks.world import Task, World
from retrysafe.testing.simulate.promises import broken
from retrysafe.testing.simulate.setting import LEASE

MAX_STEPS = 100
ROUNDS = 3 * RETRIES.attempts


def recover(world: World, *, idle: bool = False) -> None:
    """`idle`: no worker runs for longer than the retention, before it does."""
    world.say("faults stop")
    world.safe, world.down = True, False
    for process in world.processes:
        process.frozen = process.draining = False
    while world.delayed:
        world.arrive_late(0)
    for task in list(world.live):
        finish(world, task)
    for process in world.processes:
        while process.forgotten:
            world.forget(process)
    world.clock.now += LEASE + 1
    if world.setting.patient and world.setting.handler != "kills":
        for event in world.events:
            _insist(world, event)
    if idle and world.setting.kept == "inbox":
        world.clock.now += RETENTION + 1
        world.store.purge()
    _have_workers_run(world)
    for event in world.events:
        _check(world, event)
    world.clock.now += HORIZON
    for event in world.events:
        if event.standing == "completed" and not idle:
            _repeat(world, event)


def finish(world: World, task: Task) -> None:
    """Let it come to its end."""
    for _ in range(MAX_STEPS):
        if task.flow is None:
            return
        world.turn(task)
    broken("I11", f"{task} does not end after {MAX_STEPS} steps")


def _insist(world: World, event: Event) -> None:
    """A sender whose event was never acknowledged delivers it until it is."""
    if event.acknowledged or not event.tries:
        return
    body = event.body
    for _ in range(RETRIES.attempts + 2):
        task = world.deliver(event.number, body, 0)
        finish(world, task)
        if task.status is not None and task.status < 300:
            return
        if world.stage.holds and event.claimed:
            return  # what was done is not known, and its sender is told so
        if task.result is not None and task.result.verdict == "in-flight":
            broken("I11", f"{event} is still being handled after faults have stopped")
        world.clock.now += LEASE + 1
    broken("I11", f"{event} is delivered again and again, and never acknowledged")


def _have_workers_run(world: World) -> None:
    if world.setting.kept == "inline":
        return
    for _ in range(ROUNDS):
        due = world.look()
        for number, one in enumerate(due):
            finish(world, world.work(one, number % len(world.processes)))
        world.clock.now += max(LEASE, RETRIES.longest) + 1
    if world.look():
        broken("I11", "workers handle what is due again and again, and it never ends")


def _check(world: World, event: Event) -> None:
    """What is promised of an event when all is over."""
    setting = world.setting
    done = sum(run.effect for run in event.runs)
    if setting.mode == "tx" and done > 1:
        broken("I14", f"{event} has had its effect {done} times")
    if (event.standing == "completed") and not done:
        broken("I23", f"{event} is stored as handled, and was not")
    if setting.handler == "kills":
        most = RETRIES.attempts + 1 + event.tries
        if len(event.runs) > most:
            broken("I11", f"{event} has ended {len(event.runs)} processes, and {most} are enough")
        if (
            event.standing == "running"
            and not world.stage.holds
            and setting.kept != "inline"
            and event.stored
        ):
            broken("I11", f"{event} ends every process that handles it, and is still running")
        return
    left = event.standing != "completed"
    if world.stage.holds and _is_for_an_operator(event):
        left = False  # it waits for an operator, who sees it
    if event.standing == "failed" and event.attempts > RETRIES.attempts:
        left = False  # the same, after as many attempts as it may have
    if left and event.acknowledged:
        broken("I23", f"{event} was acknowledged, and is lost: it is {event.standing}")
    if left and event.stored and event.standing != "absent":
        broken("I11", f"the payload of {event} is stored, and it is {event.standing} for ever")
    if left and setting.kept == "payload" and any(not run.declined for run in event.runs):
        broken(
            "I23",
            f"{event} failed or was interrupted, and its payload is not handled: it is {event.standing}",
        )


def _is_for_an_operator(event: Event) -> bool:
    """Whether something of it may have been done, so that it is not begun again by itself."""
    return bool(event.begun) or (event.claimed and event.standing == "running")


def _repeat(world: World, event: Event) -> None:
    """A sender delivers an event once more, three days later."""
    runs = len(event.runs)
    task = world.deliver(event.number, event.body, 0)
    finish(world, task)
    if len(event.runs) > runs:
        broken("I23", f"{event} was handled again after {HORIZON / 3600:g} hours")
    if task.status != 200:
        broken("I23", f"{event} is handled, and its sender is told {task.status}")
