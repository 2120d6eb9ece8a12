"""A request on its way through the flow, and the worker that serves it."""

from typing import TYPE_CHECKING

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim
from retrysafe._core.steps import Call, Flow, Result, Step
from retrysafe.testing.simulate.keystate import Execution, KeyState, Outcome

if TYPE_CHECKING:
    from retrysafe._core.model import Response
    from retrysafe.testing.simulate.batches import WorkerQueue


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
        "head",
        "inner",
        "key",
        "marked",
        "number",
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
        "unprotected",
        "window",
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
        self.inner: Flow[Result | None] | None = None
        """The flow by which a large response may leave, while its handler runs."""
        self.step: Step | None = None
        self.queued: Queued | None = None
        """Its step, while it waits for the queue of its worker."""
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

    def __str__(self) -> str:
        return f"request {self.number}"
