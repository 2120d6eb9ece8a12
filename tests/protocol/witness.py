"""What really happened, noted down beside the store, and the promises that are checked against it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from retrysafe.model import Claim, Found, Mode, Record, Reservation, Reserved, Response
from retrysafe.policy import Abandoned, Failed
from retrysafe.problems import CATALOGUE, Problem
from retrysafe.steps import (
    Checkpoint,
    Commit,
    Finish,
    Flow,
    Look,
    Release,
    Reserve,
    Step,
    TakeOver,
)
from retrysafe.stores.memory import MemoryStore
from retrysafe.verdicts import Answer

ID = b"i" * 32
LEASE = 30.0
RETENTION = 3600.0
HOLD = 7200.0
ENOUGH = 60
"""No schedule of three requests has this many turns; one that has runs in circles."""

Handler = Literal["succeeds", "fails", "recovers", "declines"]
"""Always 200; always 500; first 500 and then 200; first `NotDone` and then 200."""

StoreStep = Reserve | TakeOver | Look | Checkpoint | Finish | Commit | Release


class Violation(AssertionError):
    """A promise was broken."""


class Setting(NamedTuple):
    """What is enumerated."""

    abandoned: Abandoned = "hold"
    failed: Failed = "replay"
    handler: Handler = "succeeds"
    fingerprints: tuple[bytes, ...] = (b"same", b"same", b"same")
    faults: int = 1
    """Crashes and lost replies in one schedule, at most."""
    lapses: int = 1
    lost_requests: bool = False
    """Whether what is asked of the store may be lost as well, and not only its reply."""
    damage: bool = False
    """Whether a running record may lose its lease, as a damaged store would have it."""
    store: Callable[[Callable[[], float]], MemoryStore] = MemoryStore
    split_reserve: bool = False
    """A planted bug: a reservation that looks in one turn and writes in another."""
    mode: Mode = "lease"
    """In "tx" an execution has its effect when, and only if, its transaction is committed."""
    commits_unfenced: bool = False
    """A planted bug: what the handler wrote is committed although its record was somebody else's."""


def transactional(handler: Handler = "succeeds", **more: Any) -> Setting:
    """What is enumerated for effects in the store's own database: there is nothing to choose there."""
    return Setting("retry", "retry", handler, mode="tx", **more)


@dataclass(slots=True)
class Execution:
    """One run of the handler."""

    by: int
    fingerprint: bytes
    token: bytes
    body: bytes
    end: Literal["", "completed", "failed", "released"] = ""


@dataclass(slots=True)
class Grant:
    """The key, as the store gave it to somebody; noted where the store said so."""

    token: bytes
    fingerprint: bytes
    until: float
    over: bool = False
    lapsed: bool = False


@dataclass(slots=True, eq=False)
class Client:
    """One request, somewhere in its flow."""

    claim: Claim
    flow: Flow[Answer] | None
    """`None`: crashed, or answered."""
    step: Step | None = None
    execution: Execution | None = None
    answer: Answer | None = None
    heard: int = 0
    """A hash of everything that its flow was answered."""
    looked: Found | Literal["absent"] | None = None
    begun: bool = False
    late: bool = False
    """It began after somebody had been given a definitive answer."""


class Action(NamedTuple):
    kind: Literal["step", "crash", "crash after", "lose reply", "lose request", "lapse", "damage"]
    who: int = -1

    def __str__(self) -> str:
        return self.kind if self.who < 0 else f"{self.kind} {self.who}"


