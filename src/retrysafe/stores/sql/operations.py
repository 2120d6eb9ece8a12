"""The store's operations, each as the statements it is made of.

An operation is a generator of calls, see `stores/queue.py`: it yields the name of a statement and its
arguments, receives the rows, and returns the result.  It is written once; the executor of each driver runs
its calls, and those of other operations in the same batch.

Two rules keep executors simple.  An operation changes the database with **one** statement at most, so each
call is atomic by itself, and one that fails has changed nothing.  And time is the executor's: it adds `now`,
the store's clock, to the arguments, or its statements ask the server; and `patience`, the seconds for which a
statement may wait for the lock of another transaction, where the server enforces it.  Arguments that a
dialect's statement does not name are not sent.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from retrysafe._core.model import (
    Claim,
    Counted,
    Deliveries,
    Door,
    Final,
    Found,
    Purged,
    Record,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)
from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import codec

_log = logging.getLogger("retrysafe.store")

_ROUNDS = 3
"""How often `reserve` looks again when a record that stood in its way is gone a moment later.  Once is what
a database needs in which the loser of two inserts gets no row; three times in a row is an error."""


def reserve(claim: Claim) -> Operation[Reservation]:
    for _ in range(_ROUNDS):
        # A row is the new attempt's number; or none, and then the record that stands in the way, where a
        # dialect can say both with one statement.
        for attempt, *record in (yield "reserve", codec.bid(claim)):
            return _recognised(claim, _found(record)) if attempt is None else Reserved(cast(int, attempt))
        if (found := (yield from _recognise(claim))) is not None:
            return found
    raise StoreUnavailable(
        f"the key could not be reserved: {_ROUNDS} times another record appeared and disappeared again"
    )


def find_existing(claim: Claim) -> Operation[Reservation | None]:
    """What a claim can know without writing: its own earlier success, or the record that is there."""
    if not (yield "record_exists", {"id": claim.id}):
        return None
    return (yield from _recognise(claim))


def _recognise(claim: Claim) -> Operation[Reservation | None]:
    found = yield from look(claim.id)
    return found and _recognised(claim, found)


def _recognised(claim: Claim, found: Found) -> Reservation:
    """What was found may be the claim's own earlier success, whose acknowledgement was lost."""
    record = found.record
    if record.token == claim.token and record.state == "in_progress":
        return Reserved(record.attempt)
    return found


def take_over(claim: Claim, previous: bytes, state: Unsettled) -> Operation[Reservation]:
    rows = yield "take_over", {**codec.bid(claim), "previous": previous, "state": state}
    if rows:
        return Reserved(cast(int, rows[0][0]))
    return (yield from reserve(claim))


def look(id: bytes) -> Operation[Found | None]:
    rows = yield "look", {"id": id}
    return _found(rows[0]) if rows else None


def _found(row: Row) -> Found:
    *columns, now = row
    return Found(codec.decode(columns), cast(float, now))


def checkpoint(claim: Claim, head: Response) -> Operation[bool]:
    arguments = {
        **codec.fence(claim),
        **codec.head(head),
        "hold": claim.hold,
        "retention": claim.retention,
        "retention_from": claim.retention_from,
    }
    return bool((yield "checkpoint", arguments))


def finish(claim: Claim, final: Final) -> Operation[bool]:
    # In time; else late, which moves the expiry and its index too; else not at all, unless this is what we
    # said before and the acknowledgement was lost.  Where a payload may be due, one statement does both.
    arguments = codec.outcome(claim, final)
    received = claim.inbox is not None or final.due_in is not None
    if not received and claim.retention_from == "creation" and (yield "finish", arguments):
        return True
    for statement in ("finish_received" if received else "finish_late", "outcome_is_stored"):
        if (yield statement, arguments):
            return True
    return False


def conclude(claim: Claim, final: Final) -> Operation[bool]:
    """As `finish`, inside a transaction of the caller's own, which is about to be committed with it.

    What an earlier one of the same token may have done is another transaction's affair: False is to be
    followed by a rollback.
    """
    return bool((yield "conclude", _conclusion(claim, final)))


