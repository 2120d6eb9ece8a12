"""What happens next: the only file that decides it.

Here live the flows, which put the decisions of `decisions.py` (`admit`, `judge`, `settle`) in order.  A flow
is a generator: it yields steps (`steps.py`), is sent what came of them, and returns a `Result`.  It performs
nothing itself, so a test can step it without threads, crash it between any two steps, and enumerate every
interleaving of several.  That is the point: the danger in this protocol is not the decisions but their
order, and what happens when a step fails.

What must not live here: sockets, clocks, threads, SQL, header names, and any knowledge of a framework.

    respond ──► once ──► acquire ──► Run ──► conclude ──► store
    operate ──►             │           └──► commit
    receive ──►           judge              settle
    (doors)
       ├──────► within: in the transaction of the call around it
       └──────► accept: store a payload, and later ──► work ──► take_turn ──► once

One flow per door, over the same sub-flows: a door brings a claim (`make_claim`) and how its problems are
described; `once` and everything below it knows no door.

The first rule of this file: between a reservation and its end, every way out, exceptional ones included,
either stores, releases or forgets the claim, or leaves it to lapse because it is not known what happened.
"""

from collections.abc import Callable
from typing import Literal

from retrysafe._core import headers, keys
from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import (
    UNKNOWN,
    admit,
    fail_receipt,
    judge,
    may_forget,
    may_release,
    settle,
    storable_part,
    was_begun,
)
from retrysafe._core.model import (
    Claim,
    Door,
    Found,
    Inbox,
    Parts,
    Record,
    Request,
    Reservation,
    Reserved,
    Response,
    Scope,
    Unsettled,
    make,
)
from retrysafe._core.problems import Problem
from retrysafe._core.steps import (
    IDENTIFY,
    READ_BODY,
    Busy,
    Call,
    CallBack,
    CanTakeOver,
    Checkpoint,
    Commit,
    Delivery,
    Finish,
    Flow,
    Forget,
    Gone,
    Look,
    LookWithin,
    Operation,
    Outcome,
    Pause,
    Persist,
    Reauthorise,
    Receipt,
    Release,
    Replay,
    Reserve,
    Result,
    RollBack,
    Run,
    Spoil,
    StoreWithin,
    TakeOver,
    ToFail,
    TooLarge,
    ToRelease,
    ToStore,
    Wait,
    ask,
)
from retrysafe.errors import CommitRefused, StoreError, StoreReset, StoreUnavailable, UnreadableRecord
from retrysafe.policy import CallbackRules, Policy, Rules

Draining = Callable[[], bool]
"""Whether this process is shutting down."""

_DRAINING = Problem("draining", "This server is shutting down.")


def respond(
    request: Request,
    rules: Rules,
    describe: Callable[[Problem], Response],
    token: bytes,
    request_id: str,
    correlation_id: str | None,
    draining: Draining,
    secret: bytes,
) -> Flow[Result]:
    """The request door: from the head of a request to what its client is sent."""
    key = admit(request, rules)
    if not isinstance(key, str):
        return _refuse(key)
    scope: Scope | None = yield IDENTIFY
    if scope is None:
        return _refuse(_NO_OWNER)
    parts, public = scope
    if public and (problem := _too_short(key, rules)):
        return _refuse(problem)
    # Nothing is reserved before the body is complete.
    try:
        fingerprint: bytes | TooLarge | Gone = yield READ_BODY
    except StoreError as trouble:
        return _unavailable("The request could not be read.", trouble)
    if not isinstance(fingerprint, bytes):
        if isinstance(fingerprint, Gone):
            return Result("gone", None)
        return _refuse(Problem("body-too-large", f"The body is larger than {fingerprint.limit} bytes."))
    policy = rules.policy
    claim = make_claim(
        "request",
        parts,
        key,
        fingerprint,
        policy,
        token,
        request.method,
        request.path,
        request_id,
        correlation_id,
        (),
        rules.identity_secret,
    )
    reauthorises = rules.request.reauthorise is not None
    call = make(Call, (claim, policy, rules.outcome, describe, draining, secret, reauthorises, None))
    return (yield from once(call))


