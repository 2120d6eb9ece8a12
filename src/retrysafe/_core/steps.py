"""The vocabulary of a flow: the steps it asks for, what it concludes, and what it knows about its call.

A flow (see `protocol.py`) is a generator: it yields a step, is sent what came of it, and returns a `Result`.
Who performs the steps, and whether by blocking or by awaiting, is up to the drivers in `_runtime`.

`found = yield from ask(step)` is precisely typed, which a bare `yield step` is not; the overloads of `ask`
are also the table of what each step gives back.
"""

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeVar, overload

from retrysafe._core.attempt import DEFAULT_SECRET, Attempt
from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Headers,
    Parts,
    Record,
    Reservation,
    Reserved,
    Response,
    Scope,
    Unsettled,
)
from retrysafe._core.problems import Code, Problem
from retrysafe.errors import StoreError
from retrysafe.policy import OutcomeRules, Policy, Retries

# --- what a flow knows


class Call(NamedTuple):
    """All that a flow needs to know about one guarded call, and all that its decisions may depend on."""

    claim: Claim
    policy: Policy
    rules: OutcomeRules
    describe: Callable[[Problem], Response]
    """Renders a problem that is to be stored as the response."""
    draining: Callable[[], bool] = lambda: False
    secret: bytes = DEFAULT_SECRET
    reauthorises: bool = False
    """Whether the application is asked before a stored response is replayed."""
    receipt: "Receipt | None" = None
    """What holds besides where the record is the receipt of a delivery."""

    def __repr__(self) -> str:
        return f"<Call for {self.claim!r}>"  # the secret is one


class Operation(NamedTuple):
    """One function call, as the operation door brings it."""

    action: str
    target: str
    fingerprint: bytes
    """Of the action, the target and all arguments."""
    request_id: str
    correlation_id: str | None


class Delivery(NamedTuple):
    """One delivery of an event, as the callback door brings it: from a known sender, with a valid payload."""

    name: str
    """What the receipts are called: what deliveries are counted and listed by."""
    scope: Parts
    """Its source, which the id is an id of."""
    id: str
    subject: str
    """The run or resource that it is about."""
    fingerprint: bytes
    """Of what must be the same in each delivery of this event."""
    request_id: str
    correlation_id: str | None
    received: Parts
    """Details that are stored when it is received."""
    handled: Parts
    """Details that are stored when it has been handled."""
    payload: bytes | None
    """What a worker is to be given; `None` where it is not stored."""


class Receipt(NamedTuple):
    """What holds of a receipt, besides what holds of any record."""

    handled: Parts = ()
    retries: Retries = Retries()
    """How often a worker tries, where the payload is stored."""


# --- steps that a door performs


class Identify(NamedTuple):
    """Ask the application whose key it is."""


class ReadBody(NamedTuple):
    """Read what is asked for, up to the route's limit, and take its fingerprint."""


class Reauthorise(NamedTuple):
    """Ask the application whether this client may still see a stored response."""


class Run(NamedTuple):
    """Run the handler, and renew its lease until the flow is over, if it has one."""

    attempt: Attempt
    call: Call


# --- steps that the runtime performs


class Reserve(NamedTuple):
    """Bid for the key.  From here to the end of its flow, the call counts as running."""

    claim: Claim


class TakeOver(NamedTuple):
    """Replace the attempt that holds `previous`, if it is still in that state and its lease has ended."""

    claim: Claim
    previous: bytes
    state: Unsettled


class Look(NamedTuple):
    """Read the record without bidding for it."""

    claim: Claim


class Checkpoint(NamedTuple):
    """Note that a response begins to leave before it is complete."""

    claim: Claim
    head: Response


class Finish(NamedTuple):
    """Store the outcome."""

    claim: Claim
    final: Final


class Commit(NamedTuple):
    """Store the outcome together with what the handler wrote, in its own transaction; then it is real.

    Gives False if another attempt holds the key: then everything was rolled back.  Raises `CommitRefused` if
    the database refused, and a `StoreError` if it is not known whether it was committed.
    """

    attempt: Attempt
    claim: Claim
    final: Final


class RollBack(NamedTuple):
    """Undo what the handler wrote in its transaction."""

    attempt: Attempt
    cut_off: bool = False
    """The handler was not at its end, and a part of it may still run."""


class CallBack(NamedTuple):
    """Call what the handler registered to be called after the commit.

    First what its parts did, as far as they were committed: one that was rolled back alone, with a savepoint
    around it, has left no record.
    """

    attempt: Attempt


class LookWithin(NamedTuple):
    """Read the record as the transaction of the call around this one sees it."""

    attempt: Attempt


class StoreWithin(NamedTuple):
    """Store the record with its outcome in the transaction of the call around this one.

    Gives False if another attempt has taken the key meanwhile.
    """

    attempt: Attempt
    final: Final
    previous: "CanTakeOver | None"


class Spoil(NamedTuple):
    """Have nothing of the call around this one committed: a part of it failed, and cannot be undone alone."""

    attempt: Attempt
    reason: str
    passing: bool = False
    """Whether the whole may well succeed the next time."""


