"""A world in which requests step through the real flows, one at a time, and anything may go wrong.

No threads and no real time.  `actions.perform` makes one thing happen; what happens next is up to its caller:
a seed (`walk.py`), an exhaustive search (`search.py`), or a schedule that is run again.
"""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from retrysafe._core import protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Final, Found, Reservation, Reserved, Response
from retrysafe._core.steps import (
    Call,
    CallBack,
    Checkpoint,
    Commit,
    Finish,
    Forget,
    Look,
    LookWithin,
    Outcome,
    Pause,
    Persist,
    Raised,
    Reauthorise,
    Release,
    Reserve,
    Responded,
    Result,
    RollBack,
    Run,
    Spoil,
    Step,
    StoreWithin,
    Streamed,
    TakeOver,
    Wait,
)
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.errors import NotDone, StoreError, StoreUnavailable
from retrysafe.stores.contract import Renewer, Store
from retrysafe.stores.queue import Outcome as CallOutcome
from retrysafe.testing.simulate import batches, clocks, responses
from retrysafe.testing.simulate.batches import Exchange, WorkerQueue
from retrysafe.testing.simulate.keystate import Execution, KeyState
from retrysafe.testing.simulate.model import Database, Nesting, Within
from retrysafe.testing.simulate.monitor import Monitor
from retrysafe.testing.simulate.promises import Violation, broken
from retrysafe.testing.simulate.request import PARTS, Queued, SimulatedRequest, Worker
from retrysafe.testing.simulate.responses import Received
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import Stage, describe

START = 1_800_000_000.0
WORKERS = 3
_WRITES = 2
"""Of one request: the checkpoint of its response, and its outcome."""

STORE_STEPS = frozenset(
    {Reserve, TakeOver, Look, Checkpoint, Finish, Commit, Release, LookWithin, StoreWithin}
)
_WAITING = frozenset({Reserve, TakeOver, Checkpoint, Finish, Commit, Release, StoreWithin})
"""Those that wait for a transaction which has written the same record."""

_IMMEDIATE = frozenset({Pause, Forget, RollBack, CallBack, Spoil})
"""Steps that other requests do not notice, or that are done later: they are made with the one before."""


@contextmanager
def quiet() -> Generator[None]:
    """Disable the log of stores: they log each record that expired unresolved, here thousands."""
    log = logging.getLogger("retrysafe.store")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def carried(stored: bool) -> bool:
    """Whether a transaction's effects are committed, given that its outcome was stored."""
    return stored