def operate(
    operation: Operation,
    key: object,
    rules: Rules,
    describe: Callable[[Problem], Response],
    token: bytes,
    draining: Draining,
    secret: bytes,
    outer: Attempt | None = None,
) -> Flow[Result]:
    """The operation door: from a function's arguments to what its caller gets.

    `outer` is the guarded call whose transaction it is a part of, if it is.
    """
    checked = keys.check_key(key, longest=rules.wire.longest_key)
    if not isinstance(checked, str):
        code: Literal["key-missing", "key-invalid"] = "key-missing" if key is None else "key-invalid"
        return _refuse(Problem(code, f"The key of this operation is not valid: {checked.reason}."))
    scope = yield from ask(IDENTIFY)
    if scope is None:
        return _refuse(_NO_OWNER)
    parts, public = scope
    if public and (problem := _too_short(checked, rules)):
        return _refuse(problem)
    policy = rules.policy
    claim = make_claim(
        "operation",
        parts,
        checked,
        operation.fingerprint,
        policy,
        token,
        operation.action,
        operation.target,
        operation.request_id,
        operation.correlation_id,
        (),
        rules.identity_secret,
    )
    call = Call(claim, policy, rules.outcome, describe, draining, secret, False)
    return (yield from once(call) if outer is None else within(call, outer))


def receive(
    delivery: Delivery,
    rules: Rules,
    callback: CallbackRules,
    describe: Callable[[Problem], Response],
    token: bytes,
    draining: Draining,
    secret: bytes,
) -> Flow[Result]:
    """The callback door: from a delivery whose payload is valid to what its sender is told."""
    only_stored = callback.inbox
    inbox = None
    if delivery.payload is not None:
        # Under "hold" what was begun is not begun again, unless an operator says so.
        begun_again = rules.policy.abandoned == "retry" or only_stored
        inbox = Inbox(delivery.payload, 0.0 if begun_again else None, never_released=only_stored)
    # What is only stored now is not being handled: a worker may take it at once.
    policy = rules.policy._replace(lease=0.0) if only_stored else rules.policy
    claim = make_claim(
        "callback",
        delivery.scope,
        delivery.id,
        delivery.fingerprint,
        policy,
        token,
        delivery.name,
        delivery.subject,
        delivery.request_id,
        delivery.correlation_id,
        delivery.received,
        rules.identity_secret,
        inbox,
    )
    receipt = Receipt(delivery.handled, callback.retries)
    call = Call(claim, policy, rules.outcome, describe, draining, secret, False, receipt)
    if only_stored:
        return (yield from accept(call))
    result = yield from once(call)
    if result.verdict == "in-flight" and callback.in_progress == "acknowledge":
        reply = result.reply
        if isinstance(reply, Problem) and reply.first is not None:
            return result._replace(reply=reply.first)
    return result


_NO_OWNER = Problem("principal-required", "The owner of this key is not known.")


def _too_short(key: str, rules: Rules) -> Problem | None:
    shortest = rules.wire.shortest_public_key
    if len(key) >= shortest:
        return None
    return Problem("key-invalid", f"A public key needs at least {shortest} characters.")


def make_claim(
    door: Door,
    scope: Parts,
    key: str,
    fingerprint: bytes,
    policy: Policy,
    token: bytes,
    action: str,
    target: str,
    request_id: str,
    correlation_id: str | None = None,
    details: Parts = (),
    secret: keys.Secret | None = None,
    inbox: Inbox | None = None,
) -> Claim:
    """A bid for a key, through whichever door it came."""
    return make(
        Claim,
        (
            keys.digest(door, scope, key, secret),
            token,
            fingerprint,
            policy.lease,
            policy.retention,
            policy.unknown_retention if policy.abandoned == "hold" else 0.0,
            door,
            scope,
            key if policy.keep_key else None,
            action,
            target,
            request_id,
            correlation_id,
            "tx" if policy.effects == "database" else "lease",
            policy.in_flight == "wait",
            details,
            policy.retention_from,
            inbox,
        ),
    )


