"""A world in which requests step through the real flows, one at a time, and anything may go wrong.

No threads and no real time.  `perform` makes one thing happen; what happens next is up to whoever calls it: a
seed (`walk.py`), a search through everything (`search.py`), or a schedule that is played again.
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
    Step,
    Streamed,
    TakeOver,
    Wait,
)
from retrysafe.errors import NotDone, StoreError, StoreUnavailable
from retrysafe.stores.contract import Renewer, Store
from retrysafe.testing.simulate import clocks, responses
from retrysafe.testing.simulate.keystate import Account, Execution
from retrysafe.testing.simulate.model import Database
from retrysafe.testing.simulate.monitor import Monitor
from retrysafe.testing.simulate.promises import Violation, broken
from retrysafe.testing.simulate.request import Visit, Worker
from retrysafe.testing.simulate.responses import Told
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import Stage, describe

START = 1_800_000_000.0
WORKERS = 3
_WRITES = 2
"""Of one request: that its answer begins to leave, and its outcome."""

STORE_STEPS = frozenset({Reserve, TakeOver, Look, Checkpoint, Finish, Commit, Release})
_IN_PASSING = frozenset({Pause, Forget, RollBack, CallBack})
"""Steps that concern nobody else, or are done by and by: they are made with the one before."""


@contextmanager
def quiet() -> Generator[None]:
    """A store says in the log what expired unresolved, and here that is thousands."""
    log = logging.getLogger("retrysafe.store")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def carried(kept: bool) -> bool:
    """Whether a transaction's effects are committed, given that its outcome was kept."""
    return kept


