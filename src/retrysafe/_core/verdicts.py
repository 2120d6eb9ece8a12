"""What the protocol concludes, as values: about a bid, about an outcome, and for the client.

`decisions.py` and `protocol.py` make them; drivers, adapters and observers read them.
"""

from typing import Literal, NamedTuple

from retrysafe._core.model import Final, Record, Reserved, Response, Unsettled
from retrysafe._core.problems import Code, Problem
from retrysafe.errors import StoreError


class Replay(NamedTuple):
    """The answer is there."""

    record: Record


class Overtake(NamedTuple):
    """The attempt that holds this token was abandoned or failed, and the policy is to run again."""

    previous: bytes
    state: Unsettled


class Busy(NamedTuple):
    """Somebody is at it; ask again in so many seconds."""

    retry_after: float


Judgement = Reserved | Replay | Overtake | Busy | Problem


class Keep(NamedTuple):
    """The outcome is settled: keep it, then answer."""

    final: Final
    reply: Response | None
    error: Exception | None = None


class LetGo(NamedTuple):
    """Nothing happened: free the key, then answer."""

    reply: Response
    error: Exception | None = None


Verdict = Code | Literal["completed", "failed", "released", "replayed", "unstored", "unprotected", "gone"]
"""One word for how a request ended: what observers count."""


class Answer(NamedTuple):
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
