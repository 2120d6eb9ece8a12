"""Flows that claim what is not theirs, run without a claim, or show a principal what it may not see."""

from collections.abc import Callable

from retrysafe._core import protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import judge
from retrysafe._core.model import Claim, Found, Parts, Reservation, Reserved, Response
from retrysafe._core.steps import (
    Call,
    CanTakeOver,
    Flow,
    Forget,
    Look,
    Reauthorise,
    Release,
    Reserve,
    Responded,
    Result,
    Run,
    Step,
    TakeOver,
    ask,
)
from retrysafe.errors import StoreUnavailable
from retrysafe.testing.simulate import stage
from retrysafe.testing.simulate.model import ModelStore
from tools.planted.bug import (
    HOLD,
    REASONED,
    RETRY,
    Once,
    Perform,
    Planted,
    doing,
    patching,
    performed,
)

Acquire = Callable[[Call, protocol.Unconfirmed], Flow[Reserved | Result]]


class Overwrites(ModelStore):
    """Puts a new record in the place of whatever is there."""

    def reserve(self, claim: Claim) -> Reservation:
        self._rows.pop(claim.id, None)
        return super().reserve(claim)


def _looks_then_locks(_real: object) -> Callable[[Call, object], Flow[object]]:
    def bid(call: Call, _doubts: object) -> Flow[object]:
        found = yield from ask(Look(call.claim))
        judgement = judge(found, call.claim, call.policy) if found else None
        if judgement is None or isinstance(judgement, CanTakeOver):
            return (yield from ask(Reserve(call.claim)))
        return judgement

    return bid


def _runs_first(real: Once) -> Once:
    def once(call: Call) -> Flow[Result]:
        attempt = Attempt(call.claim, 1, call.secret, leased=False)
        outcome = yield from ask(Run(attempt, call))

        def perform(step: Step) -> Flow[object]:
            return outcome if isinstance(step, Run) else (yield step)

        return (yield from performed(real(call), perform))

    return once


def _opens(real: Once) -> Once:
    return lambda call: real(call._replace(policy=call.policy._replace(store_down="run")))


