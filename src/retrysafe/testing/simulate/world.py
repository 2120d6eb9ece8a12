"""A world in which requests step through the real flows, one at a time, and anything may go wrong.

No threads and no real time.  `perform` makes one thing happen; what happens next is up to whoever calls it: a
seed (`walk.py`), a search through everything (`search.py`), or a schedule that is played again.
"""

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

from retrysafe import protocol
from retrysafe.attempt import Attempt
from retrysafe.call import Call
from retrysafe.errors import CommitRefused, NotDone, StoreUnavailable
from retrysafe.model import Final, Found, Reservation, Reserved, Response
from retrysafe.steps import (
    Answered,
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
    RollBack,
    Run,
    Step,
    Streamed,
    TakeOver,
    Wait,
)
from retrysafe.stores.administration import Note
from retrysafe.stores.contract import Renewer, Store
from retrysafe.testing.simulate import clocks
from retrysafe.testing.simulate.accounts import Account, Execution, Outcome as Kept
from retrysafe.testing.simulate.actions import Action, Kind
from retrysafe.testing.simulate.promises import Monitor, Violation, broken
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import Stage, describe
from retrysafe.testing.simulate.visit import Visit, Worker
from retrysafe.verdicts import Answer

START = 1_800_000_000.0
WORKERS = 3
ENOUGH = 400
"""Steps of one request; one that takes more runs in circles."""