class Release(NamedTuple):
    """Forget the record: nothing happened."""

    claim: Claim


class Forget(NamedTuple):
    """As `Release`, but in the background: the store cannot be relied upon now, or we are being cancelled."""

    claim: Claim


class Persist(NamedTuple):
    """Pause before the store is tried again.  Gives False, at once, if the lease would not last."""

    claim: Claim
    pause: float


class Pause(NamedTuple):
    """Let some time pass."""

    seconds: float


class Wait(NamedTuple):
    """Wait for another attempt to end.

    Gives the seconds that went by; `None` if too many requests are waiting already.
    """

    id: bytes
    seconds: float
    in_server_thread: bool = True
    """Whether blocking code waits in a thread that other requests need.  The caller of an operation has asked
    to wait, and has a thread of its own for it."""


IDENTIFY = Identify()
READ_BODY = ReadBody()


# --- what came of a step


class TooLarge(NamedTuple):
    """The request body exceeds the limit."""

    limit: int


class Gone(NamedTuple):
    """The client disconnected before its request was complete."""


class Responded(NamedTuple):
    """The handler gave a complete response."""

    response: Response
    omitted: bool = False
    """Its body cannot be stored: it is too large to hold and waits on disk, or has no end of its own."""
    storable: Headers | None = None
    """Its headers that may be stored, where the door has sorted them already."""


class Raised(NamedTuple):
    """The handler raised."""

    error: Exception
    page: Response | None = None
    """An error page of its own that it completed first, as frameworks do."""


class Streamed(NamedTuple):
    """The handler's response went out as it came; `error` is what broke it off, if anything did."""

    head: Response
    error: Exception | None = None


Outcome = Responded | Raised | Streamed


# --- what is concluded


class Replay(NamedTuple):
    """The response is there."""

    record: Record


class CanTakeOver(NamedTuple):
    """The attempt that holds this token was abandoned or failed, and the policy is to run again."""

    previous: bytes
    state: Unsettled


class Busy(NamedTuple):
    """Another attempt runs; ask again in so many seconds."""

    retry_after: float
    first: Record | None = None
    """What it runs for."""


Judgement = Reserved | Replay | CanTakeOver | Busy | Problem


class ToStore(NamedTuple):
    """The outcome is settled: store it, then respond."""

    final: Final
    reply: Response | None
    error: Exception | None = None


class ToFail(NamedTuple):
    """Nothing of it is left, and the record stays all the same: it says so, and may have the payload."""

    final: Final
    reply: Response
    error: Exception | None = None


class ToRelease(NamedTuple):
    """Nothing happened: free the key, then respond."""

    reply: Response
    error: Exception | None = None


Verdict = (
    Code
    | Literal[
        "completed",
        "failed",
        "released",
        "replayed",
        "accepted",
        "waiting",
        "unstored",
        "unprotected",
        "gone",
    ]
)
"""One word for how a call ended: what observers count.  A delivery is "accepted" whose payload is stored for
a worker, and "waiting" when it comes again before a worker has handled it."""

ASKED_AGAIN: frozenset[str] = frozenset(
    {"replayed", "in-flight", "waiting", "outcome-unknown", "previously-failed"}
)
"""How a call ends whose key had been used for the same before."""


class Result(NamedTuple):
    """What the client is sent, and how the call ended."""

    verdict: Verdict
    reply: Response | Problem | Record | None
    """The handler's response, a refusal, a record to replay, or nothing: it was sent already, or the client
    is gone."""
    stored: bool = True
    error: Exception | None = None
    """What the handler raised, to be raised again once the response is out, for the application's log."""
    attempt: int = 0
    trouble: StoreError | None = None
    """Why the store could not do its part, for our own log."""
    cut_off: bool = False
    """A response that is on its way must be broken off: an end would promise that it is stored."""


# --- asking

Step = (
    Identify
    | ReadBody
    | Reauthorise
    | Reserve
    | TakeOver
    | Look
    | Run
    | Checkpoint
    | Finish
    | Commit
    | RollBack
    | CallBack
    | LookWithin
    | StoreWithin
    | Spoil
    | Release
    | Forget
    | Persist
    | Pause
    | Wait
)

T = TypeVar("T")
Flow = Generator[Step, Any, T]


@overload
def ask(step: Identify) -> Flow[Scope | None]: ...
@overload
def ask(step: ReadBody) -> Flow[bytes | TooLarge | Gone]: ...
@overload
def ask(step: Reserve | TakeOver) -> Flow[Reservation]: ...
@overload
def ask(step: Look | LookWithin) -> Flow[Found | None]: ...
@overload
def ask(step: Run) -> Flow[Outcome]: ...
@overload
def ask(step: Checkpoint | Finish | Commit | StoreWithin | Persist | Reauthorise) -> Flow[bool]: ...
@overload
def ask(step: Wait) -> Flow[float | None]: ...
@overload
def ask(step: Release | RollBack | CallBack | Spoil | Forget | Pause) -> Flow[None]: ...
def ask(step: Step) -> Flow[object]:
    """Yield one step and return what came of it."""
    return (yield step)
