"""A world in which deliveries and workers step through the real flows, one at a time."""

from asyncio import CancelledError
from typing import Any

from retrysafe._core import protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Reserved, Response
from retrysafe._core.steps import (
    CallBack,
    Commit,
    Finish,
    Flow,
    Forget,
    Look,
    Outcome,
    Pause,
    Persist,
    Raised,
    Release,
    Reserve,
    Responded,
    Result,
    RollBack,
    Run,
    Step,
    TakeOver,
    Wait,
)
from retrysafe.callbacks.http import exchange
from retrysafe.callbacks.worker import _Work  # pyright: ignore[reportPrivateUsage]  # its flow is what is tested
from retrysafe.errors import CommitRefused, NotDone, StoreError, StoreUnavailable
from retrysafe.stores.admin import Due, Note, Query
from retrysafe.stores.contract import Renewer, Store
from retrysafe.testing.simulate import clocks
from retrysafe.testing.simulate.callbacks.setting import REQUEST, CallbackStage
from retrysafe.testing.simulate.callbacks.truth import Event, Handled
from retrysafe.testing.simulate.model import Database
from retrysafe.testing.simulate.promises import Violation
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import describe

START = 1_800_000_000.0
PROCESSES = 3
EVENTS = 2

STORE_STEPS = frozenset({Reserve, TakeOver, Look, Finish, Commit, Release})
_IMMEDIATE = frozenset({Pause, Forget, RollBack, CallBack})
UNINTERRUPTED = frozenset({Finish, Release, Commit, RollBack})
"""Steps that the drivers complete even if their task is cancelled."""

_NOTE = Note("operator", "looked into it")


class Process:
    """A service, a worker, or both."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.frozen = False
        self.restart()

    def restart(self) -> None:
        self.draining = False
        self.held: dict[bytes, tuple[Event, Attempt]] = {}
        self.forgotten: list[tuple[Event, Claim]] = []

    def is_draining(self) -> bool:
        return self.draining


class Task:
    """A delivery, or a worker's turn at a stored payload."""

    def __init__(self, number: int, event: Event, body: int, process: Process, *, delivers: bool) -> None:
        self.number = number
        self.event = event
        self.body = body
        self.process = process
        self.delivers = delivers
        self.flow: Flow[Result] | None = None
        self.step: Step | None = None
        self.granted = False
        self.run: Handled | None = None
        self.token = b""
        self.result: Result | None = None
        self.status: int | None = None
        """What its sender was told; `None`: nothing."""
        self.cancelled = False
        self.persisted = 0

    def __str__(self) -> str:
        return f"{'delivery' if self.delivers else 'work'} {self.number}"