def once(call: Call, reserved: Reserved | None = None) -> Flow[Result]:
    """Run the handler if this is the first time, and respond as the first time if it is not.

    With `reserved`, the key is ours already.
    """
    held: Reserved | Result | None = reserved
    unconfirmed: Unconfirmed = []
    if held is None:
        try:
            held = yield from acquire(call, unconfirmed)
        except GeneratorExit:
            raise
        except BaseException as trouble:
            if unconfirmed and _must_be_forgotten(call.claim, unconfirmed):
                yield from ask(Forget(call.claim))
            if not isinstance(trouble, StoreError):
                raise
            # A record that cannot be read is not an absent one, and no policy is to run beside it.
            absent = isinstance(trouble, StoreUnavailable)
            if absent and call.policy.store_down == "run" and not call.draining():
                return (yield from _unprotected(call, trouble))
            return _unavailable("The key could not be checked.", trouble)
    if isinstance(held, Result):
        if unconfirmed and _must_be_forgotten(call.claim, unconfirmed):
            yield from ask(Forget(call.claim))
        return held
    claim = call.claim
    attempt = Attempt(claim, held.attempt, call.secret)
    if claim.mode == "tx":
        result = yield from commit(call, attempt)
    else:
        # An exception here is not an outcome of the handler but a cancellation or the end of the process:
        # it is not known how far it came, so the lease is left to lapse.
        outcome: Outcome = yield make(Run, (attempt, call))
        result = yield from conclude(call, attempt, outcome)
    if (attempt.callbacks or attempt.parts) and result.verdict == "completed":
        yield from ask(CallBack(attempt))
    done_with = unconfirmed and (result.verdict == "released" or _rolled_back(call, result))
    if done_with and _must_be_forgotten(call.claim, unconfirmed):
        yield from ask(Forget(call.claim))
    return result


def accept(call: Call) -> Flow[Result]:
    """Store the payload of a delivery, for a worker to handle: from then on its sender may forget it.

    The record is never released, not even where it is not known whether it was stored: another delivery may
    have been acknowledged because of it.
    """
    assert call.receipt is not None
    claim = call.claim
    if call.draining():
        return _refuse(_DRAINING)
    unconfirmed: Unconfirmed = []
    bid: Reserve | TakeOver = Reserve(claim)
    while True:
        try:
            try:
                reservation = yield from ask(bid)
            except StoreUnavailable as trouble:
                reservation = yield from _again(bid, trouble, unconfirmed)
        except StoreError as trouble:
            return _unavailable("The payload could not be stored.", trouble)
        judgement = judge(reservation, claim, call.policy)
        if isinstance(judgement, Reserved):
            return Result("accepted", None, attempt=judgement.attempt)
        assert isinstance(reservation, Found), "what is not ours was found"
        record = reservation.record
        if isinstance(judgement, Replay):
            return _replayed(record)
        received = record.state == "in_progress" and not was_begun(record)
        if isinstance(judgement, Problem) and not (judgement is UNKNOWN and received):
            return _refuse(judgement._replace(first=record))
        if isinstance(judgement, Busy) and record.attempt == 1 and not received:
            # A delivery handles it itself, of a release of the service that is no inbox: should it fail, it
            # is not known whether a worker would have the payload.
            detail = "This event is being handled."
            return _refuse(Problem("in-flight", detail, judgement.retry_after, first=record))
        if received or not isinstance(judgement, CanTakeOver) or bid == TakeOver(claim, *judgement):
            return Result("waiting", record)
        # Only the store knows whether a worker handles it, and takes over what none would: what was tried in
        # vain, or was left by a service that stored no payload.
        bid = TakeOver(claim, *judgement)


def work(
    record: Record,
    details: Parts,
    receipt: Receipt,
    rules: Rules,
    describe: Callable[[Problem], Response],
    token: bytes,
    draining: Draining,
    secret: bytes,
) -> Flow[Result]:
    """A worker's turn at the payload that is stored with this record.  `details`: of it meanwhile."""
    policy = rules.policy
    claim = Claim(
        id=record.id,
        token=token,
        fingerprint=record.fingerprint,
        lease=policy.lease,
        retention=policy.retention,
        hold=policy.unknown_retention if policy.abandoned == "hold" else 0.0,
        door=record.door,
        scope=record.scope,
        key=record.key,
        action=record.action,
        target=record.target,
        request_id=record.request_id,
        correlation_id=record.correlation_id,
        mode="tx" if policy.effects == "database" else "lease",
        announced=False,
        details=details,
        retention_from=policy.retention_from,
        # Due again if this worker dies; unless what was begun is not to be begun again by itself.
        inbox=Inbox(None, 0.0 if policy.abandoned == "retry" else None, never_released=True),
    )
    call = Call(claim, policy, rules.outcome, describe, draining, secret, False, receipt)
    state: Unsettled = "failed" if record.state == "failed" else "in_progress"
    died = state == "in_progress" and was_begun(record)
    return (yield from take_turn(call, CanTakeOver(record.token, state), died=died))


