"""What the clients of one key saw, in the order of time: the only thing that a history is made of."""

from typing import Literal, NamedTuple

ResponseKind = Literal["first", "replay", "in-flight", "mismatch", "unknown", "open", "nothing"]
"""What the client of a request received.

first       its own execution's outcome, stored: every later response must be this one
replay      the outcome of another execution
in-flight   409, another request is running
mismatch    422, the key belongs to something else
unknown     409, another request was running, and what it did is not known
open        a response that settles nothing: a 503, a failure that will be tried again, something marked as
            not stored.  It may have been executed, or not
nothing     no response at all: crashed, cut off, cancelled.  What it began may take effect at any time
            later
"""


class Operation(NamedTuple):
    """One request, from outside."""

    began: float
    ended: float | None
    """`None`: it had no response, and may take effect at any time after it began."""
    asked: str
    """What was asked for: two operations that differ here have different fingerprints."""
    received: ResponseKind
    response: bytes = b""
    """The response of "first" and "replay"."""


History = list[Operation]
"""All operations on one key within one retention, in any order."""
