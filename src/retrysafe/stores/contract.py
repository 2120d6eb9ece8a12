"""What a store promises: a few named methods, each atomic.

To write a store of your own, implement `Store` (blocking), give it an `aio` with the same methods as
coroutines, and run `retrysafe.testing.StoreSuite` on it.  To have it opened by address, see `Opener` in
`retrysafe.stores`.  The values that its methods take and return are
exported here.  The suite is the specification; this page is its summary.

- **Atomic.**  Each method is one step for all other callers, in this process and in others.  `reserve` for
  one id from a hundred places at once returns `Reserved` to one of them.
- **Fenced.**  `checkpoint`, `finish`, `release` and a renewal change a record only while it still has the
  claim's token.  The same call twice with the same token has the same result twice.
- **One clock.**  Leases and expiry are compared with the store's clock, never a worker's.
- **Nothing decided.**  Which record may be replayed or taken over is `decisions.judge`'s business.  A store
  knows only two rules, because they must hold inside its atomic step: when a record has *expired*, and
  that a live lease is never taken away.

A record has expired when `expires_at` has passed, and it is not in progress, or is in progress with a
lease that has ended and `held_until` passed too.  A missing lease counts as alive until `expires_at`.
Expired means absent: for `reserve` and `look`, whether or not a purge has removed it.

A claim may bring an `Inbox`: then the record also has a payload, and a time from which on a worker may
handle it.  Reserving and taking over set that time anew, to none where the claim has no inbox; taking over
keeps the payload that is there, unless the claim brings another one.  Finishing sets it to what the outcome
says, to none if it is completed.  A record that has such a time does not expire: what was acknowledged and
not yet handled is not lost because no worker ran for a while.  So a claim gives none to a record without a
payload, and one whose inbox `is_only_stored` takes over no record that has one.

A store whose server can notify when a record is finished or released may have one method more,
`subscribe(id, wake) -> unsubscribe`: `wake()` is then called from a thread of the store's own after a claim
that was `announced` has been finished or released.  It shortens the wait for another request's response;
correctness does not depend on it.

An unavailable store raises `StoreUnavailable`, a damaged record `UnreadableRecord`, tables of another
version `SchemaMismatch`, one that has lost its records `StoreReset`; a store raises nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from retrysafe._core.model import (
    Claim,
    Counted,
    Deliveries,
    Door,
    Final,
    Found,
    Header,
    Headers,
    Inbox,
    Mode,
    Parts,
    Purged,
    Record,
    Reservation,
    Reserved,
    Response,
    State,
    Unsettled,
)
from retrysafe.stores.admin import Admin

__all__ = [
    "Admin",
    "AsyncStore",
    "Claim",
    "Counted",
    "Deliveries",
    "Door",
    "Final",
    "Found",
    "Header",
    "Headers",
    "Inbox",
    "Mode",
    "Parts",
    "Purged",
    "Record",
    "Renewer",
    "Reservation",
    "Reserved",
    "Response",
    "State",
    "Store",
    "Unsettled",
]


class Store(Protocol):
    """The blocking half."""

    @property
    def aio(self) -> "AsyncStore":
        """The same records for coroutines: never blocks the event loop on a lock or a disk flush."""
        ...

    def reserve(self, claim: Claim) -> Reservation:
        """Create the record, in progress under the claim's token; or return the one that is there."""
        ...

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        """Replace the attempt that holds the token `previous` by this claim, attempt + 1.

        Only if that attempt is still in this state: failed; or in progress, not checkpointed, and its lease
        has ended.  Creation time and request id stay those of the first attempt, and so does the expiry,
        unless the retention is counted from the last update.  Otherwise as `reserve`.
        """
        ...

    def look(self, id: bytes) -> Found | None:
        """The record, if there is one that has not expired."""
        ...

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        """Note on the running record that a response with this head is being sent. False: fenced.

        If it is abandoned now, it is held for at least the claim's `hold` from this moment on.
        """
        ...

    def finish(self, claim: Claim, final: Final) -> bool:
        """Store the outcome. False: fenced, nothing was written; so is another outcome under the same token.

        An owner whose lease ended, but which was not taken over, may still finish.  Expiry moves only if it
        has passed already, or is counted from the last update, to now + retention.  Details of the outcome
        are added to those of the claim.
        """
        ...

    def release(self, claim: Claim) -> None:
        """Delete the running record: its effect is known not to have happened."""
        ...

    def purge(self, limit: int = 500) -> Purged:
        """Remove up to `limit` expired records.  Fewer than `limit` means that no more were found."""
        ...

    def open_keeper(self) -> "Renewer":
        """A blocking renewer with a connection of its own, for the lease keeper's thread."""
        ...

    def open_admin(self) -> Admin:
        """Administration for operators, with a connection of its own."""
        ...

    def close(self) -> None:
        """Close threads and connections.  The store may be used again, and then opens new ones."""
        ...


class AsyncStore(Protocol):
    """The same for coroutines.  Cancelling one leaves the store usable, the step done or not done."""

    async def reserve(self, claim: Claim) -> Reservation: ...
    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation: ...
    async def look(self, id: bytes) -> Found | None: ...
    async def checkpoint(self, claim: Claim, head: Response) -> bool: ...
    async def finish(self, claim: Claim, final: Final) -> bool: ...
    async def release(self, claim: Claim) -> None: ...


class Renewer(Protocol):
    """What the lease keeper uses: one per process, called from its thread alone."""

    def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        """Extend each lease to now + its length, all in one step. False: fenced.

        An attempt whose lease ended, but which was not taken over, is renewed.  One that was finished with
        this token is not, and its result is True: it was not lost.
        """
        ...

    def release(self, claims: Sequence[Claim]) -> None:
        """As `Store.release`, all in one step, for reservations whose acknowledgement never came."""
        ...

    def count(self, ended: Mapping[Counted, int]) -> None:
        """Add to the counts of how calls ended, all in one step.

        Routes are few: the lease keeper sees to it.  A store that cannot count by route counts by verdict.
        """
        ...

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        """Add to how often these records were asked for, and when.  One that is gone, or locked, is skipped.

        It is not an update: neither `updated_at` nor `expires_at` moves.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