@dataclass(slots=True)
class Witness:
    """Sees everything and does nothing; a promise that is broken it reports, with the schedule so far."""

    setting: Setting
    now: float = 1000.0
    clients: list[Client] = field(default_factory=list[Client])
    executions: list[Execution] = field(default_factory=list[Execution])
    grants: list[Grant] = field(default_factory=list[Grant])
    finals: list[tuple[bytes, str, bytes]] = field(default_factory=list[tuple[bytes, str, bytes]])
    """Token, state and body of every outcome that the store said it kept, in order."""
    effects: list[bytes] = field(default_factory=list[bytes])
    """What was committed in "tx", each by the body that its execution answered."""
    definitive: list[Response] = field(default_factory=list[Response])
    trace: list[object] = field(default_factory=list[object])
    faults: int = 0
    lost_replies: int = 0
    fenced: int = 0
    """Outcomes that the store refused, because their attempt had been overtaken."""
    lapses: int = 0
    damaged: bool = False
    store: MemoryStore = field(init=False)

    def elapse(self, seconds: float) -> None:
        self.now += seconds
        for grant in self.grants:
            if not grant.over and grant.until <= self.now:
                grant.lapsed = True

    def alive(self, grant: Grant) -> bool:
        return not grant.over and (self.damaged or grant.until > self.now)

    def _begin(self, client: Client) -> Execution:
        number = len(self.executions) + 1
        claim = client.claim
        execution = Execution(
            self.clients.index(client), claim.fingerprint, claim.token, b"execution %d" % number
        )
        if client.late and self._settled():
            self.broken("a request that came after the answer was executed")
        for earlier in self.executions:
            if earlier.fingerprint != claim.fingerprint and earlier.end != "released":
                self.broken("one key executed two different requests")
        self.executions.append(execution)
        if number > self.allowed():
            self.broken(f"execution {number}, where {self.allowed()} may be")
        return execution

    def allowed(self) -> int:
        """How often the handler may have been started by now: once, and once more for every reason."""
        reasons = sum(execution.end == "released" for execution in self.executions)
        if self.setting.failed == "retry":
            reasons += sum(state == "failed" for _, state, _ in self.finals)
        if self.setting.abandoned == "retry":
            reasons += sum(grant.lapsed for grant in self.grants)
        return 1 + reasons

    def _granted(self, claim: Claim, reservation: Reservation) -> Reservation:
        if not isinstance(reservation, Reserved):
            return reservation
        last = self.grants[-1] if self.grants else None
        if last is None or last.over or last.token != claim.token:
            if any(self.alive(other) for other in self.grants):
                self.broken("the key was given away while its lease was alive")
            if last is not None and last.over and self._is_final():
                self.broken("the key was given away although its outcome was kept")
            self.grants.append(Grant(claim.token, claim.fingerprint, self.now + LEASE))
        return reservation

    def granted(self, token: bytes) -> Grant:
        return next(grant for grant in reversed(self.grants) if grant.token == token)

    def _is_final(self) -> bool:
        """Whether an outcome was kept that stays, until it expires."""
        return any(state == "completed" or self.setting.failed != "retry" for _, state, _ in self.finals)

    def _kept(self, client: Client, final: tuple[bytes, str, bytes]) -> None:
        if self.finals and self.finals[-1] == final:
            return  # the same outcome by the same owner, whose acknowledgement was lost
        again = self.setting.failed == "retry" and all(state == "failed" for _, state, _ in self.finals)
        if self.finals and not again:
            self.broken("an outcome that was kept was replaced by another one")
        self.finals.append(final)
        grant = self.granted(client.claim.token)
        if any(self.alive(other) for other in self.grants if other is not grant):
            self.broken("an outcome was kept by somebody who does not hold the key")
        grant.over = True
        if client.execution is not None:
            client.execution.end = "completed" if final[1] == "completed" else "failed"

    def committed(self, client: Client) -> None:
        """What an execution wrote is there for everybody."""
        assert client.execution is not None
        self.effects.append(client.execution.body)
        if len(self.effects) > 1:
            self.broken(f"{len(self.effects)} executions have had their effect")

    # --- what clients are told

    def _settled(self) -> bool:
        """Whether somebody was told an answer after which nothing may be executed any more."""
        return bool(self.definitive)

    def _tell(self, client: Client, answer: Answer) -> None:
        client.answer = answer
        told = response_of(answer)
        match answer.verdict:
            case "completed" | "failed":
                final = (client.claim.token, answer.verdict, told.body)
                if not answer.stored or final not in self.finals:
                    self.broken("a client was told an outcome that was not kept")
            case "replayed":
                if all(body != told.body for _, _, body in self.finals):
                    self.broken("an answer was replayed that nobody gave")
                source = next(one for one in self.executions if one.body == told.body)
                if source.fingerprint != client.claim.fingerprint:
                    self.broken("one request saw the answer to another")
            case "in-flight":
                if self._settled():
                    self.broken("in flight, although the answer is known")
                if not any(self.alive(grant) for grant in self.grants):
                    self.broken("in flight, although nobody is at it")
            case "outcome-unknown":
                if self.setting.mode == "tx":
                    self.broken("an outcome is unknown, although a transaction has one or has none")
                fenced = client.execution is not None
                if not any(grant.lapsed for grant in self.grants):
                    self.broken("an outcome is unknown, although nobody was lost")
                if self.setting.abandoned == "retry" and not fenced:
                    self.broken("an outcome is unknown, although it may be tried again")
            case "key-reused":
                if all(grant.fingerprint == client.claim.fingerprint for grant in self.grants):
                    self.broken("the same request was taken for another one")
            case "previously-failed":
                if self.setting.failed != "conflict" or all(state != "failed" for _, state, _ in self.finals):
                    self.broken("a failure was reported that there was not")
            case "released":
                ran = client.execution
                undone = self.setting.mode == "tx" and ran is not None and ran.body not in self.effects
                if self.setting.handler != "declines" and not undone:
                    self.broken("something that happened was released")
                if not undone and (ran is None or ran.end != "released"):
                    self.broken("a client was told that its key is free, and it is not")
            case "unstored" | "store-unavailable":
                if not self.lost_replies:
                    self.broken("the store was blamed for nothing")
                if answer.verdict == "unstored" and answer.stored:
                    self.broken("an answer that was not kept is not marked")
            case unexpected:
                self.broken(f"told {unexpected}")
        if self._is_definitive(answer):
            if self.setting.mode == "tx" and self.effects != [told.body]:
                self.broken(f"a client was told {told.body!r}, and what was committed is {self.effects}")
            if self.definitive and self.definitive[0] != told:
                self.broken(f"two clients were told {self.definitive[0].body!r} and {told.body!r}")
            self.definitive.append(told)

    def _is_definitive(self, answer: Answer) -> bool:
        """Where failures are run again, a failure is not the last word."""
        if answer.verdict not in ("completed", "failed", "replayed"):
            return False
        return self.setting.failed != "retry" or response_of(answer).status < 500

    def broken(self, promise: str) -> Violation:
        """Raises; the return type is for those who want to say so to a type checker."""
        raise Violation(f"{promise}\n  after: {', '.join(map(str, self.trace))}")


def response_of(answer: Answer) -> Response:
    match answer.reply:
        case Response() as response:
            return response
        case Record(response=Response() as response):
            return response
        case Problem(code):
            return Response(CATALOGUE[code].status)
        case _:
            return Response(0)
