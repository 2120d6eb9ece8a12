"""A world in which several requests step through the real flow, one at a time, in every order.

No threads and no real time: a scheduler chooses whose turn it is, who crashes, whose reply is lost, and when
the leases lapse.  `explore` follows every sequence of choices.  Generators cannot be copied, so each branch
is played again from the start; a state that was seen before is not followed twice, because a flow is a
function of what it was answered, and so the same past lies behind the same future.

What is checked is checked against what really happened (who executed, what the store applied, what each
client was told), which the world notes down itself.  It never asks the store whether the store was right.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from retrysafe import protocol, scopes
from retrysafe.call import Call
from retrysafe.errors import NotDone, StoreUnavailable
from retrysafe.model import Claim, Found, Reservation, Response
from retrysafe.policy import Failed, Policy, RequestRules
from retrysafe.problems import CATALOGUE, Problem
from retrysafe.steps import (
    Answered,
    Checkpoint,
    Commit,
    Finish,
    Forget,
    Look,
    Outcome,
    Pause,
    Persist,
    Raised,
    Release,
    Reserve,
    RollBack,
    Run,
    TakeOver,
)
from retrysafe.verdicts import Answer, Verdict
from tests.protocol.witness import (
    ENOUGH,
    HOLD,
    ID,
    LEASE,
    RETENTION,
    Action,
    Client,
    Execution,
    Setting,
    StoreStep,
    Violation,
    Witness,
    response_of,
)

__all__ = ["Explored", "Setting", "Violation", "World", "explore"]


@dataclass(slots=True)
class World(Witness):
    policy: Policy = field(init=False)

    def __post_init__(self) -> None:
        said = self.setting
        self.store = said.store(lambda: self.now)
        self.policy = Policy(failed=said.failed, abandoned=said.abandoned, lease=LEASE, retention=RETENTION)
        if said.mode == "tx":
            self.policy = self.policy._replace(effects="database")
        for fingerprint in said.fingerprints:
            self.join(fingerprint)

    def join(self, fingerprint: bytes) -> Client:
        token = b"token %d" % len(self.clients)
        hold = HOLD if self.setting.abandoned == "hold" else 0.0
        claim = Claim(
            ID, token, fingerprint, LEASE, RETENTION, hold, "request", _SCOPE, "key", "POST", "/", "id"
        )._replace(mode=self.setting.mode)
        client = Client(claim, protocol.once(Call(claim, self.policy, _RULES, _describe)))
        self.clients.append(client)
        return client

    # --- choices

    def actions(self) -> list[Action]:
        """Everything that may happen next.  Requests that are alike begin in the order of their numbers."""
        found: list[Action] = []
        fault_left = self.faults < self.setting.faults
        waiting: set[bytes] = set()
        for who, client in enumerate(self.clients):
            if client.flow is None:
                continue
            if not client.begun:
                if client.claim.fingerprint in waiting:
                    continue
                waiting.add(client.claim.fingerprint)
            found.append(Action("step", who))
            if fault_left:
                found.append(Action("crash", who))
                if client.begun and isinstance(client.step, StoreStep):
                    found.append(Action("lose reply", who))
                    if isinstance(client.step, Finish | Commit | Release):
                        # Of other steps it is the same as a crash before the next one.
                        found.append(Action("crash after", who))
                elif not client.begun:
                    found.append(Action("lose reply", who))
                if self.setting.lost_requests and found[-1].kind != "crash":
                    found.append(Action("lose request", who))
        if not found:
            return found
        if self.lapses < self.setting.lapses and any(self.alive(grant) for grant in self.grants):
            found.append(Action("lapse"))
        if self.setting.damage and not self.damaged and self._running_row():
            found.append(Action("damage"))
        return found

    def perform(self, action: Action) -> None:
        self.trace.append(action)
        if len(self.trace) > ENOUGH:
            self.broken("it runs in circles")
        match action.kind:
            case "step":
                self.turn(self.clients[action.who])
            case "crash":
                self.faults += 1
                self.clients[action.who].flow = None
            case "crash after":
                self.faults += 1
                client = self.clients[action.who]
                self._apply(client, cast(StoreStep, client.step))
                client.flow = None
            case "lose reply":
                self.faults += 1
                self.lost_replies += 1
                self.turn(self.clients[action.who], lose_reply=True)
            case "lose request":
                self.faults += 1
                self.lost_replies += 1
                self.turn(self.clients[action.who], lose_request=True)
            case "lapse":
                self.lapses += 1
                self.elapse(LEASE + 1)
            case "damage":
                self.damaged = True
                self.store._rows[ID].lease_until = None

    def _running_row(self) -> bool:
        row = self.store._rows.get(ID)
        return row is not None and row.state == "in_progress"

    def state(self) -> object:
        """All that what comes next depends on."""
        row = self.store._rows.get(ID)
        return (
            self.now,
            self.faults,
            self.lapses,
            self.damaged,
            None if row is None else row.record(),
            tuple(
                (one.begun, one.late, one.flow is None, one.execution is None, one.looked, one.heard)
                for one in self.clients
            ),
            tuple((one.by, one.end) for one in self.executions),
            tuple((one.token, one.until, one.over, one.lapsed) for one in self.grants),
            tuple(self.finals),
            tuple(self.effects),
            tuple(self.definitive),
        )

    # --- what happens

    def turn(self, client: Client, *, lose_reply: bool = False, lose_request: bool = False) -> None:
        """Let one request make its next step, and go on to the one after it."""
        flow = client.flow
        assert flow is not None
        if not client.begun:
            client.begun = True
            client.late = bool(self.definitive)
            client.step = next(flow)
        step = client.step
        if lose_request:
            return self._resume(client, StoreUnavailable("not reached"), None)
        match step:
            case Run():
                # One turn: what comes between its beginning and its end concerns nobody else, and a crash in
                # between leaves what a crash before the next step leaves.
                client.execution = self._begin(client)
                answer: object = self._outcome(len(self.executions) - 1, client.execution)
            case Reserve() if self.setting.split_reserve and client.looked is None:
                client.looked = self.store.look(ID) or "absent"
                return None
            case Reserve() | TakeOver() | Look() | Checkpoint() | Finish() | Commit() | Release():
                answer = self._apply(client, step)
            case Persist(claim):
                answer = self.granted(claim.token).until > self.now
            case _:
                raise self.broken(f"a step that nobody expected: {step}")
        return self._resume(client, StoreUnavailable("no reply") if lose_reply else None, answer)

    def _resume(self, client: Client, error: Exception | None, answer: object) -> None:
        flow = client.flow
        assert flow is not None
        client.heard = hash((client.heard, answer if error is None else "no reply"))
        try:
            step = flow.send(answer) if error is None else flow.throw(error)
            while isinstance(step, Pause | Forget | RollBack):
                if isinstance(step, Forget):
                    self._release(step.claim)
                step = flow.send(None)
        except StopIteration as end:
            client.flow = client.step = None
            self._tell(client, end.value)
        except Exception as error:
            raise self.broken(f"the flow raised {error!r}") from error
        else:
            client.step = step

    def _outcome(self, earlier: int, execution: Execution) -> Outcome:
        match self.setting.handler:
            case "declines" if earlier == 0:
                return _DECLINED
            case "fails":
                return Answered(Response(500, (), execution.body))
            case "recovers" if earlier == 0:
                return Answered(Response(500, (), execution.body))
            case _:
                return Answered(Response(200, (), execution.body))

    # --- the store, and what is noted down about it

    def _apply(self, client: Client, step: StoreStep) -> object:
        match step:
            case Reserve(claim):
                return self._granted(claim, self._reserve(client, claim))
            case TakeOver():
                return self._granted(step.claim, self.store.take_over(*step))
            case Look(id):
                return self.store.look(id)
            case Checkpoint(claim, head):
                return self.store.checkpoint(claim, head)
            case Finish(claim, final):
                kept = self.store.finish(claim, final)
                if kept:
                    self._kept(client, (claim.token, final.state, final.response.body))
                self.fenced += not kept
                return kept
            case Commit(_, claim, final):
                kept = self.store.finish(claim, final)
                if kept:
                    self._kept(client, (claim.token, final.state, final.response.body))
                if kept or self.setting.commits_unfenced:
                    self.committed(client)
                self.fenced += not kept
                return kept
            case Release(claim):
                self._release(claim)
                return None

    def _reserve(self, client: Client, claim: Claim) -> Reservation:
        looked, client.looked = client.looked, None
        if looked is None:
            return self.store.reserve(claim)
        if isinstance(looked, Found):
            return looked
        self.store._rows.pop(ID, None)
        return self.store.reserve(claim)

    def _release(self, claim: Claim) -> None:
        self.store.release(claim)
        for grant in self.grants:
            grant.over |= grant.token == claim.token
        for execution in self.executions:
            if execution.token == claim.token and not execution.end:
                execution.end = "released"

    # --- afterwards

    def aftermath(self) -> list[Answer]:
        """Everything has stopped.  Whoever comes now, and whoever comes when all is expired, is served."""
        for client in self.clients:
            client.flow = None
        self.elapse(LEASE + 1)
        told = [self._afterwards(fingerprint) for fingerprint in dict.fromkeys(self.setting.fingerprints)]
        self.elapse(RETENTION + HOLD + LEASE)
        before = len(self.executions)
        self.definitive.clear()
        self.finals.clear()
        self.effects.clear()
        for grant in self.grants:
            grant.over = True
        self.executions = [
            Execution(one.by, one.fingerprint, one.token, one.body, "released") for one in self.executions
        ]
        self._alone(self.setting.fingerprints[0])
        if len(self.executions) != before + 1:
            self.broken("an expired key is not a new one")
        return told

    def _afterwards(self, fingerprint: bytes) -> Answer:
        finals = list(self.finals)
        unsettled = bool(self.grants) and not self.grants[-1].over
        before = len(self.executions)
        client = self._alone(fingerprint)
        answer = client.answer
        assert answer is not None
        ran = len(self.executions) > before
        if answer.verdict == "key-reused":
            return answer  # checked where it was told
        if finals and not unsettled:
            expected: tuple[Verdict, ...] = _after_final(self.setting.failed, finals[-1][1])
            if answer.verdict not in expected or (answer.verdict == "replayed" and ran):
                self.broken(f"after {finals[-1]} a new request was told {answer.verdict}")
            if answer.verdict == "replayed" and response_of(answer).body != finals[-1][2]:
                self.broken("the last word was not replayed")
        elif unsettled and self.damaged:
            pass  # the lease may have been another one's; what was told is checked where it was told
        elif unsettled and self.setting.abandoned == "hold":
            owner = next(one for one in self.clients if one.claim.token == self.grants[-1].token)
            if owner.answer is not None and owner.answer.verdict != "unstored":
                self.broken(f"a request was told {owner.answer.verdict}, and kept the key")
            if answer.verdict != "outcome-unknown":
                self.broken(f"an abandoned request was held, and a new one told {answer.verdict}")
        elif not ran:
            self.broken(f"the key is stuck: a new request was told {answer.verdict}")
        return answer

    def _alone(self, fingerprint: bytes) -> Client:
        client = self.join(fingerprint)
        self.trace.append("afterwards")
        for _ in range(ENOUGH):
            if client.flow is None:
                return client
            self.turn(client)
        raise self.broken("it runs in circles")


_SCOPE = (("user", "1"),)
_RULES = RequestRules(scopes.public())
_DECLINED = Raised(NotDone())


def _describe(problem: Problem) -> Response:
    return Response(CATALOGUE[problem.code].status, (), problem.code.encode())


def _after_final(failed: Failed, state: str) -> tuple[Verdict, ...]:
    if state == "completed" or failed == "replay":
        return ("replayed",)
    return ("previously-failed",) if failed == "conflict" else ("completed", "failed")


class Explored(NamedTuple):
    """How far an exploration went."""

    schedules: int
    states: int


def explore(setting: Setting, at_the_end: Callable[[World], object]) -> Explored:
    """Follow every schedule; each different world that one of them ends in is shown once."""
    ends: dict[object, int] = {}

    def follow(path: tuple[Action, ...], world: World) -> int:
        """How many schedules begin like this."""
        state = world.state()
        if state in ends:
            return ends[state]
        actions = world.actions()
        if not actions:
            at_the_end(world)
        for number, action in enumerate(actions):
            branch = world if number == 0 else _play(setting, path)
            branch.perform(action)
            ends[state] = ends.get(state, 0) + follow((*path, action), branch)
        return ends.setdefault(state, 1)

    return Explored(follow((), World(setting)), len(ends))


def _play(setting: Setting, path: tuple[Action, ...]) -> World:
    world = World(setting)
    for action in path:
        world.perform(action)
    return world