def take_turn(call: Call, previous: CanTakeOver, *, died: bool) -> Flow[Result]:
    """The same of a claim.  `died`: the attempt before ended without an outcome."""
    assert call.receipt is not None
    if call.draining():
        return _refuse(_DRAINING)
    try:
        reservation = yield from ask(TakeOver(call.claim, *previous))
    except StoreError as trouble:
        # If it was taken over after all, its lease ends, and it is due again.
        return _unavailable("The payload could not be claimed.", trouble)
    if isinstance(reservation, Found):
        return Result("in-flight", reservation.record)  # another worker was faster, or its sender
    if reservation.attempt == 1:
        yield from _release(call)  # made anew just now: it had been released, and so is done with
        return Result("gone", None)
    if died and call.receipt.retries.pause(reservation.attempt - 2) is None:
        # Handled as often as it may be, and the last time its worker died of it.  One that failed is due
        # because an operator says so, and one that was only received because its sender does.
        final = fail_receipt(500, None, reservation.attempt, call)
        final = final._replace(details=(("status", "failed"), ("error", "its workers died")), due_in=None)
        return (yield from _fail(call, ToFail(final, final.response), reservation.attempt))
    return (yield from once(call, reservation))


def _rolled_back(call: Call, result: Result) -> bool:
    """Whether nothing was done, although it ran: of a transaction that was not completed, nothing is left."""
    return call.claim.mode == "tx" and result.verdict != "completed"


Unconfirmed = list[Reserve | TakeOver]
"""Bids of one request that were given up.  Each may have been applied, or still be on its way, and would take
the key when its owner releases it, for a request that is over.  So a request with unconfirmed bids forgets
its claim, but in the end and not before, because all its bids have one token."""


def _must_be_forgotten(claim: Claim, unconfirmed: Unconfirmed) -> bool:
    """Whether bids that come late would block the key, or do something.

    A take-over is left to an operator where a payload is stored, even if no worker would handle it: it may
    have taken the place of a failure, whose payload would be gone.
    """
    if claim.inbox is not None and any(isinstance(bid, TakeOver) for bid in unconfirmed):
        return False
    return may_forget(claim)


def acquire(call: Call, unconfirmed: Unconfirmed) -> Flow[Reserved | Result]:
    """Bid for the key until it is ours, or another attempt's response is ours."""
    claim, policy = call.claim, call.policy
    waited, pause = 0.0, 0.01
    while True:
        judgement = yield from _bid(call, unconfirmed)
        match judgement:
            case Reserved():
                if not call.draining():
                    return judgement
                if may_release(claim, judgement.attempt):
                    yield from _release(call)
                return _refuse(_DRAINING)
            case Replay():
                record = judgement.record
                return (yield from _replay(call, record)) if call.reauthorises else _replayed(record)
            case Busy(retry_after, first):
                # Poll: fast at first, since most handlers are, then gently.
                left = policy.wait_for - waited if policy.in_flight == "wait" else 0.0
                wait = Wait(claim.id, min(pause, left), claim.door != "operation")
                went_by = (yield from ask(wait)) if left > 0 else None
                if went_by is None:
                    detail = "The first request with this key is still being processed."
                    return _refuse(Problem("in-flight", detail, retry_after, first=first))
                waited, pause = waited + went_by, min(pause * 2, 0.25)
            case problem:
                return _refuse(problem)


def _bid(call: Call, unconfirmed: Unconfirmed) -> Flow[Reserved | Replay | Busy | Problem]:
    """One bid, and the take-over that may follow from it.  A server that drains looks, and does not bid."""
    claim, policy = call.claim, call.policy
    if call.draining():
        found = yield from ask(Look(claim))
        judgement = judge(found, claim, policy) if found else _DRAINING
        return _DRAINING if isinstance(judgement, CanTakeOver) else _about(judgement, found)
    bid: Reserve | TakeOver = make(Reserve, (claim,))
    while True:
        try:
            reservation: Reservation = yield bid
        except GeneratorExit:
            raise
        except BaseException as trouble:  # noqa: BLE001 - raised again, unless it is the store's
            reservation = yield from _again(bid, trouble, unconfirmed)
        judgement = judge(reservation, claim, policy)
        if not isinstance(judgement, CanTakeOver):
            return _about(judgement, reservation)
        # Conditional on the token and state that we saw.  Another request that came to the same conclusion
        # loses and looks again; and an owner that woke up and failed meanwhile has had the last word.
        bid = TakeOver(claim, *judgement)


