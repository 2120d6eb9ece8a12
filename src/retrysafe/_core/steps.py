"""The steps that a flow may ask for, and what each is answered with.

A flow (see `protocol.py`) is a generator: it yields a step, is sent the answer, and returns its result.
Who performs the steps, and whether by blocking or by awaiting, is `drive.py`'s business.

`answer = yield from ask(step)` is precisely typed, which a bare `yield step` is not; the overloads of `ask`
are also the table of what answers what.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar, overload

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Reservation,
    Response,
    Scope,
    Unsettled,
)


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
    """Keep the outcome."""

    claim: Claim
    final: Final


class Commit(NamedTuple):
    """Keep the outcome together with what the handler wrote, in its own transaction; then it is real.

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


class Answered(NamedTuple):
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


Outcome = Answered | Raised | Streamed

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