def _claims_anyway(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        try:
            return (yield step)
        except StoreUnavailable:
            if isinstance(step, Reserve | TakeOver):
                return Reserved(1)
            raise

    return perform


def _leaves_lost_bids(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return None if isinstance(step, Forget) else (yield step)

    return perform


def _forgets_silence_only(_call: Call) -> Perform:
    silent = False

    def perform(step: Step) -> Flow[object]:
        nonlocal silent
        if isinstance(step, Forget) and not silent:
            return None
        silent = True
        reply: object = yield step
        silent = False
        return reply

    return perform


def _releases_what_it_found(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        reply: object = yield step
        if isinstance(step, Reserve) and isinstance(reply, Found):
            yield from ask(Release(step.claim._replace(token=reply.record.token)))
        return reply

    return perform


def _runs_when_tired_of_waiting(real: Acquire) -> Acquire:
    def acquire(call: Call, unconfirmed: protocol.Unconfirmed) -> Flow[Reserved | Result]:
        held = yield from real(call, unconfirmed)
        return Reserved(1) if isinstance(held, Result) and held.verdict == "in-flight" else held

    return acquire


def _draws_one_token(_real: object) -> Callable[[int], bytes]:
    return lambda _number: b"this process"


def _bids_while_draining(real: Once) -> Once:
    return lambda call: real(call._replace(draining=lambda: False))


def _keeps_undrained(call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return None if isinstance(step, Release) and call.draining() else (yield step)

    return perform


def _runs_it_twice(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        if isinstance(step, Run):
            yield step
        return (yield step)

    return perform


def _makes_answers_up(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return Responded(Response(204)) if isinstance(step, Run) else (yield step)

    return perform


def _drains_from_the_start(real: Once) -> Once:
    return lambda call: real(call._replace(draining=lambda: True))


def _trusts_nobody(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return False if isinstance(step, Reauthorise) else (yield step)

    return perform


def _asks_nobody(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return True if isinstance(step, Reauthorise) else (yield step)

    return perform


def _remembers_permissions(real: Once) -> Once:
    allowed: set[Parts] = set()

    def once(call: Call) -> Flow[Result]:
        def perform(step: Step) -> Flow[object]:
            if not isinstance(step, Reauthorise):
                return (yield step)
            if call.claim.scope not in allowed and (yield from ask(step)):
                allowed.add(call.claim.scope)
            return call.claim.scope in allowed

        return performed(real(call), perform)

    return once


PLANTED = (
    Planted(
        "the claim looks, and then locks",
        "fastidempotent 0.1.0 and idemptx 0.2.2 look, then lock, without looking again",
        HOLD._replace(store=Overwrites),
        patching(protocol, "_bid", _looks_then_locks),
    ),
    Planted(
        "the handler runs before the claim",
        "drf-idem, drf-idempotency and drf-idempotencykey run the handler before the duplicate check",
        HOLD,
        patching(protocol, "once", _runs_first),
    ),
    Planted(
        "a store that is down lets all requests through",
        "Dev1822/paySphere#1919: the middleware logs the error and goes on",
        HOLD,
        patching(protocol, "once", _opens),
    ),
    Planted(
        "a claim that was not confirmed counts as one",
        "granit-fx/granit-dotnet#1151, VULN-301: a race went on without a lock",
        HOLD,
        doing(_claims_anyway),
    ),
    Planted(
        "a claim that was not confirmed is never forgotten",
        "fastapi-idempotency-key 0.1.1: a cancellation blocks its key for 24 hours",
        HOLD,
        doing(_leaves_lost_bids),
    ),
    Planted(
        "a bid that was given up is forgotten only if the next one is, too",
        "our own history: it arrived late, and took the key for a request that had received 422",
        HOLD._replace(handler="declines"),
        doing(_forgets_silence_only),
    ),
    Planted(
        "a refused duplicate releases what it found",
        "aws-powertools/powertools-lambda-typescript#5675: a rejected duplicate deletes the running record",
        HOLD,
        doing(_releases_what_it_found),
    ),
    Planted(
        "a request that has waited for long enough runs",
        REASONED,
        HOLD._replace(in_flight="wait"),
        patching(protocol, "acquire", _runs_when_tired_of_waiting),
    ),
    Planted(
        "every attempt at a key has the same token",
        "sliceworkz/eventstore#176: a worker that took its own expired lease again had the same token",
        RETRY,
        patching(stage, "draw", _draws_one_token),
    ),
    Planted(
        "a server that drains still bids",
        REASONED,
        HOLD,
        patching(protocol, "once", _bids_while_draining),
    ),
    Planted(
        "a server that drains holds the key of what it will not run",
        "validation-api, erp and agents: a worker that has ended leaves 409 for a day",
        HOLD,
        doing(_keeps_undrained),
    ),
    Planted(
        "a replay is not reauthorised",
        "pathosDev/actor-ts#980: a hit returns before the handler's own authorisation",
        HOLD._replace(reauthorise=True),
        doing(_asks_nobody),
    ),
    Planted(
        "a principal that was allowed once is allowed for ever",
        "zulip/zulip#36213: the retry gets the old response, whatever permissions have changed since",
        HOLD._replace(reauthorise=True),
        patching(protocol, "once", _remembers_permissions),
    ),
    Planted(
        "a handler is called twice",
        REASONED,
        HOLD,
        doing(_runs_it_twice),
    ),
    Planted(
        "a response is stored that no handler made",
        REASONED,
        HOLD,
        doing(_makes_answers_up),
    ),
    Planted(
        "a server is shutting down from the start",
        REASONED,
        HOLD,
        patching(protocol, "once", _drains_from_the_start),
    ),
    Planted(
        "no principal may see a stored response",
        REASONED,
        HOLD._replace(reauthorise=True),
        doing(_trusts_nobody),
    ),
)