class World:
    """The whole state of a simulation, and the one place where it changes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.setting = setting = stage.setting
        self.clock = clocks.StoreClock(START)
        self.store: Store = setting.store(self.clock)
        self.workers = [Worker(number) for number in range(WORKERS)]
        self.requests: dict[int, SimulatedRequest] = {}
        self.live: list[SimulatedRequest] = []
        """Requests that have not ended."""
        self.keys: dict[int, KeyState] = {}
        self.monitor = Monitor(setting, self.keys)
        self.delayed: list[list[tuple[SimulatedRequest, Step]]] = []
        """Calls to the store that timed out, and have not arrived yet; those of a batch arrive together."""
        self.down = False
        self.revoked: dict[int, int] = {}
        self.store_error: StoreError | None = None
        """The last one that the store itself raised; it counts as an outage at that moment."""
        self.intervened = False
        """Whether an operator has settled anything."""
        self.tick = 0
        self.remembers = False
        """Whether requests have a digest of the replies that they received, which a search needs."""
        self._renewer: Renewer | None = None
        self._nesting: Nesting | None = None
        if setting.door == "nested":
            if not isinstance(self.store, Nesting):
                raise ValueError(
                    f"{type(self.store).__name__} has no could_store_within and commit_with_parts, which "
                    f"Setting(door='nested') needs: see retrysafe.testing.simulate.model, or leave it out"
                )
            self._nesting = self.store
        self._database: Database | None = None
        if setting.mode == "tx" and isinstance(self.store, Database):
            self._database = self.store

    def keeper(self) -> Renewer:
        """The connection of the lease keepers."""
        if self._renewer is None:
            self._renewer = self.store.open_keeper()
        return self._renewer

    def drop_keeper(self) -> None:
        """After an error another one is opened, as the real lease keeper does."""
        if self._renewer is not None:
            renewer, self._renewer = self._renewer, None
            renewer.close()

    def close(self) -> None:
        """Close the store and its connections."""
        try:
            self.drop_keeper()
        finally:
            self.store.close()

    def effects(self) -> Sequence[bytes] | None:
        """What was committed with outcomes; `None`, if the store does not say it."""
        database = self._nesting or self._database
        return None if database is None else database.effects()

    # --- requests

    def arrive(self, number: int, identity: int, asked: int, worker: int) -> SimulatedRequest:
        request = self.requests[number] = self._make(number, identity, asked, self.workers[worker])
        if self.stage.part_of(identity) is None:
            request.handler = self.setting.handler
        request.flow = protocol.once(request.call)
        request.step = next(request.flow)
        self.live.append(request)
        return request

    def _make(self, number: int, identity: int, asked: int, worker: Worker) -> SimulatedRequest:
        key = self.keys.get(identity)
        if key is None:
            key = self.keys[identity] = KeyState(identity)
        claim = self.stage.claim(identity, asked, number)
        request = SimulatedRequest(number, key, asked, worker, claim)
        rules = self.stage.rules
        request.call = Call(
            claim,
            rules.policy,
            rules.outcome,
            describe,
            worker.is_draining,
            reauthorises=self.setting.reauthorise,
        )
        request.began = self.tick
        request.settled_window = key.window if key.definitive is not None else 0
        return request

    def turn(self, request: SimulatedRequest) -> None:
        """Let one request make its next step, and go on to the one after it."""
        step = request.step
        kind = type(step)
        worker = request.worker
        clocks.set_local(self.clock.now + worker.offset)
        reply: object
        if kind in STORE_STEPS:
            if request.refusal is not None:
                return self.resume(request, None, request.refusal)
            if self.down:
                return self.fail(request)
            try:
                reply = self.apply(request, step)
            except StoreError as error:
                self.store_error = error
                request.store_failed = True
                return self.resume(request, None, error)
            return self.receive(request, reply)
        if isinstance(step, Run):
            called = request.calls_part
            reply = self.run(request, step.attempt)
            if request.inner is not None and not called:
                return None
        elif isinstance(step, Persist):
            held = worker.held.get(request.claim.token)
            reply = held is not None and self.clock.now + worker.offset + step.pause < held[1].lease_ends
            request.refused += not reply
            if request.refused > _WRITES:
                broken("I11", f"{request} retries after its lease has ended")
        elif isinstance(step, Wait):
            reply = step.seconds
        elif isinstance(step, Reauthorise):
            reply = request.key.identity not in self.revoked
        else:
            broken("I11", f"{request} makes a step of another flow: {step}")
        return self.resume(request, reply)

    def receive(self, request: SimulatedRequest, reply: object) -> None:
        """A reply of the store reaches the request."""
        if type(reply) is Reserved:
            request.drained = request.worker.draining
        self.resume(request, reply)

    def fail(self, request: SimulatedRequest) -> None:
        request.store_failed = True
        if request.calls_part and request.part is not None:
            request.part.store_failed = True
        self.resume(request, None, StoreUnavailable("no reply"))

    def resume(self, request: SimulatedRequest, reply: object, error: BaseException | None = None) -> None:
        flow: Any = request.inner or request.flow
        if self.remembers:
            request.digest = hash((request.digest, reply if error is None else type(error)))
        try:
            step = flow.send(reply) if error is None else flow.throw(error)
            while type(step) in _IMMEDIATE:
                if type(step) is Forget:
                    request.forgot = True
                    # At once, and once more a little later: its bid may have been on its way.
                    request.worker.forgotten += (request, request)
                elif type(step) is RollBack:
                    self.roll_back(request)
                elif type(step) is Spoil and request.transaction is not None:
                    request.transaction.spoil(step.reason, passing=step.passing)
                step = flow.send(None)
            request.step = step
        except StopIteration as end:
            if request.calls_part:
                self._part_ended(request, end.value)
            elif request.inner is not None:
                self._streams(request, end.value)
            else:
                self._end(request, end.value)
        except CancelledError:
            if not request.cancelled:
                raise
            if not request.calls_part:
                return self.remove(request)
            request.inner = None  # and so is the handler that has called it
            self.resume(request, None, CancelledError())
        except Violation:
            raise
        except Exception as raised:  # no exception may leave the flow
            raise Violation("I11", f"the flow of {request} raised {raised!r}") from raised

    def _end(self, request: SimulatedRequest, result: Result) -> None:
        self.remove(request)
        if request.cancelled:
            return
        request.result = result
        request.ended = self.tick
        self._check(request, result)
        part = request.part
        done = part.result if part is not None else None
        if part is not None and done is not None and done.verdict == result.verdict == "completed":
            part.ended = self.tick
            self._check(part, done)

    def _check(self, request: SimulatedRequest, result: Result) -> None:
        responses.check(Received(request, result, self.clock.now, self.setting, self.keys, self.revoked))

    def remove(self, request: SimulatedRequest) -> None:
        """It has ended, whether or not its client receives anything."""
        request.flow = request.inner = request.step = request.queued = None
        request.worker.held.pop(request.claim.token, None)
        self.live.remove(request)
        self.roll_back(request)

    # --- the queues of workers

    def enqueue(self, request: SimulatedRequest) -> None:
        """Hand its step to the queue of its worker."""
        worker = request.worker
        if worker.queue is None:
            worker.queue = WorkerQueue()
        assert request.step is not None
        request.queued = Queued(request, request.step)
        worker.queue.ask(request.queued)
        self.settle(worker)

    def settle(self, worker: Worker) -> None:
        """Let a queue go on, and the requests whose operations have ended; a frozen worker does so later."""
        if worker.queue is None or worker.frozen:
            return
        for queued, reply, error in worker.queue.settle():
            request = queued.request
            request.queued = None
            if error is None:
                self.receive(request, reply)
            else:
                request.store_failed = True
                self.resume(request, None, error)

    def perform(self, worker: Worker, exchange: Exchange) -> list[CallOutcome]:
        """The store performs what a worker has in flight."""
        clocks.set_local(self.clock.now + worker.offset)
        return batches.perform(exchange.calls, self._apply_queued)

    def _apply_queued(self, queued: Queued, step: Step) -> object:
        request = queued.request
        if request.queued is not queued:
            request.arrived_late = True  # its caller has left
        try:
            return self.apply(request, step)
        except StoreError as error:
            self.store_error = error
            raise

    # --- its handler

    def run(self, request: SimulatedRequest, attempt: Attempt) -> Outcome | None:
        """Run the handler, or the operation that is a part of it.

        `None`: its response is large, and `request.inner` decides if it may leave; or it calls its part.
        """
        if request.calls_part and request.part is not None:
            request.part.attempt = attempt
            self.monitor.begins_within(request.part, self.clock.now)
            return self._handle(request.part, attempt)
        request.attempt = attempt
        self.monitor.begins(request, leased=attempt.leased)
        if attempt.leased:
            attempt.lease_ends = self.clock.now + request.worker.offset + LEASE
            request.worker.held[request.claim.token] = request, attempt
        return self._handle(request, attempt)

    def _handle(self, request: SimulatedRequest, attempt: Attempt) -> Outcome | None:
        key, handler = request.key, request.handler
        number = len(key.executions) + 1
        fails = handler == "fails" or (handler in ("recovers", "raises") and number == 1)
        response = _response(key.identity, number, 500 if fails else 201)
        execution = Execution(number, request.window, request.claim.token, request.asked, response)
        key.executions.append(execution)
        request.execution = execution
        execution.effect = self.setting.mode == "lease"
        part = self.stage.part_of(key.identity)
        if part is not None:
            self._call_part(request, attempt, part)
            return None
        if number == 1 and handler == "declines":
            execution.effect = False
            return _DECLINED
        if number == 1 and handler == "raises":
            return _RAISED
        if number == 1 and handler == "derives":
            attempt.derive("charge")
            return _DECLINED
        if handler in ("streams", "breaks off"):
            self._stream(request, attempt, response)
            return None
        return Responded(response)

    def _call_part(self, request: SimulatedRequest, attempt: Attempt, identity: int) -> None:
        """The handler calls an operation that is a part of its transaction."""
        request.transaction = attempt.transaction = CallTransaction(self.store, awaited=False)
        part = self._make(request.number + PARTS, identity, request.asked, request.worker)
        part.handler = self.setting.handler
        request.part = part
        request.inner = protocol.within(part.call, attempt)
        request.step = next(request.inner)

    def _part_ended(self, request: SimulatedRequest, result: Result) -> None:
        """The handler goes on to its end, whatever has become of its part."""
        part = request.part
        assert part is not None
        assert request.execution is not None
        request.inner = None
        part.result = result
        if result.verdict != "completed":  # else it is known when the call around it has ended
            part.ended = self.tick
            self._check(part, result)
        self.resume(request, Responded(request.execution.response))

    def _stream(self, request: SimulatedRequest, attempt: Attempt, response: Response) -> None:
        """The response is too large to buffer."""
        request.head = Response(response.status, response.headers)
        request.inner = protocol.let_flow(request.call, attempt, request.head)
        try:
            request.step = next(request.inner)
        except StopIteration as end:
            self._streams(request, end.value)

    def _streams(self, request: SimulatedRequest, result: Result | None) -> None:
        """It may leave, or not; in either case its handler goes on to its end."""
        request.inner = None
        request.streaming = result is not None
        request.promised = result is not None and result.stored
        if result is not None and result.reply != request.head:
            broken(
                "I5", f"{request} begins to receive {result.reply}, and its handler responded {request.head}"
            )
        if request.promised and not request.marked:
            broken("I5", f"bytes of {request} leave marked as stored, without a checkpoint in the store")
        if request.cancelled:
            return self.resume(request, None, CancelledError())
        assert request.head is not None
        assert request.execution is not None
        breaks = request.execution.broke = (
            self.setting.handler == "breaks off" and request.execution.number == 1
        )
        return self.resume(request, Streamed(request.head, _BROKEN_OFF if breaks else None))

    # --- the store

    def apply(self, request: SimulatedRequest, step: Step | None) -> object:
        """The store performs a step, and the monitor checks its reply."""
        part = request.part
        if part is not None and getattr(step, "claim", None) == part.claim:
            request = part  # a planted bug has its record stored in another way
        return self._OPERATIONS[type(step)](self, request, step)

    def locked(self, id: bytes, request: SimulatedRequest | None = None) -> bool:
        """Whether a transaction, other than this request's, has written this record and is not over."""
        return self._holder(id, request) is not None

    def waits_for(self, request: SimulatedRequest) -> SimulatedRequest | None:
        """The request whose transaction has to end before this one can make its step."""
        if type(request.step) not in _WAITING:
            return None
        waiting = request.part if request.calls_part and request.part is not None else request
        return self._holder(waiting.claim.id, request)

    def _holder(self, id: bytes, request: SimulatedRequest | None) -> SimulatedRequest | None:
        if self._nesting is None:
            return None
        for other in self.requests.values():
            if other is not request and other.within is not None and other.within.claim.id == id:
                return other
        return None

    def roll_back(self, request: SimulatedRequest) -> None:
        """Its transaction is over; unless its commit is still on its way."""
        if request.within is None:
            return
        delayed = (step for calls in self.delayed for known, step in calls if known is request)
        if not any(isinstance(step, Commit) for step in delayed):
            request.within = None

    def _look_within(self, _: SimulatedRequest, step: LookWithin) -> Found | None:
        return self.store.look(step.attempt.claim.id)

    def _store_within(self, request: SimulatedRequest, step: StoreWithin) -> bool:
        assert self._nesting is not None
        within = Within(step.attempt.claim, step.final, step.previous)
        if not self._nesting.could_store_within(within):
            return False
        request.within = within
        return True

    def apply_without_reply(self, request: SimulatedRequest, step: Step | None) -> None:
        """The same, and the reply is lost, even if it is an error."""
        try:
            self.apply(request, step)
        except StoreError as error:
            self.store_error = error

    def _reserve(self, request: SimulatedRequest, step: Reserve) -> Reservation:
        return self._granted(request, self.store.reserve(step.claim))

    def _take_over(self, request: SimulatedRequest, step: TakeOver) -> Reservation:
        return self._granted(request, self.store.take_over(step.claim, step.previous, step.state))

    def _granted(self, request: SimulatedRequest, reservation: Reservation) -> Reservation:
        if type(reservation) is Reserved:
            self.monitor.granted(request, reservation.attempt, self.clock.now)
        return reservation

    def _look(self, _: SimulatedRequest, step: Look) -> Found | None:
        return self.store.look(step.claim.id)

    def _checkpoint(self, request: SimulatedRequest, step: Checkpoint) -> bool:
        stored = self.store.checkpoint(step.claim, step.head)
        if stored:
            request.marked = True
            self.monitor.checkpointed(request, self.clock.now)
        else:
            self.monitor.fenced(request, None, self.clock.now)
        return stored

    def _finish(self, request: SimulatedRequest, step: Finish) -> bool:
        stored = self.store.finish(step.claim, step.final)
        self._noted(request, step.final, stored=stored)
        return stored

    def _noted(self, request: SimulatedRequest, final: Final, *, stored: bool) -> None:
        if stored:
            self.monitor.stored(request, final, self.clock.now)
        else:
            self.monitor.fenced(request, final, self.clock.now)

    def _commit_step(self, request: SimulatedRequest, step: Commit) -> bool:
        execution = request.execution
        assert execution is not None
        if self._nesting is not None:
            return self._commit_parts(request, step, execution)
        if self._database is not None:
            stored = self._database.commit_with_effect(step.claim, step.final, execution.response.body)
        else:
            stored = self.store.finish(step.claim, step.final)
        self._noted(request, step.final, stored=stored)
        if carried(stored):
            execution.effect = True
            self.monitor.committed(request)
        return stored

    def _commit_parts(self, request: SimulatedRequest, step: Commit, execution: Execution) -> bool:
        """What its part has written is committed as well, with a record or without one."""
        assert self._nesting is not None
        part, within = request.part, request.within
        done = part.execution if part is not None else None
        effects = [one.response.body for one in (execution, done) if one is not None]
        parts = [within] if within is not None else []
        stored = self._nesting.commit_with_parts(step.claim, step.final, effects, parts)
        request.within = None
        self._noted(request, step.final, stored=stored)
        if stored:
            execution.effect = True
            self.monitor.committed(request)
            if part is not None and done is not None:
                if within is not None and part.attempt is not None:
                    self.monitor.committed_within(part, within.final, part.attempt.number, self.clock.now)
                done.effect, done.window = True, part.window
                self.monitor.committed(part)
        return stored

    def _release(self, request: SimulatedRequest, step: Release) -> None:
        self.store.release(step.claim)
        self.monitor.released(request)

    _OPERATIONS: ClassVar[dict[type[Step | None], Callable[["World", SimulatedRequest, Any], object]]] = {
        Reserve: _reserve,
        TakeOver: _take_over,
        Look: _look,
        Checkpoint: _checkpoint,
        Finish: _finish,
        Commit: _commit_step,
        Release: _release,
        LookWithin: _look_within,
        StoreWithin: _store_within,
    }


# One of each: a search compares the replies to flows, and two exceptions are never equal.
_DECLINED = Raised(NotDone())
_RAISED = Raised(ValueError("a bug in the handler"))
_BROKEN_OFF = ConnectionError("the response broke off")

_responses: dict[tuple[int, int, int], Response] = {}


def _response(identity: int, number: int, status: int) -> Response:
    """Unlike that of any other execution, in every part; and with headers that are easily lost."""
    known = _responses.get((identity, number, status))
    if known is None:
        headers = (
            (b"content-type", b"application/json"),
            (b"link", b"</%d>" % number),
            (b"link", b"</%d>, </next>" % identity),
            (b"set-cookie", b"session=%d" % number),
        )
        body = b"\xff execution %d of identity %d" % (number, identity)
        known = _responses[identity, number, status] = Response(status, headers, body)
    return known
