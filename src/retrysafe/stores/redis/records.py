"""Between records and what is stored of them: a hash per record, see `lua/common.lua`.

Its head is what scripts look into.  The rest is text, as in the columns of SQL stores, and is read and
refused by the same rules: `sql/codec.py` has them.
"""

from collections.abc import Sequence
from itertools import product
from struct import Struct
from typing import Any, cast

from retrysafe._core.model import Claim, Final, Found, Record, Response, merge_details
from retrysafe.errors import UnreadableRecord
from retrysafe.stores.sql import codec
from retrysafe.stores.sql.codec import storable

STATES = ("in_progress", "completed", "failed")
_MODES = ("lease", "tx")
_RETENTIONS = ("creation", "update")

_HEAD = Struct("<BBBBBBIdddddddBB")
_DURATIONS = Struct("<dddd")
_OUTCOME = Struct("<BBdd")
HOLD = Struct("<dd")
TIME = Struct("<d")

# Of an attempt that begins: version, state, mode, retention from, checkpointed, omitted, attempt.
_BEGINS = {
    (mode, start): bytes((codec.VERSION, 0, _MODES.index(mode), _RETENTIONS.index(start), 0, 0, 1, 0, 0, 0))
    for mode, start in product(_MODES, _RETENTIONS)
}

_NEVER = -1.0


def bid(claim: Claim) -> tuple[bytes, bytes, bytes, bytes]:
    """The first four arguments of `reserve` and `take_over`."""
    inbox = claim.inbox
    due_in = _NEVER if inbox is None or inbox.due_in is None else max(inbox.due_in, 0.0)
    correlation_id = claim.correlation_id
    claimed = "\0".join(
        (
            claim.door,
            codec.parts_text(claim.scope),
            "" if claim.key is None else f"+{storable(claim.key)}",
            storable(claim.action),
            storable(claim.target),
            storable(claim.request_id),
            "" if correlation_id is None else f"+{storable(correlation_id)}",
        )
    )
    details = claim.details
    return (
        _DURATIONS.pack(claim.lease, claim.retention, claim.hold, due_in)
        + _BEGINS[claim.mode, claim.retention_from],
        bytes((len(claim.token), len(claim.fingerprint))) + claim.token + claim.fingerprint,
        claimed.encode(),
        codec.parts_text(details).encode() if details else b"",
    )


def outcome(final: Final, retention: float) -> tuple[bytes, bytes, bytes]:
    """The second to fourth argument of `finish`."""
    due_in = _NEVER if final.due_in is None else max(final.due_in, 0.0)
    return (
        _OUTCOME.pack(STATES.index(final.state), final.omitted, retention, due_in),
        head_of(final.response),
        final.response.body,
    )


def details(claim: Claim, final: Final) -> bytes | None:
    """Those of the record, if the outcome adds some."""
    if not final.details:
        return None
    return codec.parts_text(merge_details(claim.details, final.details)).encode()


def head_of(response: Response) -> bytes:
    """Status and headers."""
    return f"{response.status} {codec.head(response)['headers']}".encode()


def found(id: bytes, reply: Sequence[Any]) -> Found:
    """What a script has found: head, claim, details, response, body, deliveries, and its time."""
    *stored, now = reply
    return Found(record(id, stored), TIME.unpack(now)[0])


def record(id: bytes, stored: Sequence[bytes | None]) -> Record:
    """The record of its six fields.  Raises `UnreadableRecord` if they make no sense."""
    head, claimed, details, response, body, deliveries = stored
    columns: list[object] = [None] * 30
    columns[1] = id
    try:
        if head and head[0] != codec.VERSION:
            columns[0] = head[0]
            return codec.decode(columns)
        _fill(columns, head or b"", claimed or b"", details or b"[]", response, body, deliveries)
    except (ValueError, IndexError) as damage:
        raise UnreadableRecord(
            f"record {id.hex()[:8]} cannot be read: {damage}. It is left unchanged; requests with its key "
            "get 503 until it expires or an operator deletes it"
        ) from None
    return codec.decode(columns)


def _fill(
    columns: list[object],
    head: bytes,
    claimed: bytes,
    details: bytes,
    response: bytes | None,
    body: bytes | None,
    deliveries: bytes | None,
) -> None:
    if len(head) < _HEAD.size:
        raise ValueError("its head is too short")
    (version, state, mode, start, checkpointed, omitted, attempt, lease_until, created_at, updated_at) = (
        values := _HEAD.unpack_from(head)
    )[:10]
    (completed_at, expires_at, held_until, _, token, fingerprint) = values[10:]
    middle = _HEAD.size + token
    if len(head) != middle + fingerprint:
        raise ValueError("its head has the wrong length")
    door, scope, key, action, target, request_id, correlation_id = claimed.decode().split("\0")
    columns[0] = version
    columns[2:9] = (
        head[_HEAD.size : middle],
        head[middle:],
        STATES[state],
        _MODES[mode],
        attempt,
        # Whatever is no time is a lease that was lost.
        lease_until if lease_until > 0 else None,
        checkpointed,
    )
    columns[9:16] = (
        door,
        scope,
        key[1:] if key else None,
        action,
        target,
        request_id,
        (correlation_id[1:] if correlation_id else None),
    )
    columns[16:21] = (
        created_at,
        updated_at,
        completed_at if completed_at != _NEVER else None,
        expires_at,
        held_until,
    )
    columns[21:23] = details.decode(), _RETENTIONS[start]
    if deliveries:
        number, seen_at, *times = deliveries.decode().split(" ", 2)
        columns[23:26] = int(number), float(seen_at), times[0] if times else None
    else:
        columns[23:26] = 1, None, None
    if response:
        status, _, headers = response.decode().partition(" ")
        columns[26:28] = int(status), headers
    columns[28:30] = body, omitted


def due_at(head: bytes) -> float | None:
    """From when on a worker may handle its payload."""
    due: float = _HEAD.unpack_from(head)[13]
    return None if due < 0 else due


def claimed(text: bytes) -> Sequence[str]:
    """Door, scope, key, action, target and request id, as the audit trail has them."""
    return cast("Sequence[str]", text.decode("utf-8", "replace").split("\0"))
