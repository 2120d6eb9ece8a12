"""Random schedules: a seed chooses everything that happens, and the same seed chooses the same again."""

from random import Random

from retrysafe._core.steps import Commit, Run
from retrysafe.errors import StoreError
from retrysafe.testing.simulate.callbacks import recovery
from retrysafe.testing.simulate.callbacks.setting import CallbackStage
from retrysafe.testing.simulate.callbacks.world import EVENTS, PROCESSES, STORE_STEPS, Task, World
from retrysafe.testing.simulate.setting import LEASE

_USUAL = {
    "step": 200, "deliver": 40, "work": 30, "work stale": 4, "lose reply": 9, "lose request": 6, "delay": 6,
    "arrive late": 8, "refuse": 4, "crash": 4, "crash after": 5, "cancel": 5, "cancel after": 4,
    "freeze": 6, "thaw": 8, "renew": 10, "forget": 8, "elapse": 22, "purge": 4, "outage": 3, "recover": 9,
    "drain": 2, "redrive": 2,
}  # fmt: skip

KINDS = tuple(_USUAL)
"""All that can happen, by name."""

MEANING = {
    "step": "a delivery or a worker makes its next step",
    "deliver": "a delivery arrives",
    "work": "a worker begins with what is due",
    "work stale": "a worker begins with what was due when it looked last",
    "lose reply": "the store performs a call, and the reply is lost",
    "lose request": "a call to the store never arrives",
    "delay": "a call to the store times out, and is still on its way",
    "arrive late": "a call that timed out arrives after all",
    "refuse": "the database refuses a commit",
    "crash": "a process dies, with all that it does",
    "crash after": "a process dies right after the store has performed its call",
    "cancel": "a task is cancelled",
    "cancel after": "the same, right after its step was done",
    "freeze": "a process is frozen",
    "thaw": "a frozen process goes on",
    "renew": "a process renews the leases that it holds",
    "forget": "a process releases the claims that it was given to forget",
    "elapse": "time passes",
    "purge": "expired records are removed",
    "outage": "the store is down",
    "recover": "the store is available again",
    "drain": "a process is about to shut down",
    "redrive": "an operator has an event handled again",
}
"""The same in words."""

_MIXTURES = tuple(
    tuple(kind for kind, weight in {**_USUAL, "step": steps}.items() for _ in range(weight))
    for steps in (600, 200, 80)
)
"""With few, some and many faults."""

_ELAPSE = (1.0, LEASE / 3, LEASE / 3, LEASE + 1, LEASE + 1, 6.0, 25.0, 3600.0)


class CallbackWalk:
    """One schedule, chosen by a seed."""

    def __init__(self, stage: CallbackStage) -> None:
        self.world = World(stage)
        self.taken: list[str] = []
        """What has happened, in order, by kind."""

    def go(self, seed: int) -> None:
        """Run it to its end.  Raises `Violation`."""
        try:
            self._go(Random(seed), seed)
        finally:
            self.world.close()

    def _go(self, random: Random, seed: int) -> None:
        world = self.world
        mixture = random.choice(_MIXTURES)
        coming = random.randint(1, 6)
        for _ in range(random.randint(15, 70)):
            kind = random.choice(mixture)
            if not world.live and kind in ("step", "lose reply", "lose request", "delay"):
                kind = "work" if world.setting.kept != "inline" and random.random() < 0.5 else "deliver"
            if kind == "deliver":
                if not coming:
                    continue
                coming -= 1
            if self._happens(kind, random):
                self.taken.append(kind)
        recovery.recover(world, idle=seed % 4 == 3)

    def _happens(self, kind: str, random: Random) -> bool:
        world = self.world
        process = random.choice(world.processes)
        match kind:
            case "deliver":
                event = 0 if random.random() < 0.75 else random.randrange(EVENTS)
                world.deliver(event, int(random.random() < 0.12), random.randrange(PROCESSES))
            case "work" | "work stale":
                return self._work(random, stale=kind == "work stale")
            case "freeze":
                process.frozen = True
            case "thaw":
                process.frozen = False
            case "renew" | "forget":
                waiting = process.held if kind == "renew" else process.forgotten
                if process.frozen or world.down or not waiting:
                    return False
                (world.renew if kind == "renew" else world.forget)(process)
            case "elapse":
                world.clock.now += random.choice(_ELAPSE)
            case "purge":
                if world.down:
                    return False
                world.store.purge()
            case "outage" | "recover":
                world.down = kind == "outage"
            case "drain":
                process.draining = True
            case "crash":
                world.crash(process)
            case "redrive":
                return not world.down and world.redrive(random.choice(world.events))
            case "arrive late":
                if not world.delayed or world.down:
                    return False
                world.arrive_late(random.randrange(len(world.delayed)))
            case _:
                ready = [task for task in world.live if not task.process.frozen]
                return bool(ready) and happen(world, random.choice(ready), kind)
        if kind in ("freeze", "thaw", "drain", "crash"):
            world.say(f"{kind}: process {process.number}")
        elif kind in ("elapse", "outage", "recover", "purge", "renew", "forget"):
            world.say(f"{kind}, at {world.clock.now - 1_800_000_000:g}")
        return True

    def _work(self, random: Random, *, stale: bool) -> bool:
        world = self.world
        if world.setting.kept == "inline" or world.down:
            return False
        try:
            due = world.seen if stale else world.look()
        except StoreError:
            return False
        if not due:
            return False
        world.work(random.choice(due), random.randrange(PROCESSES))
        return True


def happen(world: World, task: Task, kind: str) -> bool:
    """Have something happen to a task; whether it could."""
    step = task.step
    calls = type(step) in STORE_STEPS
    if kind in ("lose reply", "lose request", "delay", "refuse", "crash after") and (not calls or world.down):
        return False
    world.say(f"{kind}: {type(step).__name__} of {task}")
    match kind:
        case "step":
            world.turn(task)
        case "lose reply":
            world.apply_without_reply(task, step)
            world.fail(task)
        case "lose request":
            world.fail(task)
        case "delay":
            assert step is not None
            world.delayed.append((task, step))
            world.fail(task)
        case "refuse":
            if not isinstance(step, Commit):
                return False
            world.refuse(task)
        case "crash after":
            world.apply_without_reply(task, step)
            world.crash(task.process)
        case "crash":
            world.crash(task.process)
        case "cancel" | "cancel after":
            if task.cancelled:
                return False
            if kind == "cancel after":
                if calls and not world.down and not isinstance(step, Commit):
                    world.apply_without_reply(task, step)
                elif isinstance(step, Run) and task.run is None:
                    world.turn(task)
            if task.flow is None:
                return True
            world.cancel(task)
        case _:
            raise AssertionError(f"{kind} is not known")
    return True
