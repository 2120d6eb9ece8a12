"""What things mean: the decisions, as pure functions of what is known.

`admit` says whether a request may ask at all, `judge` what the record of its key means for it, `settle` what
its outcome means for the record.  In which order they are asked, and what follows, is up to `protocol.py`.
"""

from math import isnan
from typing import Literal, assert_never

from retrysafe._core import headers, keys
from retrysafe._core.attempt import Attempt
from retrysafe._core.fingerprint import same
from retrysafe._core.model import (
    Claim,
    Final,
    Headers,
    Record,
    Request,
    Reservation,
    Reserved,
    Response,
    make,
)
from retrysafe._core.problems import Previous, Problem, stored_code
from retrysafe._core.steps import (
    Busy,
    Call,
    CanTakeOver,
    Judgement,
    Outcome,
    Raised,
    Receipt,
    Replay,
    Responded,
    Streamed,
    ToFail,
    ToRelease,
    ToStore,
)
from retrysafe._core.times import iso
from retrysafe.errors import NotDone
from retrysafe.policy import OutcomeRules, Policy, Rules

UNKNOWN = Problem("outcome-unknown", "An earlier request with this key broke off; what it did is not known.")


def admit(request: Request, rules: Rules) -> str | Problem:
    """The key, if the request has one that is well formed."""
    wire = rules.wire
    values = request.every(rules.names.key)
    if not values:
        return Problem("key-missing", f"This request needs the header {wire.key_header}.")
    key = keys.parse_key(values, longest=wire.longest_key, strict=wire.strict_keys)
    if isinstance(key, str):
        return key
    return Problem("key-invalid", f"The header {wire.key_header} is not a key: {key.reason}")