def _about(
    judgement: Reserved | Replay | Busy | Problem, found: Reservation | None
) -> Reserved | Replay | Busy | Problem:
    """A refusal with the record that it is about: some wires name the request that made it."""
    if isinstance(judgement, Busy | Problem) and isinstance(found, Found):
        return judgement._replace(first=found.record)
    return judgement


def _again(bid: Reserve | TakeOver, trouble: BaseException, unconfirmed: Unconfirmed) -> Flow[Reservation]:
    """Repeat a bid whose acknowledgement did not come: the token makes that harmless."""
    unconfirmed.append(bid)
    if not isinstance(trouble, StoreUnavailable):
        raise trouble
    yield from ask(Pause(0.05))
    return (yield from ask(bid))


def _replay(call: Call, record: Record) -> Flow[Result]:
    if call.reauthorises and not (yield Reauthorise()):
        return _refuse(Problem("replay-forbidden", "You may no longer see the response to this request."))
    return _replayed(record)


def _replayed(record: Record) -> Result:
    response = record.response
    # The first request's id becomes a header too.
    if response is None or not headers.are_fit(response.headers, record.request_id.encode(errors="replace")):
        damage = UnreadableRecord("the stored response is missing, or has headers that must not be sent")
        return _unavailable("The stored response cannot be read.", damage)
    return make(Result, ("replayed", record, True, None, record.attempt, None, False))


def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
    """Settle what happened, make it durable, and only then respond."""
    settlement = settle(outcome, attempt, call)
    if isinstance(settlement, ToRelease):
        yield from _release(call)
        return Result("released", settlement.reply, attempt=attempt.number)
    if isinstance(settlement, ToFail):
        return (yield from _fail(call, settlement, attempt.number))
    final, reply, error = settlement
    if reply is None and not attempt.checkpointed:
        # Taken over before a byte of it had left.  Nothing is to be stored: a bid of ours that came late may
        # have made the record anew, and then the client would be sent nothing at all.
        return (yield from _taken_over(call, error))
    stored = yield from store(call, make(Finish, (call.claim, final)))
    # A response that is on its way as one that will be stored, and is not, is never brought to its end: a
    # client that saw the end would take the effect for settled, and its retry would be refused.
    cut_off = stored is not True and attempt.promised
    if isinstance(stored, StoreError):
        # The client gets the truth, marked as not stored; the record is left to lapse, never released.
        return Result("unstored", reply, False, error, attempt.number, stored, cut_off)
    if stored or attempt.checkpointed:
        return make(Result, (final.state, reply, stored, error, attempt.number, None, cut_off))
    return (yield from _taken_over(call, error))


def commit(call: Call, attempt: Attempt) -> Flow[Result]:
    """Run the handler in a transaction, and commit what it wrote together with its response.

    Whatever goes wrong before that has undone everything, so the key is free again.
    """
    try:
        outcome: Outcome = yield Run(attempt, call)
        settlement = settle(outcome, attempt, call)
    except GeneratorExit:
        raise
    except BaseException:
        # A cancellation or the end of the process; but whatever the handler did is not committed.
        yield from ask(RollBack(attempt, cut_off=True))
        if call.claim.inbox is None:
            yield from ask(Forget(call.claim))
        raise  # a stored payload is due as soon as the lease has ended
    if isinstance(settlement, ToRelease | ToFail):
        yield from ask(RollBack(attempt))
        if isinstance(settlement, ToFail):
            return (yield from _fail(call, settlement, attempt.number))
        yield from _release(call)
        return Result("released", settlement.reply, error=settlement.error, attempt=attempt.number)
    try:
        committed = yield from ask(Commit(attempt, call.claim, settlement.final))
    except CommitRefused as refusal:
        return (yield from _undo(call, refusal, attempt.number))
    except StoreError as trouble:
        return (yield from _find_out(call, settlement, attempt, trouble))
    if committed:
        return Result(settlement.final.state, settlement.reply, attempt=attempt.number)
    return (yield from _taken_over(call, None))


