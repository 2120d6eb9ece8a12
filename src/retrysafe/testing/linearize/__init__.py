"""Whether what the clients of one key saw is possible if the key changed at single moments, in one order.

    from retrysafe.testing.linearize import History, Operation, check
    why = check(history, mode="hold")      # None, or what contradicts what

Promise I6 is that every history of a key is *linearizable*; that all definitive responses are equal (I5) and
that another request never sees them (I7) follows from it.  This is the specification that histories are
checked against.  A key is always in one of these states, and changes at single moments:

    ABSENT ──bid──► RUNNING(owner, what it asked for) ──complete──► FINAL(asked, response)
       ▲                │   ▲
       └────release─────┘   └── take-over by another that asked for the same ("tx" and "retry")

Each operation acts only between its beginning and its end, both included:

first       it had the key, and made it FINAL with its response
replay      there was a moment at which the key was FINAL with this response, for what it asked for
in-flight   there was a moment at which another, which asked for the same, was RUNNING
unknown     the same: the other one's lease had ended.  Not in "tx", where everything can be undone
mismatch    there was a moment at which the key was RUNNING or FINAL for something else
open        it may have had the key, and completed it or not
nothing     so may this one, and it acts at any time after it began: its end is when the client stopped
            waiting.  So does one that received "open" and has `ended=None`: its client received 503, and what
            it had sent to the store may arrive later

- FINAL is for ever: a history lies within one retention.
- An operation that received "open" or "nothing" may leave the key RUNNING, and release it at any time later:
  that is what `Forget` does, and an owner that is thawed and raises `NotDone`.  So after "unknown" a key may
  be free again.
- A release is always the owner's.  After it, or after a take-over, the same operation may have the key again,
  because a bid whose acknowledgement was lost is sent once more.
- In "tx" and "retry" an operation that received anything may have had the key, if it lost it to a take-over
  before.  In "hold" no owner is ever taken over, so an operation that received "in-flight", "replay",
  "mismatch" or "unknown" never had it.
- A failure that may be retried (`failed="retry"`) was received as "open".  Since it can be taken over,
  histories of such a route are checked as "retry", also if they hold what was abandoned.
- Time is only an order here: that a lease has ended is not seen from outside, nor how long a client waited.
  Two operations of which one ends at the very time at which the other begins may have overlapped.

`check` is exact: it finds an order if there is one.  `generate` makes histories that are known to be good,
`mutate` such that are known to be bad, and `python -m retrysafe.testing.linearize` checks the checker with
both, or reads histories from a file.
"""

from retrysafe.testing.linearize.decide import MODES, Mode, is_linearizable
from retrysafe.testing.linearize.explain import check
from retrysafe.testing.linearize.history import History, Operation, ResponseKind

__all__ = ["MODES", "History", "Mode", "Operation", "ResponseKind", "check", "is_linearizable"]