_STORE_STEPS = frozenset({Reserve, TakeOver, Look, Checkpoint, Finish, Commit, Release})
_TO_THEIR_END = frozenset({Finish, Release, Checkpoint, Commit, RollBack})
"""What `drive.py` does not let a cancellation cut off."""
_IN_PASSING = frozenset({Pause, Forget, RollBack, CallBack})
"""Steps that concern nobody else, or are done by and by: they are made with the one before."""


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
        self.tick = 0
        self.remembers = False
        """Whether requests keep a digest of what they were answered, as a search wants it."""
        self._renewer: Renewer | None = None
        self._commit = getattr(self.store, "commit_with_effect", None)

    # --- what happens

    def perform(self, action: Action) -> bool:
        """Make it happen.  False: it cannot, as things are, and nothing has happened."""
        self.tick += 1
        return _ACTIONS[action.kind](self, action)

    def _arrive(self, action: Action) -> bool:
        identity, asked, worker = action.how
        self.arrive(action.who, identity, asked, worker)
        return True

    def arrive(self, number: int, identity: int, asked: int, worker: int) -> Visit:
        account = self.accounts.get(identity)
        if account is None:
            account = self.accounts[identity] = Account(identity)
        serving = self.workers[worker]
        claim = self.stage.claim(identity, asked, number)
        visit = self.visits[number] = Visit(number, account, asked, serving, claim)
        rules = self.stage.rules
        visit.call = Call(claim, rules.policy, rules.request, describe, serving.is_draining)
        visit.began = self.tick
        visit.late = account.window if account.definitive is not None else 0
        visit.flow = protocol.once(visit.call)
        visit.step = next(visit.flow)
        self.live.append(visit)
        return visit

    def _awake(self, action: Action) -> Visit | None:
        visit = self.visits.get(action.who)
        return None if visit is None or visit.flow is None or visit.worker.frozen else visit

    def _step(self, action: Action) -> bool:
        visit = self._awake(action)
        if visit is None:
            return False
        self.turn(visit)
        return True

    def _talking(self, action: Action) -> Visit | None:
        """The visit, if it is about to ask something of a store that is there."""
        visit = self._awake(action)
        return None if visit is None or self.down or type(visit.step) not in _STORE_STEPS else visit

    def _lose_reply(self, action: Action) -> bool:
        visit = self._talking(action)
        if visit is None:
            return False
        clocks.set_local(self.clock.now + visit.worker.offset)
        self._apply(visit, visit.step)
        self._fail(visit)
        return True

    def _lose_request(self, action: Action) -> bool:
        visit = self._talking(action)
        if visit is None:
            return False
        self._fail(visit)
        return True

    def _delay(self, action: Action) -> bool:
        visit = self._talking(action)
        if visit is None or visit.step is None:
            return False
        self.adrift.append((visit, visit.step))
        self._fail(visit)
        return True

    def _deliver(self, action: Action) -> bool:
        if not self.adrift or self.down:
            return False
        visit, step = self.adrift.pop(action.who % len(self.adrift))
        self._apply(visit, step)
        return True

    def _refuse(self, action: Action) -> bool:
        visit = self._talking(action)
        if visit is None or type(visit.step) is not Commit:
            return False
        self._resume(visit, None, CommitRefused("a constraint", passing=bool(action.how)))
        return True

    def _crash(self, action: Action) -> bool:
        worker = self.workers[action.who]
        for visit in [visit for visit in self.live if visit.worker is worker]:
            self._lose(visit)
        worker.frozen = False
        worker.restart()
        return True

    def _crash_after(self, action: Action) -> bool:
        visit = self._talking(action)
        if visit is None:
            return False
        self._apply(visit, visit.step)
        return self._crash(Action("crash", visit.worker.number))

    def _cancel(self, action: Action) -> bool:
        visit = self._awake(action)
        if visit is None or visit.cancelled:
            return False
        visit.cancelled = True
        step = visit.step
        if visit.inner is not None or type(step) in _TO_THEIR_END:
            self.turn(visit)
            return True
        if action.kind == "cancel after":
            if type(step) is Run:
                self._run(visit, step)
                if visit.inner is not None:
                    return True
            elif type(step) in _STORE_STEPS and not self.down:
                self._apply(visit, step)
        self._resume(visit, None, CancelledError())
        return True

    def _freeze(self, action: Action) -> bool:
        worker = self.workers[action.who]
        if worker.frozen:
            return False
        worker.frozen = True
        return True

    def _thaw(self, action: Action) -> bool:
        worker = self.workers[action.who]
        if not worker.frozen:
            return False
        worker.frozen = False
        return True

    def _renew(self, action: Action) -> bool:
        worker = self.workers[action.who]
        if worker.frozen or self.down or not worker.held:
            return False
        held = list(worker.held.values())
        local = self.clock.now + worker.offset
        clocks.set_local(local)
        answers = self.keeper().renew([visit.claim for visit, _ in held])
        for (visit, attempt), kept in zip(held, answers, strict=True):
            self.monitor.renewed(visit, kept=kept, now=self.clock.now)
            if kept:
                attempt.lease_ends = local + LEASE
            else:
                attempt.lost = True
                worker.held.pop(visit.claim.token, None)
        return True

    def _forget(self, action: Action) -> bool:
        worker = self.workers[action.who]
        if worker.frozen or self.down or not worker.forgotten:
            return False
        half = (len(worker.forgotten) + 1) // 2
        due, worker.forgotten = worker.forgotten[:half], worker.forgotten[half:]
        self.keeper().release([visit.claim for visit in due])
        for visit in due:
            self.monitor.released(visit)
        return True

    def keeper(self) -> Renewer:
        if self._renewer is None:
            self._renewer = self.store.open_keeper()
        return self._renewer

    def _elapse(self, action: Action) -> bool:
        self.clock.now += action.how[0]
        return True

    def _step_clock(self, action: Action) -> bool:
        self.workers[action.who].offset += action.how[0]
        return True

    def _purge(self, action: Action) -> bool:
        if self.down:
            return False
        self.monitor.purged(self.store.purge().records, self.clock.now)
        return True

    def _outage(self, action: Action) -> bool:
        if self.down:
            return False
        self.down = True
        return True

    def _mend(self, action: Action) -> bool:
        if not self.down:
            return False
        self.down = False
        return True

    def _intervene(self, action: Action) -> bool:
        account = self.accounts.get(action.who)
        if account is None or self.down:
            return False
        id = self.stage.claim(account.identity, account.asked, 0).id
        found = self.store.look(id)
        if found is None:
            return False
        admin, note, now = self.store.open_admin(), Note("operator", "asked the bank"), self.clock.now
        try:
            if action.kind == "release":
                settled = admin.release(found.record, note)
            else:
                settled = admin.resolve(found.record, _BY_HAND, note)
        finally:
            admin.close()
        if not settled:
            return False
        self.monitor.intervened(account, now)
        if action.kind == "release":
            account.close()
        else:
            after = self.store.look(id)
            token = after.record.token if after is not None else b""
            lasts = account.expires - account.created
            account.keep(Kept(token, *_BY_HAND, account.asked, account.window), now)
            account.expires = now + lasts
        return True

    def _lose_lease(self, action: Action) -> bool:
        account = self.accounts.get(action.who)
        if account is None or account.standing != "running" or account.expired(self.clock.now):
            return False
        id = self.stage.claim(account.identity, account.asked, 0).id
        lose = getattr(self.store, "lose_lease", None)
        if lose is None:
            return False
        lose(id)
        account.until = None
        return True

    def _revoke(self, action: Action) -> bool:
        if not self.setting.reauthorise:
            return False
        self.revoked.setdefault(action.who, self.tick)
        return True

    def _drain(self, action: Action) -> bool:
        self.workers[action.who].draining = True
        return True

    # --- one request

    def turn(self, visit: Visit) -> None:
        """Let one request make its next step, and go on to the one after it."""
        step = visit.step
        kind = type(step)
        worker = visit.worker
        clocks.set_local(self.clock.now + worker.offset)
        answer: object
        if kind in _STORE_STEPS:
            if self.down:
                return self._fail(visit)
            answer = self._apply(visit, step)
        elif kind is Run:
            answer = self._run(visit, step)
            if visit.inner is not None:
                return None
        elif kind is Persist:
            held = worker.held.get(visit.claim.token)
            answer = held is not None and self.clock.now + worker.offset + step.pause < held[1].lease_ends
        elif kind is Wait:
            answer = step.seconds
        elif kind is Reauthorise:
            answer = visit.account.identity not in self.revoked
        else:
            broken("I11", f"{visit} makes a step that nobody expected: {step}")
        return self._resume(visit, answer)

    def _fail(self, visit: Visit) -> None:
        visit.troubled = True
        self._resume(visit, None, StoreUnavailable("no reply"))

    def _resume(self, visit: Visit, answer: object, error: BaseException | None = None) -> None:
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
            self._lose(visit)
        except Violation:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever it is, it should not have left the flow
            broken("I11", f"the flow of {visit} raised {raised!r}")

    def _end(self, visit: Visit, answer: Answer) -> None:
        self._lose(visit)
        if visit.cancelled:
            return
        visit.answer = answer
        visit.ended = self.tick
        self.monitor.told(visit, answer, self.clock.now, self.revoked)

    def _lose(self, visit: Visit) -> None:
        """It is over, and whether anybody is told is another matter."""
        visit.flow = visit.inner = visit.step = None
        visit.worker.held.pop(visit.claim.token, None)
        self.live.remove(visit)

    # --- its handler

    def _run(self, visit: Visit, step: Any) -> Outcome | None:
        attempt: Attempt = step.attempt
        visit.attempt = attempt
        setting, account = self.setting, visit.account
        self.monitor.begins(visit, leased=attempt.leased)
        if attempt.leased:
            attempt.lease_ends = self.clock.now + visit.worker.offset + LEASE
            visit.worker.held[visit.claim.token] = visit, attempt
        number = len(account.executions) + 1
        handler = setting.handler
        fails = handler == "fails" or (handler == "recovers" and number == 1)
        response = _response(account.identity, number, 500 if fails else 201)
        execution = Execution(number, visit.window, visit.claim.token, visit.asked, response)
        account.executions.append(execution)
        visit.execution = execution
        execution.effect = setting.mode == "lease"
        if number == 1 and handler == "declines":
            execution.effect = False
            return Raised(NotDone())
        if number == 1 and handler == "derives":
            attempt.derive("charge")
            return Raised(NotDone())
        if handler in ("streams", "breaks off"):
            self._pour(visit, attempt, response)
            return None
        return Answered(response)

    def _pour(self, visit: Visit, attempt: Attempt, response: Response) -> None:
        """The answer turns out to be too large to hold."""
        visit.head = Response(response.status, response.headers)
        visit.inner = protocol.let_flow(visit.call, attempt, visit.head)
        try:
            visit.step = next(visit.inner)
        except StopIteration as end:
            self._flows(visit, end.value)

    def _flows(self, visit: Visit, answer: Answer | None) -> None:
        """It may leave, or not; in either case its handler goes on to its end."""
        visit.inner = None
        visit.promised = answer is not None and answer.stored
        if visit.cancelled:
            return self._resume(visit, None, CancelledError())
        assert visit.head is not None
        assert visit.execution is not None
        breaks = self.setting.handler == "breaks off" and visit.execution.number == 1
        return self._resume(visit, Streamed(visit.head, ConnectionError() if breaks else None))

    # --- the store

    def _apply(self, visit: Visit, step: Any) -> object:
        """The store does what it was asked; what it answers is noted down."""
        return _STORE[type(step)](self, visit, step)

    def _reserve(self, visit: Visit, step: Reserve) -> Reservation:
        return self._granted(visit, self.store.reserve(step.claim))

    def _take_over(self, visit: Visit, step: TakeOver) -> Reservation:
        return self._granted(visit, self.store.take_over(step.claim, step.previous, step.state))

    def _granted(self, visit: Visit, reservation: Reservation) -> Reservation:
        if type(reservation) is Reserved:
            self.monitor.granted(visit, reservation.attempt, self.clock.now)
        return reservation

    def _look(self, visit: Visit, step: Look) -> Found | None:
        return self.store.look(step.id)

    def _checkpoint(self, visit: Visit, step: Checkpoint) -> bool:
        kept = self.store.checkpoint(step.claim, step.head)
        if kept:
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
        if self._commit is not None:
            kept: bool = self._commit(step.claim, step.final, execution.response.body)
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


_BY_HAND = Final("completed", Response(200, (), b"by hand"))

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


_STORE: dict[type[Step], Callable[[World, Visit, Any], object]] = {
    Reserve: World._reserve,
    TakeOver: World._take_over,
    Look: World._look,
    Checkpoint: World._checkpoint,
    Finish: World._finish,
    Commit: World._commit_step,
    Release: World._release,
}

_ACTIONS: dict[Kind, Callable[[World, Action], bool]] = {
    "arrive": World._arrive,
    "step": World._step,
    "lose reply": World._lose_reply,
    "lose request": World._lose_request,
    "delay": World._delay,
    "deliver": World._deliver,
    "refuse": World._refuse,
    "crash": World._crash,
    "crash after": World._crash_after,
    "cancel": World._cancel,
    "cancel after": World._cancel,
    "freeze": World._freeze,
    "thaw": World._thaw,
    "renew": World._renew,
    "forget": World._forget,
    "elapse": World._elapse,
    "step clock": World._step_clock,
    "purge": World._purge,
    "outage": World._outage,
    "mend": World._mend,
    "release": World._intervene,
    "resolve": World._intervene,
    "lose lease": World._lose_lease,
    "revoke": World._revoke,
    "drain": World._drain,
}