def within(call: Call, outer: Attempt) -> Flow[Result]:
    """Run an operation in the transaction of the guarded call around it, and store its record there.

    Both are committed or rolled back together, so nothing has to be reserved: of two calls with one key that
    run at the same time, the second finds the record of the first when it stores its own, and is undone.
    What fails cannot be undone alone: then nothing of the call around it is committed.
    """
    attempt = Attempt(call.claim, 1, call.secret, leased=False)
    attempt.transaction = outer.transaction
    previous: CanTakeOver | None = None
    try:
        found = yield from ask(LookWithin(attempt))
    except StoreError as trouble:
        return _unavailable("The key could not be checked.", trouble)
    if found is not None:
        judgement = judge(found, call.claim, call.policy)
        match judgement if isinstance(judgement, CanTakeOver) else _about(judgement, found):
            case CanTakeOver() as previous:
                attempt.number = found.record.attempt + 1
            case Replay(record):
                return _replayed(record)
            case Busy(retry_after, first):
                # It is not waited for: the transaction around it may hold what the other one needs.
                detail = "The first request with this key is still being processed."
                return _refuse(Problem("in-flight", detail, retry_after, first=first))
            case Problem() as problem:
                return _refuse(problem)
            case Reserved():
                raise AssertionError("tokens are drawn once")
    name = call.claim.action
    try:
        outcome: Outcome = yield Run(attempt, call)
        settlement = settle(outcome, attempt, call)
    except GeneratorExit:
        raise
    except BaseException:
        yield from ask(Spoil(attempt, f"the operation {name}, a part of it, was cut off"))
        raise
    if isinstance(settlement, ToRelease):
        yield from ask(Spoil(attempt, f"the operation {name}, a part of it, failed"))
        return Result("released", settlement.reply, error=settlement.error, attempt=attempt.number)
    try:
        stored = yield from ask(StoreWithin(attempt, settlement.final, previous))
    except GeneratorExit:
        raise
    except BaseException as trouble:
        yield from ask(Spoil(attempt, f"the operation {name}, a part of it, could not be stored", True))
        if not isinstance(trouble, StoreError):
            raise
        return _unavailable("The outcome could not be stored, and everything is undone.", trouble)
    if not stored:
        reason = f"the operation {name}, a part of it, was done by another call at the same time"
        yield from ask(Spoil(attempt, reason, True))
        return _refused(call, CommitRefused(reason, passing=True), attempt.number)
    return Result(settlement.final.state, settlement.reply, attempt=attempt.number)


def _refused(call: Call, refusal: CommitRefused, attempt: int) -> Result:
    if refusal.passing:
        problem = Problem("not-done", "Another request was in the way; everything was undone.")
    else:
        problem = Problem(
            "handler-failed", "The request could not be committed, and was undone.", undone=True
        )
    return Result("released", call.describe(problem), error=refusal, attempt=attempt)


def _undo(call: Call, refusal: CommitRefused, attempt: int) -> Flow[Result]:
    """Everything was rolled back, and the record is still ours."""
    refused = _refused(call, refusal, attempt)
    if call.receipt is not None and isinstance(refused.reply, Response):
        final = fail_receipt(refused.reply.status, refusal, attempt, call)
        return (yield from _fail(call, ToFail(final, refused.reply, refusal), attempt))
    yield from _release(call)
    return refused


def _find_out(call: Call, settled: ToStore, attempt: Attempt, trouble: StoreError) -> Flow[Result]:
    """A commit was asked for, and its result was lost.  The record, which was part of it, knows.

    A fenced release waits for the transaction that still holds the row.  Either it removes a record that
    was not completed, and then nothing was committed and nothing will be; or the record is completed.
    """
    try:
        yield from ask(RollBack(attempt))
        if call.claim.inbox is not None:
            yield from ask(Finish(call.claim, fail_receipt(503, trouble, attempt.number, call)))
        else:
            yield from ask(Release(call.claim))
        found = yield from ask(Look(call.claim))
    except StoreError:
        if call.claim.inbox is None:
            yield from ask(Forget(call.claim))
        return _unavailable("It is not known whether the request was committed.", trouble)
    record = found and found.record
    if record is not None and record.token == call.claim.token and record.state == settled.final.state:
        return Result(settled.final.state, settled.reply, attempt=attempt.number)
    return _unavailable("The request could not be committed.", trouble)