class World:
    """The whole state of a simulation, and the one place where it changes."""

    def __init__(self, stage: CallbackStage) -> None:
        self.stage = stage
        self.setting = setting = stage.setting
        self.clock = clocks.StoreClock(START)
        self.store: Store = setting.store(self.clock)
        self.admin = self.store.open_admin()
        self.processes = [Process(number) for number in range(PROCESSES)]
        self.events = [
            Event(number, transactional=setting.mode == "tx", holds=stage.holds) for number in range(EVENTS)
        ]
        self.tasks: list[Task] = []
        self.live: list[Task] = []
        self.delayed: list[tuple[Task, Step]] = []
        """Calls to the store that timed out, and have not arrived yet."""
        self.seen: list[Due] = []
        """What workers saw due, some of it long ago."""
        self.down = False
        self.safe = False
        """Whether faults have stopped."""
        self.said: list[str] = []
        """What happened."""
        self._renewer: Renewer | None = None

    def close(self) -> None:
        self.admin.close()
        if self._renewer is not None:
            self._renewer.close()
        self.store.close()

    def keeper(self) -> Renewer:
        if self._renewer is None:
            self._renewer = self.store.open_keeper()
        return self._renewer

    def say(self, text: str) -> None:
        self.said.append(text)

    # --- what arrives

    def deliver(self, event: int, body: int, process: int) -> Task:
        """A sender delivers an event."""
        task = self._task(self.events[event], body, self.processes[process], delivers=True)
        receipts = self.stage.receipts
        task.event.tries += 1
        task.token = b"delivery %d" % task.number
        task.flow = protocol.receive(
            self.stage.delivery(event, body),
            receipts.rules,
            receipts.callback,
            describe,
            task.token,
            task.process.is_draining,
            b"secret",
        )
        self.say(f"{task} of {task.event} with payload {body} arrives at process {process}")
        return self._begin(task)

    def look(self) -> list[Due]:
        """A worker looks at what is due."""
        found = list(self.admin.due(self.stage.receipts.name, 10))
        self.seen += found
        return found

    def work(self, due: Due, process: int) -> Task:
        """A worker has its turn at what it saw due."""
        event = next(one for one in self.events if due.record.key == f"e-{one.number}")
        task = self._task(event, event.body, self.processes[process], delivers=False)
        self.say(f"{task} at {event} begins in process {process}")
        task.flow = _Work(self.stage.receipts, due, lambda _: None).flow()
        return self._begin(task)

    def _task(self, event: Event, body: int, process: Process, *, delivers: bool) -> Task:
        task = Task(len(self.tasks), event, body, process, delivers=delivers)
        self.tasks.append(task)
        self.live.append(task)
        return task

    def _begin(self, task: Task) -> Task:
        self._advance(task, None, None)
        return task

    # --- one step

    def turn(self, task: Task) -> None:
        """Let one task make its next step, and go on to the one after it."""
        step = task.step
        clocks.set_local(self.clock.now)
        if type(step) in STORE_STEPS:
            if self.down:
                return self.fail(task)
            try:
                reply = self.apply(task, step)
            except StoreError as error:
                return self._advance(task, None, error)
            return self._advance(task, reply, None)
        if isinstance(step, Run):
            if task.run is None or task.run.token != step.attempt.claim.token:
                return self._run(task, step.attempt)
            return self._handled(task)
        if isinstance(step, Persist):
            held = task.process.held.get(step.claim.token)
            lasts = held is not None and self.clock.now + step.pause < held[1].lease_ends
            task.persisted += 1
            if task.persisted > 20:
                lasts = False
            return self._advance(task, lasts, None)
        assert isinstance(step, Wait), f"{task} makes a step of another flow: {step}"
        return self._advance(task, step.seconds, None)

    def fail(self, task: Task) -> None:
        """The store gives no reply."""
        self._advance(task, None, StoreUnavailable("no reply"))

    def refuse(self, task: Task) -> None:
        """The database refuses a commit."""
        self._advance(task, None, CommitRefused("a constraint"))

    def cancel(self, task: Task) -> None:
        task.cancelled = True
        if type(task.step) in UNINTERRUPTED:
            return self.turn(task)
        if isinstance(task.step, Run) and task.run is not None:
            task.run.over = True
        return self._advance(task, None, CancelledError())

    def remove(self, task: Task) -> None:
        """It is over, whether its sender is told or not."""
        if task in self.live:
            self.live.remove(task)
        task.flow = task.step = None
        if task.run is not None:
            task.run.over = True
        task.process.held.pop(task.token, None)

    def crash(self, process: Process) -> None:
        for task in [task for task in self.live if task.process is process]:
            self.remove(task)
        process.frozen = False
        process.restart()

    def _advance(self, task: Task, reply: object, error: BaseException | None) -> None:
        flow: Any = task.flow
        try:
            if task.step is None:
                step = next(flow)
            else:
                step = flow.send(reply) if error is None else flow.throw(error)
            while type(step) in _IMMEDIATE:
                if isinstance(step, Forget):
                    # At once, and once more a little later: its bid may have been on its way.
                    task.process.forgotten += [(task.event, step.claim)] * 2
                elif isinstance(step, RollBack) and task.run is not None:
                    task.run.over = True
                step = flow.send(None)
            task.step = step
            if isinstance(step, Reserve | TakeOver):
                task.token = step.claim.token
        except StopIteration as end:
            self._end(task, end.value)
        except CancelledError:
            if not task.cancelled:
                raise
            self.remove(task)
        except Violation:
            raise
        except Exception as raised:  # no exception may leave the flow
            raise Violation("I11", f"the flow of {task} raised {raised!r}") from raised

    def _end(self, task: Task, result: Result) -> None:
        task.result = result
        self.say(f"{task} ends with {result.verdict}")
        self.remove(task)
        if task.delivers and not task.cancelled:
            sent = exchange.response_to(result, REQUEST, self.stage.receipts, "id")
            assert sent is not None
            task.status = sent.status
            self.say(f"its sender is told {sent.status}")
            task.event.told(str(task), task.body, sent.status)

    # --- the handler

    def _run(self, task: Task, attempt: Attempt) -> None:
        """The handler begins; at the next turn it is done."""
        event = task.event
        task.run = event.begins(str(task), attempt.claim.token, granted=task.granted)
        attempt.lease_ends = self.clock.now + LEASE
        task.process.held[attempt.claim.token] = event, attempt
        if self.setting.handler == "kills":
            self.say(f"{task} ends process {task.process.number}")
            self.crash(task.process)

    def _handled(self, task: Task) -> None:
        run, handler = task.run, self.setting.handler
        assert run is not None
        run.over = True
        first = task.event.runs[0] is run
        outcome: Outcome
        if first and handler == "raises":
            run.effect = self.setting.mode == "lease"
            outcome = Raised(ValueError("a bug in the handler"))
        elif first and handler == "declines":
            run.declined = True
            outcome = Raised(NotDone("come back later", retry_after=5))
        elif first and handler == "refuses" and task.delivers:
            run.declined = True
            outcome = Responded(Response(429, ((b"retry-after", b"5"),)))
        else:
            run.succeeded = True
            run.effect = run.effect or self.setting.mode == "lease"
            outcome = Responded(Response(200), False, ())
        self._advance(task, outcome, None)

    # --- the store

    def apply(self, task: Task, step: Step | None) -> object:
        """The store performs a step."""
        event, now, store = task.event, self.clock.now, self.store
        match step:
            case Reserve(claim):
                return self._granted(task, claim, store.reserve(claim))
            case TakeOver(claim, previous, state):
                return self._granted(task, claim, store.take_over(claim, previous, state))
            case Look(claim):
                return store.look(claim.id)
            case Finish(claim, final):
                stored = store.finish(claim, final)
                event.finished(str(task), claim.token, final, task.run, stored=stored)
                return stored
            case Commit(_, claim, final):
                if isinstance(store, Database):
                    stored = store.commit_with_effect(claim, final, b"%d" % event.number)
                else:
                    stored = store.finish(claim, final)
                event.finished(str(task), claim.token, final, task.run, stored=stored)
                if stored and task.run is not None and not task.run.effect:
                    event.committed(task.run)
                return stored
            case Release(claim):
                store.release(claim)
                event.released(claim.token)
                return None
            case _:
                raise AssertionError(f"{step} is no step of a store's, at {now}")

    def _granted(self, task: Task, claim: Claim, reservation: object) -> object:
        if isinstance(reservation, Reserved):
            task.granted = True
            task.event.granted(str(task), claim, task.body, self.clock.now, delivered=task.delivers)
        return reservation

    def apply_without_reply(self, task: Task, step: Step | None) -> None:
        """The same, and the reply is lost, even if it is an error."""
        try:
            self.apply(task, step)
        except StoreError:
            return

    def arrive_late(self, number: int) -> None:
        """A call that timed out arrives after all."""
        task, step = self.delayed.pop(number)
        self.say(f"a late {type(step).__name__} of {task} arrives")
        self.apply_without_reply(task, step)

    # --- keepers and operators

    def renew(self, process: Process) -> None:
        held = list(process.held.values())
        renewals = self.keeper().renew([attempt.claim for _, attempt in held])
        for (event, attempt), renewed in zip(held, renewals, strict=True):
            event.renewed(attempt.claim.token, self.clock.now + LEASE, renewed=renewed)
            if renewed:
                attempt.lease_ends = self.clock.now + LEASE
            else:
                process.held.pop(attempt.claim.token, None)

    def forget(self, process: Process) -> None:
        """The keeper releases the oldest claim that it was given to forget, for good at the second time."""
        event, claim = process.forgotten.pop(0)
        self.keeper().release([claim])
        event.released(claim.token)
        if all(known.token != claim.token for _, known in process.forgotten):
            self.delayed = [(task, step) for task, step in self.delayed if task.token != claim.token]

    def redrive(self, event: Event) -> bool:
        """An operator has the payload of an event handled again."""
        found = self.admin.list(Query(door="callback", key=f"e-{event.number}"), 1)
        for sighting in found:
            if sighting.standing in ("failed", "abandoned") and self.admin.redrive(sighting.record, _NOTE):
                after = self.store.look(sighting.record.id)
                assert after is not None
                event.redriven(after.record.token)
                self.say(f"an operator redrives {event}")
                return True
        return False