class World:
    """Everything there is, and the one place where it changes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.setting = setting = stage.setting
        self.clock = clocks.StoreClock(START)
        self.store: Store = setting.store(self.clock)
        self.workers = [Worker(number) for number in range(WORKERS)]
        self.visits: dict[int, Visit] = {}
        self.live: list[Visit] = []
        """Requests that are neither answered nor lost."""
        self.accounts: dict[int, Account] = {}
        self.monitor = Monitor(setting, self.accounts)
        self.adrift: list[tuple[Visit, Step]] = []
        """What was asked of the store and given up, and has not arrived yet."""
        self.down = False
        self.revoked: dict[int, int] = {}
        self.trouble: StoreError | None = None
        """The last one of the store's own making, which is taken for an outage at that moment."""
        self.intervened = False
        """Whether an operator has settled anything."""
        self.tick = 0
        self.remembers = False
        """Whether requests keep a digest of what they were answered, as a search wants it."""
        self._renewer: Renewer | None = None
        self._database: Database | None = None
        if setting.mode == "tx" and isinstance(self.store, Database):
            self._database = self.store

    def keeper(self) -> Renewer:
        """The end of the store that lease keepers have."""
        if self._renewer is None:
            self._renewer = self.store.open_keeper()
        return self._renewer

    def drop_keeper(self) -> None:
        """After trouble another one is opened, as the real lease keeper does."""
        if self._renewer is not None:
            renewer, self._renewer = self._renewer, None
            renewer.close()

    def close(self) -> None:
        """It is over: the store may give back its connections."""
        try:
            self.drop_keeper()
        finally:
            self.store.close()

    def effects(self) -> Sequence[bytes] | None:
        """What was committed with outcomes, where there is a database to ask."""
        return None if self._database is None else self._database.effects()

    # --- requests

    def arrive(self, number: int, identity: int, asked: int, worker: int) -> Visit:
        account = self.accounts.get(identity)
        if account is None:
            account = self.accounts[identity] = Account(identity)
        serving = self.workers[worker]
        claim = self.stage.claim(identity, asked, number)
        visit = self.visits[number] = Visit(number, account, asked, serving, claim)
        rules = self.stage.rules
        visit.call = Call(
            claim,
            rules.policy,
            rules.outcome,
            describe,
            serving.is_draining,
            reauthorises=self.setting.reauthorise,
        )
        visit.began = self.tick
        visit.late = account.window if account.definitive is not None else 0
        visit.flow = protocol.once(visit.call)
        visit.step = next(visit.flow)
        self.live.append(visit)
        return visit

    def turn(self, visit: Visit) -> None:
        """Let one request make its next step, and go on to the one after it."""
        step = visit.step
        kind = type(step)
        worker = visit.worker
        clocks.set_local(self.clock.now + worker.offset)
        answer: object
        if kind in STORE_STEPS:
            if self.down:
                return self.fail(visit)
            try:
                answer = self.apply(visit, step)
            except StoreError as trouble:
                self.trouble = trouble
                visit.troubled = True
                return self.resume(visit, None, trouble)
            if type(answer) is Reserved:
                visit.drained = worker.draining
        elif isinstance(step, Run):
            answer = self.run(visit, step.attempt)
            if visit.inner is not None:
                return None
        elif isinstance(step, Persist):
            held = worker.held.get(visit.claim.token)
            answer = held is not None and self.clock.now + worker.offset + step.pause < held[1].lease_ends
            visit.refused += not answer
            if visit.refused > _WRITES:
                broken("I11", f"{visit} goes on trying after its lease")
        elif isinstance(step, Wait):
            answer = step.seconds
        elif isinstance(step, Reauthorise):
            answer = visit.account.identity not in self.revoked
        else:
            broken("I11", f"{visit} makes a step that nobody expected: {step}")
        return self.resume(visit, answer)

    def fail(self, visit: Visit) -> None:
        visit.troubled = True
        self.resume(visit, None, StoreUnavailable("no reply"))

    def resume(self, visit: Visit, answer: object, error: BaseException | None = None) -> None:
        flow: Any = visit.inner or visit.flow
        if self.remembers:
            visit.heard = hash((visit.heard, answer if error is None else type(error)))
        try:
            step = flow.send(answer) if error is None else flow.throw(error)
            while type(step) in _IN_PASSING:
                if type(step) is Forget:
                    visit.forgot = True
                    # At once, and once more a little later: it may have been on its way.
                    visit.worker.forgotten += (visit, visit)
                step = flow.send(None)
            visit.step = step
        except StopIteration as end:
            if visit.inner is not None:
                self._flows(visit, end.value)
            else:
                self._end(visit, end.value)
        except CancelledError:
            if not visit.cancelled:
                raise
            self.lose(visit)
        except Violation:
            raise
        except Exception as raised:  # whatever it is, it should not have left the flow
            raise Violation("I11", f"the flow of {visit} raised {raised!r}") from raised

    def _end(self, visit: Visit, answer: Result) -> None:
        self.lose(visit)
        if visit.cancelled:
            return
        visit.answer = answer
        visit.ended = self.tick
        responses.check(Told(visit, answer, self.clock.now, self.setting, self.accounts, self.revoked))

    def lose(self, visit: Visit) -> None:
        """It is over, and whether anybody is told is another matter."""
        visit.flow = visit.inner = visit.step = None
        visit.worker.held.pop(visit.claim.token, None)
        self.live.remove(visit)

    # --- its handler

    def run(self, visit: Visit, attempt: Attempt) -> Outcome | None:
        """Run the handler.  `None`: its answer is too large, and asks whether it may leave."""
        visit.attempt = attempt
        setting, account = self.setting, visit.account
        self.monitor.begins(visit, leased=attempt.leased)
        if attempt.leased:
            attempt.lease_ends = self.clock.now + visit.worker.offset + LEASE
            visit.worker.held[visit.claim.token] = visit, attempt
        number = len(account.executions) + 1
        handler = setting.handler
        fails = handler == "fails" or (handler in ("recovers", "raises") and number == 1)
        response = _response(account.identity, number, 500 if fails else 201)
        execution = Execution(number, visit.window, visit.claim.token, visit.asked, response)
        account.executions.append(execution)
        visit.execution = execution
        execution.effect = setting.mode == "lease"
        if number == 1 and handler == "declines":
            execution.effect = False
            return _DECLINED
        if number == 1 and handler == "raises":
            return _RAISED
        if number == 1 and handler == "derives":
            attempt.derive("charge")
            return _DECLINED
        if handler in ("streams", "breaks off"):
            self._pour(visit, attempt, response)
            return None
        return Responded(response)

    def _pour(self, visit: Visit, attempt: Attempt, response: Response) -> None:
        """The answer turns out to be too large to hold."""
        visit.head = Response(response.status, response.headers)
        visit.inner = protocol.let_flow(visit.call, attempt, visit.head)
        try:
            visit.step = next(visit.inner)
        except StopIteration as end:
            self._flows(visit, end.value)

    def _flows(self, visit: Visit, answer: Result | None) -> None:
        """It may leave, or not; in either case its handler goes on to its end."""
        visit.inner = None
        visit.flows = answer is not None
        visit.promised = answer is not None and answer.stored
        if answer is not None and answer.reply != visit.head:
            broken("I5", f"{visit} begins to be told {answer.reply}, and its handler said {visit.head}")
        if visit.promised and not visit.marked:
            broken("I5", f"bytes of {visit} leave as if they were kept, and the store knows nothing of them")
        if visit.cancelled:
            return self.resume(visit, None, CancelledError())
        assert visit.head is not None
        assert visit.execution is not None
        breaks = visit.execution.broke = self.setting.handler == "breaks off" and visit.execution.number == 1
        return self.resume(visit, Streamed(visit.head, _BROKEN_OFF if breaks else None))

    # --- the store

    def apply(self, visit: Visit, step: Step | None) -> object:
        """The store does what it was asked; what it answers is noted down."""
        return self._DOES[type(step)](self, visit, step)

    def apply_unheard(self, visit: Visit, step: Step | None) -> None:
        """The same, and nobody hears the reply, even if it is that there was trouble."""
        try:
            self.apply(visit, step)
        except StoreError as trouble:
            self.trouble = trouble

    def _reserve(self, visit: Visit, step: Reserve) -> Reservation:
        return self._granted(visit, self.store.reserve(step.claim))

    def _take_over(self, visit: Visit, step: TakeOver) -> Reservation:
        return self._granted(visit, self.store.take_over(step.claim, step.previous, step.state))

    def _granted(self, visit: Visit, reservation: Reservation) -> Reservation:
        if type(reservation) is Reserved:
            self.monitor.granted(visit, reservation.attempt, self.clock.now)
        return reservation

    def _look(self, _: Visit, step: Look) -> Found | None:
        return self.store.look(step.claim.id)

    def _checkpoint(self, visit: Visit, step: Checkpoint) -> bool:
        kept = self.store.checkpoint(step.claim, step.head)
        if kept:
            visit.marked = True
            self.monitor.checkpointed(visit, self.clock.now)
        else:
            self.monitor.fenced(visit, None, self.clock.now)
        return kept

    def _finish(self, visit: Visit, step: Finish) -> bool:
        kept = self.store.finish(step.claim, step.final)
        self._noted(visit, step.final, kept=kept)
        return kept

    def _noted(self, visit: Visit, final: Final, *, kept: bool) -> None:
        if kept:
            self.monitor.kept(visit, final, self.clock.now)
        else:
            self.monitor.fenced(visit, final, self.clock.now)

    def _commit_step(self, visit: Visit, step: Commit) -> bool:
        execution = visit.execution
        assert execution is not None
        if self._database is not None:
            kept = self._database.commit_with_effect(step.claim, step.final, execution.response.body)
        else:
            kept = self.store.finish(step.claim, step.final)
        self._noted(visit, step.final, kept=kept)
        if carried(kept):
            execution.effect = True
            self.monitor.committed(visit)
        return kept

    def _release(self, visit: Visit, step: Release) -> None:
        self.store.release(step.claim)
        self.monitor.released(visit)

    _DOES: ClassVar[dict[type[Step | None], Callable[["World", Visit, Any], object]]] = {
        Reserve: _reserve,
        TakeOver: _take_over,
        Look: _look,
        Checkpoint: _checkpoint,
        Finish: _finish,
        Commit: _commit_step,
        Release: _release,
    }


# One of each: a search compares what flows were answered, and two exceptions are never equal.
_DECLINED = Raised(NotDone())
_RAISED = Raised(ValueError("a mistake of the handler's"))
_BROKEN_OFF = ConnectionError("the answer broke off")

_answers: dict[tuple[int, int, int], Response] = {}


def _response(identity: int, number: int, status: int) -> Response:
    """Unlike that of any other execution, in every part; and with headers that are easily lost."""
    known = _answers.get((identity, number, status))
    if known is None:
        headers = (
            (b"content-type", b"application/json"),
            (b"link", b"</%d>" % number),
            (b"link", b"</%d>, </next>" % identity),
            (b"set-cookie", b"session=%d" % number),
        )
        body = b"\xff execution %d of identity %d" % (number, identity)
        known = _answers[identity, number, status] = Response(status, headers, body)
    return known