def _release(call: Call) -> Flow[None]:
    try:
        yield from ask(Release(call.claim))
    except GeneratorExit:
        raise
    except BaseException as trouble:
        yield from ask(Forget(call.claim))
        if not isinstance(trouble, StoreError):
            raise


def _fail(call: Call, failed: ToFail, attempt: int) -> Flow[Result]:
    """Note that an attempt failed of which nothing is left.  Fenced, or not stored: another one follows."""
    stored = yield from store(call, Finish(call.claim, failed.final))
    trouble = stored if isinstance(stored, StoreError) else None
    return Result("failed", failed.reply, error=failed.error, attempt=attempt, trouble=trouble)


def store(call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
    """Write, trying for as long as the lease lasts.  False: fenced.  An error: the store never took it."""
    pause = 0.05
    while True:
        try:
            stored: bool = yield write
            return stored
        except StoreError as trouble:
            if not (yield from ask(Persist(call.claim, pause))):
                return trouble
        pause = min(pause * 2, 1.0)


def let_flow(call: Call, attempt: Attempt, head: Response) -> Flow[Result | None]:
    """A response is too large to hold: how its bytes may leave.  `None`: not at all, we were taken over."""
    if not attempt.leased:
        attempt.checkpointed = True
        return Result("unprotected", head, stored=False, attempt=attempt.number)
    claim = call.claim._replace(hold=call.policy.unknown_retention)  # from now on, it is never run again
    stored = yield from store(call, Checkpoint(claim, storable_part(head, call.rules)))
    if stored is False:
        return None
    attempt.checkpointed = True
    attempt.promised = stored is True
    return Result("completed", head, stored=stored is True, attempt=attempt.number)


def _taken_over(call: Call, error: Exception | None) -> Flow[Result]:
    """Another attempt holds the key: its outcome counts, never ours."""
    try:
        found: Found | None = yield from ask(Look(call.claim))
    except StoreError as trouble:
        return _unavailable("The outcome could not be read.", trouble)._replace(error=error)
    if call.claim.mode == "tx" and (found is None or found.record.token == call.claim.token):
        return (yield from _not_ours(call, found))
    match judge(found, call.claim, call.policy) if found else UNKNOWN:
        case Replay(record):
            return (yield from _replay(call, record))._replace(error=error)
        case Busy(retry_after):
            problem = Problem("in-flight", "Another attempt is processing this request.", retry_after)
        case Problem() as refusal:
            problem = refusal
        case CanTakeOver() if call.claim.mode == "tx":
            problem = Problem("in-flight", "Another attempt was processing this request.")
        case _:
            problem = UNKNOWN
    return Result(problem.code, problem, error=error)


def _not_ours(call: Call, found: Found | None) -> Flow[Result]:
    """A transaction was rolled back because it did not find its record, and no other attempt has it."""
    if found is None:
        reason = "the record was gone: another attempt had it and released it, or it had expired"
        return _refused(call, CommitRefused(f"{reason}. Everything was rolled back", passing=True), 1)
    reason = "the transaction did not find the record, which is there: it ran in another database"
    refusal = CommitRefused(f"{reason}. Everything was rolled back", passing=False)
    return (yield from _undo(call, refusal, found.record.attempt))


def _unprotected(call: Call, trouble: StoreError) -> Flow[Result]:
    """The store is down and the policy is to run all the same: marked, and nothing is stored."""
    attempt = Attempt(call.claim, 1, call.secret, leased=False)
    outcome = yield from ask(Run(attempt, call))
    # There is no transaction to roll back either: sessions that would have joined one are ordinary.
    settlement = settle(outcome, attempt, call._replace(claim=call.claim._replace(mode="lease")))
    error = settlement.error if isinstance(settlement, ToStore) else None
    return Result("unprotected", settlement.reply, False, error, 1, trouble)


def _refuse(problem: Problem) -> Result:
    return Result(problem.code, problem)


def _unavailable(detail: str, trouble: StoreError) -> Result:
    problem = Problem("store-reset" if isinstance(trouble, StoreReset) else "store-unavailable", detail)
    return Result(problem.code, problem, trouble=trouble)