def judge(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
    """What a bid for a key means, given what the store says about it."""
    if isinstance(reservation, Reserved):
        return reservation
    record, now = reservation
    if record.token == claim.token:
        # Our own bid: it was applied, and only its acknowledgement was lost.
        return Reserved(record.attempt)
    if not same(record.fingerprint, claim.fingerprint):
        return Problem("key-reused", "This key was used for a different request.")
    match record.state:
        case "completed":
            return make(Replay, (record,))
        case "failed":
            return _judge_failed(record, policy)
        case "in_progress":
            return _judge_unfinished(record, now, policy)
        case unreachable:
            assert_never(unreachable)


def _judge_failed(record: Record, policy: Policy) -> Judgement:
    match policy.failed:
        case "replay":
            return Replay(record)
        case "retry":
            return CanTakeOver(record.token, "failed")
        case "conflict":
            detail = "The first request with this key failed."
            return Problem("previously-failed", detail, previous=_failure(record))
        case unreachable:
            assert_never(unreachable)


def _failure(record: Record) -> Previous:
    at = iso(record.updated_at if record.completed_at is None else record.completed_at)
    response = record.response
    return Previous(response.status, stored_code(response), at) if response else Previous(None, None, at)


def _judge_unfinished(record: Record, now: float, policy: Policy) -> Judgement:
    if record.lease_until is None:
        # Lost or damaged: no orphan before the record's own time is up.  Taking it for one would run a
        # request beside its owner.
        if record.expires_at > now:
            return Busy(1.0)
    elif record.lease_until > now:
        # A request that took long already will take a while longer; but its lease is an upper bound.
        running = now - record.created_at
        return Busy(min(max(running, 0.2), record.lease_until - now))
    if record.mode == "tx":
        # Its effects were rolled back with it.
        return CanTakeOver(record.token, "in_progress")
    if record.checkpointed or policy.abandoned == "hold":
        return UNKNOWN
    return CanTakeOver(record.token, "in_progress")


# Statuses by which a server says that it did not even begin: RFC 9110 sections 15.5.2, 15.5.4, 15.5.9 and
# 15.5.14, RFC 8470 section 5.2, RFC 6585 section 4.
NOT_BEGUN = frozenset({401, 403, 408, 413, 425, 429})


def settle(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease | ToFail:
    """What is known about the effect, and so what becomes of the key."""
    if call.receipt is not None:
        return _settle_receipt(outcome, attempt, call, call.receipt)
    if call.claim.mode == "tx":
        return _settle_undoable(outcome, attempt, call)
    # A derived key that was given out may have been used, and bytes that were sent cannot be taken back.
    believable = not (attempt.derived or attempt.checkpointed)
    if isinstance(outcome, Responded):
        response, omitted, storable = outcome
        rules = call.rules
        if believable and _nothing_done(response, attempt, call):
            return ToRelease(response)
        final = _final(response, rules, omitted=omitted, storable=storable)
        return make(ToStore, (final, response, None))
    match outcome:
        case Raised(NotDone() as notice) if believable:
            return ToRelease(call.describe(Problem("not-done", str(notice), notice.retry_after)))
        case Raised(error) if isinstance(error, call.rules.retry_on) and believable:
            return ToRelease(call.describe(Problem("not-done", "Nothing was done.")))
        case Raised(error, page):
            failure = page or call.describe(Problem("handler-failed", "The request failed."))
            final = _final(page, call.rules) if page else Final("failed", storable_part(failure, call.rules))
            return ToStore(final, failure, error)
        case Streamed(head, None):
            return ToStore(_final(head, call.rules, omitted=True), None)
        case Streamed(_, error):
            # Never to be replayed as the success that its status promised.
            failure = call.describe(Problem("handler-failed", "The response broke off."))
            return ToStore(Final("failed", storable_part(failure, call.rules)), None, error)
        case unreachable:
            assert_never(unreachable)


def _settle_undoable(outcome: Outcome, attempt: Attempt, call: Call) -> ToStore | ToRelease:
    """The same for effects that can be rolled back: what did not succeed has not happened.

    Even if a derived key was given out: the other side, asked again with it, does nothing again.
    """
    match outcome:
        case Responded(response, omitted, storable):
            if response.status >= 500 or _nothing_done(response, attempt, call):
                return ToRelease(response)
            return ToStore(_final(response, call.rules, omitted=omitted, storable=storable), response)
        case Raised(NotDone() as notice):
            return ToRelease(call.describe(Problem("not-done", str(notice), notice.retry_after)))
        case Raised(error) if isinstance(error, call.rules.retry_on):
            return ToRelease(call.describe(Problem("not-done", "Nothing was done.")))
        case Raised(error, page):
            problem = Problem("handler-failed", "The request failed, and was undone.", undone=True)
            return ToRelease(page or call.describe(problem), error)
        case Streamed():
            raise AssertionError("nothing leaves before it is committed")
        case unreachable:
            assert_never(unreachable)


def _settle_receipt(
    outcome: Outcome, attempt: Attempt, call: Call, receipt: Receipt
) -> ToStore | ToRelease | ToFail:
    """The same for a delivery: of one that failed it is noted why, and a stored payload is not given up."""
    settlement = settle(outcome, attempt, call._replace(receipt=None))
    assert not isinstance(settlement, ToFail), "only receipts say how they failed"
    error = outcome.error if isinstance(outcome, Raised) else None
    if isinstance(settlement, ToStore):
        final = settlement.final
        if final.state == "completed":
            # The sender is told that it was handled, and never what with: only that is stored.
            return settlement._replace(
                final=Final("completed", Response(final.response.status), details=receipt.handled)
            )
        return settlement._replace(final=fail_receipt(final.response.status, error, attempt.number, call))
    if may_release(call.claim, attempt.number) and _nothing_begun(settlement, error, attempt, call):
        return settlement  # the sender is told so, and delivers it again
    final = fail_receipt(settlement.reply.status, error, attempt.number, call, undone=True)
    if isinstance(error, NotDone) and final.due_in is not None and not isnan(error.retry_after):
        # No later than it would have expired: further away a database has no times.
        final = final._replace(due_in=min(max(error.retry_after, 0.0), call.policy.retention))
    return ToFail(final, settlement.reply, settlement.error)


def _nothing_begun(settlement: ToRelease, error: Exception | None, attempt: Attempt, call: Call) -> bool:
    """Whether a delivery was refused, and not begun and then undone."""
    return (
        call.claim.mode == "lease"
        or attempt.said_not_started
        or settlement.reply.status < 500
        or isinstance(error, (NotDone, *call.rules.retry_on))
    )


def may_release(claim: Claim, attempt: int) -> bool:
    """Whether this attempt may release the record, and with it the payload that is stored there.

    Not where its sender may have been told that it is stored; nor where an earlier attempt has failed or was
    interrupted, because a worker handles it even if its sender does not come back.
    """
    return claim.inbox is None or (not claim.inbox.never_released and attempt == 1)


def may_forget(claim: Claim) -> bool:
    """Whether a claim may be released of which it is not known if it was granted, and for which attempt.

    Not where a payload is stored that a worker handles as soon as the lease has ended.
    """
    return claim.inbox is None or (not claim.inbox.never_released and claim.inbox.due_in is None)


def was_begun(record: Record) -> bool:
    """Whether an attempt in progress may have done something: one that was only received has no lease."""
    return record.lease_until is None or record.lease_until > record.updated_at


def fail_receipt(
    status: int, error: Exception | None, attempt: int, call: Call, *, undone: bool = False
) -> Final:
    """A failed attempt to handle a delivery, and when a worker is to try again.

    `undone`: nothing is left of it, so it is tried again under any policy.
    """
    assert call.receipt is not None
    why = f"status {status}" if error is None else f"{type(error).__qualname__}: {_text(error)}"
    due_in = None
    if call.claim.inbox is not None and (undone or call.policy.failed == "retry"):
        # The first attempt was not a worker's: it was the delivery's own, or received it.
        due_in = call.receipt.retries.pause(attempt - 1)
    return Final(
        "failed",
        Response(status),
        details=(("status", "failed"), ("error", why[:_LONGEST_ERROR])),
        due_in=due_in,
    )


_LONGEST_ERROR = 500
"""Characters: for an operator, who reads the beginning of it."""


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - of code of the exception's own, and the outcome is to be stored
        return "(its text cannot be made)"


def _nothing_done(response: Response, attempt: Attempt, call: Call) -> bool:
    """Whether a response says that the effect has not happened."""
    status = response.status
    if status < 400:
        return attempt.said_not_started or (status in _SEND_AGAIN and _differs_by_slash(response, call.claim))
    if attempt.said_not_started or (call.rules.refusals == "release" and status < 500):
        return True
    if status == 503:
        # Only a server that says when to come back says that it did nothing.
        return headers.find(response.headers, b"retry-after") is not None
    return status in NOT_BEGUN


# RFC 9110 sections 15.4.8 and 15.4.9: the same request, method and body included, to another address.
_SEND_AGAIN = frozenset({307, 308})


def _differs_by_slash(response: Response, claim: Claim) -> bool:
    """Whether a redirect leads to the same path with or without its last slash, as routers of frameworks do.

    No handler has run: the client follows with the same key, which must be free for that other path.
    """
    location = headers.find(response.headers, b"location")
    if location is None:
        return False
    from urllib.parse import unquote, urlsplit  # a millisecond that only such a redirect pays

    path = unquote(urlsplit(location.decode("latin-1")).path)
    return path != claim.target and path.rstrip("/") == claim.target.rstrip("/")


def storable_part(response: Response, rules: OutcomeRules) -> Response:
    """What of a response may be stored."""
    return Response(response.status, headers.kept(response.headers, rules.drop_headers), response.body)


def _final(
    response: Response, rules: OutcomeRules, *, omitted: bool = False, storable: Headers | None = None
) -> Final:
    status, fields, body = response
    if storable is None:
        storable = headers.kept(fields, rules.drop_headers)
        omitted = omitted or headers.is_event_stream(fields)
    if omitted or rules.no_store or len(body) > rules.max_response:
        omitted, body = True, b""
    unsettled = 400 if rules.refusals == "release" else 500
    state: Literal["completed", "failed"] = "failed" if status >= unsettled else "completed"
    return make(Final, (state, make(Response, (status, storable, body)), omitted, (), None))
