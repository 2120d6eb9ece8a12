"""The steps that a flow may ask for, and what each is answered with.

A flow (see `protocol.py`) is a generator: it yields a step, is sent the answer, and returns its result.
Who performs the steps, and whether by blocking or by awaiting, is `drive.py`'s business.

`answer = yield from ask(step)` is precisely typed, which a bare `yield step` is not; the overloads of `ask`
are also the table of what answers what.
"""

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeVar, overload

from retrysafe._core.attempt import DEFAULT_SECRET, Attempt
from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Record,
    Reservation,
    Reserved,
    Response,
    Scope,
    Unsettled,
)
from retrysafe._core.problems import Code, Problem
from retrysafe.errors import StoreError
from retrysafe.policy import Policy, RequestRules


class Identify(NamedTuple):
    """Ask the application whose key it is."""


class ReadBody(NamedTuple):
    """Read the whole request body, up to the route's limit, and take its fingerprint."""


class Reauthorise(NamedTuple):
    """Ask the application whether this client may still see a stored answer."""


class Reserve(NamedTuple):
    """Bid for the key."""

    claim: Claim


class TakeOver(NamedTuple):
    """Replace the attempt that holds `previous`, if it is still in that state and its time is up."""

    claim: Claim
    previous: bytes
    state: Unsettled


class Look(NamedTuple):
    """Read the record without bidding for it."""

    id: bytes


class Run(NamedTuple):
    """Run the handler, and keep its lease alive until the flow is over, if it has one."""

    attempt: Attempt


class Checkpoint(NamedTuple):
    """Note that an answer begins to leave before it is complete."""

    claim: Claim
    head: Response


class Finish(NamedTuple):
    """Store the outcome."""

    claim: Claim
    final: Final


class Commit(NamedTuple):
    """Store the outcome together with what the handler wrote, in its own transaction; then it is real.

    Answers False if somebody else holds the key: then everything was rolled back.  Raises `CommitRefused` if
    the database would not have it, and a `StoreError` if it is not known whether it was committed.
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
    """Call what the handler left to be called after the commit."""

    attempt: Attempt


class Release(NamedTuple):
    """Forget the record: nothing happened."""

    claim: Claim


class Forget(NamedTuple):
    """As `Release`, but by and by: the store cannot be relied upon just now, or we are being cancelled."""

    claim: Claim


class Persist(NamedTuple):
    """Pause before the store is tried again.  Answers False, at once, if the lease would not last."""

    claim: Claim
    pause: float


class Pause(NamedTuple):
    """Let some time pass."""

    seconds: float


class Wait(NamedTuple):
    """Wait for another attempt to come to an end.

    Answers the seconds that went by; `None` if too many are waiting already.
    """

    id: bytes
    seconds: float


class TooLarge(NamedTuple):
    """The request body exceeds the limit."""

    limit: int


class Gone(NamedTuple):
    """The client went away before its request was complete."""


IDENTIFY = Identify()
READ_BODY = ReadBody()


class Responded(NamedTuple):
    """The handler gave a complete answer."""

    response: Response
    omitted: bool = False
    """Its body was too large to hold, and waits on disk to be sent."""


class Raised(NamedTuple):
    """The handler raised."""

    error: Exception
    said: Response | None = None
    """An error page of its own that it completed first, as frameworks do."""


class Streamed(NamedTuple):
    """The handler's answer went out as it came; `error` is what broke it off, if anything did."""

    head: Response
    error: Exception | None = None


Outcome = Responded | Raised | Streamed

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
def ask(step: Look) -> Flow[Found | None]: ...
@overload
def ask(step: Run) -> Flow[Outcome]: ...
@overload
def ask(step: Checkpoint | Finish | Commit | Persist | Reauthorise) -> Flow[bool]: ...
@overload
def ask(step: Wait) -> Flow[float | None]: ...
@overload
def ask(step: Release | RollBack | CallBack | Forget | Pause) -> Flow[None]: ...
def ask(step: Step) -> Flow[object]:
    """Yield one step and return its answer."""
    return (yield step)


class Replay(NamedTuple):
    """The answer is there."""

    record: Record


class CanTakeOver(NamedTuple):
    """The attempt that holds this token was abandoned or failed, and the policy is to run again."""

    previous: bytes
    state: Unsettled


class Busy(NamedTuple):
    """Somebody is at it; ask again in so many seconds."""

    retry_after: float


Judgement = Reserved | Replay | CanTakeOver | Busy | Problem


class ToStore(NamedTuple):
    """The outcome is settled: keep it, then answer."""

    final: Final
    reply: Response | None
    error: Exception | None = None


class ToRelease(NamedTuple):
    """Nothing happened: free the key, then answer."""

    reply: Response
    error: Exception | None = None


Verdict = Code | Literal["completed", "failed", "released", "replayed", "unstored", "unprotected", "gone"]
"""One word for how a request ended: what observers count."""


class Result(NamedTuple):
    """What to tell the client."""

    verdict: Verdict
    reply: Response | Problem | Record | None
    """Our own answer, a refusal, a record to replay, or nothing: it was sent already, or nobody listens."""
    stored: bool = True
    error: Exception | None = None
    """What the handler raised, to be raised again once the answer is out, for the application's log."""
    attempt: int = 0
    trouble: StoreError | None = None
    """Why the store could not do its part, for our own log."""


class Call(NamedTuple):
    claim: Claim
    policy: Policy
    rules: RequestRules
    describe: Callable[[Problem], Response]
    """Renders a problem that is to be kept as the answer."""
    draining: Callable[[], bool] = lambda: False
    secret: bytes = DEFAULT_SECRET

    def __repr__(self) -> str:
        return f"<Call for {self.claim!r}>"  # the secret is one