def conclude_or_fail(claim: Claim, final: Final) -> Operation[bool]:
    """As `conclude`, for a driver that sends the COMMIT with it: fenced, the statement fails.

    The driver returns no rows for that error, and the statement's row only once the COMMIT has succeeded.
    """
    return bool((yield "conclude_or_fail", _conclusion(claim, final)))


def _conclusion(claim: Claim, final: Final) -> Arguments:
    return {**codec.outcome(claim, final), "lease": claim.lease, "patience": claim.lease}


def store_within(claim: Claim, final: Final, previous: tuple[bytes, Unsettled] | None) -> Operation[bool]:
    """Store a record with its outcome inside a transaction of the caller's own, of which it is a part.

    `previous` is the attempt that it replaces.  False: the key was taken meanwhile, and everything is to be
    rolled back.  Not one statement but two, which the transaction makes atomic.
    """
    token, state = previous or (b"", "failed")
    replaced = yield "discard", {"id": claim.id, "previous": token, "previous_state": state}
    attempt = cast(int, replaced[0][0]) + 1 if replaced else 1
    arguments = {**codec.bid(claim), **codec.outcome(claim, final), "attempt": attempt}
    return bool((yield "store_within", arguments))


def release(claim: Claim) -> Operation[None]:
    yield "release", {**codec.fence(claim), "announced": int(claim.announced)}


def release_all(claims: Sequence[Claim]) -> Operation[None]:
    """As `release`, of many with one statement."""
    yield "release_all", {"claims": codec.batch(claims)}


def renew_all(claims: Sequence[Claim]) -> Operation[list[bool]]:
    """Extend the leases of many with one statement; a second one looks for those that have finished."""
    kept = {(id, token) for id, token in (yield "renew", {"claims": codec.batch(claims)})}
    if any((claim.id, claim.token) not in kept for claim in claims):
        kept |= {(id, token) for id, token in (yield "settled", {"claims": codec.batch(claims)})}
    return [(claim.id, claim.token) in kept for claim in claims]


def may_count_by_route() -> Operation[bool | None]:
    """Whether calls can be counted by route; `None`: there is no table for it."""
    for _, may_write in (yield "rights_on_routes", {}):
        return bool(may_write)
    return None


def add_calls(ended: Mapping[Counted, int]) -> Operation[None]:
    """Add to the numbers of how calls ended, by route, all with one statement."""
    yield "add_calls", {"calls": codec.calls(ended)}


def add_verdicts(ended: Mapping[Counted, int]) -> Operation[None]:
    """The same by verdict alone, where they cannot be counted by route."""
    verdicts: Counter[str] = Counter()
    for (verdict, *_), number in ended.items():
        verdicts[verdict] += number
    yield "add_verdicts", {"verdicts": codec.json(verdicts)}


def add_deliveries(asked: Mapping[bytes, Deliveries]) -> Operation[None]:
    """Add to how often records were asked for, all with one statement."""
    yield "add_deliveries", {"deliveries": codec.deliveries(asked)}


def claim_cleanup(turn: float, longest: float) -> Operation[bool]:
    """Whether a round of cleanup is due and this caller's; other processes leave it alone for `turn` seconds.

    One that is due in more than `longest` seconds is due now.
    """
    return bool((yield "claim_cleanup", {"turn": turn, "longest": longest}))


def postpone_cleanup(pause: float) -> Operation[None]:
    """The next round of cleanup is due in so many seconds."""
    yield "postpone_cleanup", {"pause": pause}


def purge(limit: int, door: Door | None = None) -> Operation[Purged]:
    rows = yield "purge", {"limit": limit, "door": door}
    unresolved: list[Record] = []
    for state, *columns in rows:
        if state != "in_progress":
            continue
        try:
            unresolved.append(codec.decode(columns))
        except UnreadableRecord as damage:
            # It had expired anyway, but the operator should know that it could not be read.
            _log.warning("removed an expired record that could not be read: %s", damage)
    return Purged(len(rows), tuple(unresolved))
