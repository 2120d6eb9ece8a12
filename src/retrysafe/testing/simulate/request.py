"""A request on its way through the flow, and the worker that serves it."""

from typing import TYPE_CHECKING

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim
from retrysafe._core.steps import Call, Commit, Flow, Result, Step
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.errors import CommitRefused
from retrysafe.testing.simulate.keystate import Execution, KeyState, Outcome
from retrysafe.testing.simulate.model import Within
from retrysafe.testing.simulate.setting import Handler

if TYPE_CHECKING:
    from retrysafe._core.model import Response
    from retrysafe.testing.simulate.batches import WorkerQueue


LATER = 1_000_000
"""The number of the first request that is sent after faults have stopped."""

PARTS = 500_000
"""The number of an operation that is a part of a request is the request's, and this many."""


class Worker:
    """A process: its clock, its lease keeper, the queue to its store, and whether it is frozen."""

    __slots__ = ("draining", "forgotten", "frozen", "held", "number", "offset", "queue")

    def __init__(self, number: int) -> None:
        self.number = number
        self.frozen = False
        self.offset = 0.0
        """By how much its clock is wrong."""
        self.restart()

    def restart(self) -> None:
        """Become a new process: what the old one had in memory is lost."""
        self.draining = False
        self.held: dict[bytes, tuple[SimulatedRequest, Attempt]] = {}
        self.forgotten: list[SimulatedRequest] = []
        self.queue: WorkerQueue | None = None
        """Made when it is first used."""

    def is_draining(self) -> bool:
        return self.draining


class Queued:
    """A step that was handed to the queue of a worker."""

    __slots__ = ("request", "step")

    def __init__(self, request: "SimulatedRequest", step: Step) -> None:
        self.request = request
        self.step = step


class SimulatedRequest:
    """One request on its way through the flow."""

    __slots__ = (
        "arrived_late",
        "asked",
        "attempt",
        "began",
        "call",
        "cancelled",
        "claim",
        "digest",
        "drained",
        "ended",
        "execution",
        "flow",
        "forgot",
        "handler",
        "head",
        "inner",
        "key",
        "marked",
        "number",
        "part",
        "promised",
        "queued",
        "refused",
        "result",
        "settled_window",
        "step",
        "store_failed",
        "stored",
        "stranded",
        "streaming",
        "transaction",
        "unprotected",
        "window",
        "within",
        "worker",
    )  # fmt: skip

    def __init__(self, number: int, key: KeyState, asked: int, worker: Worker, claim: Claim) -> None:
        self.number = number
        self.key = key
        self.asked = asked
        self.worker = worker
        self.claim = claim
        self.call: Call
        self.flow: Flow[Result] | None = None
        """`None`: completed, crashed or cancelled."""
        self.inner: Flow[Result | None] | Flow[Result] | None = None
        """While its handler runs: the flow by which a large response may leave, or that of its part."""
        self.step: Step | None = None
        self.queued: Queued | None = None
        """Its step, while it waits for the queue of its worker."""
        self.handler: Handler = "succeeds"
        """How its handler behaves."""
        self.part: SimulatedRequest | None = None
        """The operation that is a part of its transaction, once its handler has called it."""
        self.transaction: CallTransaction | None = None
        self.within: Within | None = None
        """The record of that operation, written in the transaction, and not committed."""
        self.attempt: Attempt | None = None
        self.head: Response | None = None
        self.execution: Execution | None = None
        self.result: Result | None = None
        self.stored: Outcome | None = None
        """The outcome of this request that the store reported as stored."""
        self.window = 0
        """The one in which the key was given to it."""
        self.settled_window = 0
        """The window in which a client had a definitive response when this one began."""
        self.marked = False
        """The store replied that it stored the checkpoint of its response."""
        self.streaming = False
        """Bytes of its response have left."""
        self.promised = False
        """Bytes of its response have left, marked as stored."""
        self.store_failed = False
        """At least one of its calls to the store had no reply."""
        self.refused = 0
        """How often it was refused another write, because its lease would end before."""
        self.forgot = False
        self.arrived_late = False
        """A bid that had timed out arrived late."""
        self.stranded = False
        """Its bid may hold the key until its lease ends: no worker is left to release it."""
        self.drained = False
        """Its worker was shutting down when the store gave it the key."""
        self.cancelled = False
        self.unprotected = False
        self.began = 0
        self.ended: int | None = None
        self.digest = 0
        """A hash of all replies that its flow received."""

    @property
    def calls_part(self) -> bool:
        """Whether its handler waits for the operation that is a part of it."""
        return self.part is not None and self.inner is not None

    @property
    def refusal(self) -> CommitRefused | None:
        """Why it cannot commit, if it is about to: its driver knows that, and asks no store."""
        return self.transaction.refusal if self.transaction and isinstance(self.step, Commit) else None

    def __str__(self) -> str:
        if self.number % LATER >= PARTS:
            return f"the part of request {self.number - PARTS}"
        return f"request {self.number}"
