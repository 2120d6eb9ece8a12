"""The people in the world: requests under way, and the processes that serve them."""

from typing import TYPE_CHECKING

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim
from retrysafe._core.steps import Call, Flow, Result, Step
from retrysafe.testing.simulate.keystate import Account, Execution, Outcome

if TYPE_CHECKING:
    from retrysafe._core.model import Response


class Worker:
    """A process: its clock, its lease keeper, and whether it sleeps."""

    __slots__ = ("draining", "forgotten", "frozen", "held", "number", "offset")

    def __init__(self, number: int) -> None:
        self.number = number
        self.frozen = False
        self.offset = 0.0
        """By how much its clock is wrong."""
        self.restart()

    def restart(self) -> None:
        """As a new process: what the old one had in mind is lost."""
        self.draining = False
        self.held: dict[bytes, tuple[Visit, Attempt]] = {}
        self.forgotten: list[Visit] = []

    def is_draining(self) -> bool:
        return self.draining


class Visit:
    """One request on its way through the flow."""

    __slots__ = (
        "account", "answer", "asked", "attempt", "began", "call", "cancelled", "claim", "drained", "ended",
        "execution", "flow", "flows", "forgot", "haunts", "head", "heard", "inner", "kept", "late", "marked",
        "number", "promised", "refused", "step", "stranded", "troubled", "unprotected", "window", "worker",
    )  # fmt: skip

    def __init__(self, number: int, account: Account, asked: int, worker: Worker, claim: Claim) -> None:
        self.number = number
        self.account = account
        self.asked = asked
        self.worker = worker
        self.claim = claim
        self.call: Call
        self.flow: Flow[Result] | None = None
        """`None`: answered, crashed or cancelled."""
        self.inner: Flow[Result | None] | None = None
        """The flow by which a large answer may leave, while its handler runs."""
        self.step: Step | None = None
        self.attempt: Attempt | None = None
        self.head: Response | None = None
        self.execution: Execution | None = None
        self.answer: Result | None = None
        self.kept: Outcome | None = None
        """What the store said that it kept of this visit."""
        self.window = 0
        """In which the key was given to it."""
        self.late = 0
        """The window in which somebody had a definitive answer when this one began."""
        self.marked = False
        """The store said that it has noted what begins to leave."""
        self.flows = False
        """Bytes of its answer have left."""
        self.promised = False
        """Bytes of its answer have left, and it was said that they are kept."""
        self.troubled = False
        """The store did not answer it at least once."""
        self.refused = 0
        """How often it was told that its lease does not last, and that it should not try to write again."""
        self.forgot = False
        self.haunts = False
        """A bid that it had given up came late."""
        self.stranded = False
        """What it gave up may hold the key until its lease ends: nobody is left to forget it."""
        self.drained = False
        """Its server was shutting down when it was told that the key is its own."""
        self.cancelled = False
        self.unprotected = False
        self.began = 0
        self.ended: int | None = None
        self.heard = 0
        """A hash of everything that its flow was answered."""

    def __str__(self) -> str:
        return f"request {self.number}"
