"""Callbacks: an event that is acknowledged too early, handled too often, taken for another one, or lost."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from retrysafe._core import decisions, keys, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.fingerprint import VERSION
from retrysafe._core.model import (
    Claim,
    Door,
    Final,
    Found,
    Inbox,
    Parts,
    Record,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)
from retrysafe._core.problems import Problem
from retrysafe._core.steps import (
    Call,
    CanTakeOver,
    Commit,
    Finish,
    Flow,
    Judgement,
    Replay,
    Result,
    Step,
    TakeOver,
    ToFail,
    ToRelease,
    ToStore,
    ask,
)
from retrysafe.callbacks import Receipts
from retrysafe.callbacks.http import exchange
from retrysafe.policy import DAY, Policy
from retrysafe.testing.simulate.callbacks.setting import CallbackSetting
from retrysafe.testing.simulate.model import ModelStore
from tools.planted.bug import REASONED, LeftToTests, Plant, Planted, patching, performed
from tools.planted.claims import Overwrites
from tools.planted.decisions import Judge, judging
from tools.planted.leases import LeasesForever, RenewsUnfenced
from tools.planted.stores import FinishesUnfenced, TakesOverTheLiving

LEASED = CallbackSetting("callbacks, lease")
COMMITTED = CallbackSetting("callbacks, tx", effects="database")
HELD = CallbackSetting("payload, hold", effects="outside", kept="payload")
STORED = CallbackSetting("payload, lease, senders give up", kept="payload", patient=False)
RAISING = CallbackSetting(
    "payload, lease, at first it raises", kept="payload", handler="raises", patient=False
)
KILLING = CallbackSetting(
    "payload, lease, it kills its process", kept="payload", handler="kills", patient=False
)
INBOX = CallbackSetting("inbox, lease, senders give up", kept="inbox", patient=False)
DECLINING = CallbackSetting(
    "inbox, lease, nothing was done at first", kept="inbox", handler="declines", patient=False
)

Accept = Callable[[Call], Flow[Result]]
Work = Callable[..., Flow[Result]]
Render = Callable[..., Response | None]


# --- acknowledged too early


def _acknowledges_what_is_reserved(real: Judge) -> Judge:
    def judge(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
        found = real(reservation, claim, policy)
        if not isinstance(reservation, Found) or isinstance(found, Problem | Reserved | Replay):
            return found
        # It is a receipt from the beginning.
        return Replay(reservation.record._replace(state="completed", response=Response(200)))

    return judge


def _accepts_before_it_is_stored(real: Accept) -> Accept:
    def accept(call: Call) -> Flow[Result]:
        result = yield from real(call)
        if isinstance(result.reply, Problem) and result.reply.code == "store-unavailable":
            return Result("accepted", None)
        return result

    return accept


class PayloadStoredLater(ModelStore):
    """Has the record at once, and its payload never, because the process ends before it is written."""

    def reserve(self, claim: Claim) -> Reservation:
        inbox = claim.inbox
        return super().reserve(
            claim if inbox is None else claim._replace(inbox=Inbox(None, None, inbox.never_released))
        )


def _acknowledges_what_is_not_stored(real: Render) -> Render:
    def response_to(result: Result, *rest: Any) -> Response | None:
        stored = result._replace(verdict="completed") if result.verdict == "unstored" else result
        return real(stored, *rest)

    return response_to


def _expires_with_keys_of_requests(real: Callable[..., Claim]) -> object:
    def make_claim(*rest: Any) -> Claim:
        return real(*rest)._replace(retention=DAY)

    return make_claim


def _refuses_duplicates(real: Render) -> Render:
    def response_to(result: Result, *rest: Any) -> Response | None:
        if isinstance(result.reply, Record) and result.verdict == "replayed":
            return Response(409)
        return real(result, *rest)

    return response_to


class ForgetsWhatWasHandled(ModelStore):
    """Keeps a receipt for as long as its event is being handled."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None and row.state == "completed":
            del self._rows[claim.id]
        return super().reserve(claim)


class RefusesOutcomes(ModelStore):
    """Says to every attempt that it has lost its lease."""

    def finish(self, claim: Claim, final: Final) -> bool:
        return False


# --- handled beside its receipt


def _commits_apart(real: Callable[[Call, Attempt], Flow[Result]]) -> object:
    def commit(call: Call, attempt: Attempt) -> Flow[Result]:
        return performed(real(call, attempt), _finishing)

    def _finishing(step: Step) -> Flow[object]:
        if isinstance(step, Commit):
            return (yield from ask(Finish(step.claim, step.final)))
        return (yield step)

    return commit


# --- taken for another one


def _matches_any_payload(real: Judge) -> Judge:
    def judge(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
        if isinstance(reservation, Found) and claim.door == "callback":
            return real(reservation, claim._replace(fingerprint=reservation.record.fingerprint), policy)
        return real(reservation, claim, policy)

    return judge


_NOTHING = VERSION + sha256(b"").digest()


def _compares_nothing(_real: object) -> object:
    def fingerprint(*_: object) -> bytes:
        return _NOTHING

    return fingerprint


def _ignores_named_parts(real: Callable[..., bytes]) -> object:
    def fingerprint(receipts: Receipts[Any], event: object, payload: object) -> bytes:
        compare = receipts._compare  # pyright: ignore[reportPrivateUsage]
        named = isinstance(compare, tuple | list)
        return _NOTHING if named else real(receipts, event, payload)

    return fingerprint


def _without_source(real: Callable[..., bytes]) -> object:
    def digest(door: Door, scope: Parts, *rest: Any) -> bytes:
        return real(door, () if door == "callback" else scope, *rest)

    return digest


# --- lost, or never left alone


def _releases_what_failed(real: Callable[..., ToStore | ToRelease | ToFail]) -> object:
    def settle(*arguments: Any) -> ToStore | ToRelease | ToFail:
        found = real(*arguments)
        if isinstance(found, ToStore) and found.final.state == "failed" and found.reply is not None:
            return ToRelease(found.reply)
        return found

    return settle


def _never_again_after_a_failure(real: Judge) -> Judge:
    def judge(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
        if isinstance(reservation, Found) and reservation.record.state == "failed":
            return Problem("previously-failed", "It failed before.")
        return real(reservation, claim, policy)

    return judge


def _stores_no_payload(_real: object) -> object:
    def inbox(*_: object, never_released: bool) -> None:
        return None

    return inbox


def _leaves_what_died(real: Work) -> Work:
    def take_turn(call: Call, previous: CanTakeOver, *, died: bool) -> Flow[Result]:
        if died:
            return Result("in-flight", None)
        return (yield from real(call, previous, died=died))

    return take_turn


def _works_for_ever(real: Work) -> Work:
    def take_turn(call: Call, previous: CanTakeOver, *, died: bool) -> Flow[Result]:
        return real(call, previous, died=False)

    return take_turn


def _works_without_claim(real: Work) -> Work:
    def perform(step: Step) -> Flow[object]:
        return Reserved(2) if isinstance(step, TakeOver) else (yield step)

    def take_turn(call: Call, previous: CanTakeOver, *, died: bool) -> Flow[Result]:
        return performed(real(call, previous, died=died), perform)

    return take_turn


def _is_always_released(_real: object) -> object:
    def may_release(_claim: Claim, _attempt: int) -> bool:
        return True

    return may_release


def _is_not_due_again(real: Callable[..., Final]) -> object:
    def fail(*arguments: Any, **named: Any) -> Final:
        return real(*arguments, **named)._replace(due_in=None)

    return fail


def _completes(_real: object) -> object:
    def fail(*_rest: object, **_named: object) -> Final:
        return Final("completed", Response(200))

    return fail


class TakenForGood(ModelStore):
    """Forgets when a payload is due as soon as it is taken, as a queue that removes what it gives out."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        inbox = claim.inbox
        taken = claim if inbox is None else claim._replace(inbox=inbox._replace(due_in=None))
        return super().take_over(taken, previous, state)


def _is_always_due(real: Callable[..., Inbox]) -> object:
    def inbox(payload: bytes | None, due_in: float | None, *, never_released: bool) -> Inbox:
        # What a delivery brings, and not what a worker claims.
        return real(payload, due_in if payload is None else 0.0, never_released)

    return inbox


def _of_protocol(name: str, make: Callable[[Any], object]) -> Plant:
    return patching(protocol, name, make)


PLANTED: tuple[Planted, ...] = (
    Planted(
        "an event is acknowledged when its receipt is reserved",
        "job-callbacks, whose receipt is made before its event is handled; first-tree#317",
        LEASED,
        judging(_acknowledges_what_is_reserved),
    ),
    Planted(
        "an event is given to every delivery, whatever is there",
        REASONED,
        LEASED._replace(store=Overwrites),
    ),
    Planted(
        "an event is given to a delivery while another one handles it",
        REASONED,
        LEASED._replace(store=TakesOverTheLiving),
    ),
    Planted(
        "a receipt is completed by an attempt that lost its lease",
        REASONED,
        LEASED._replace(store=FinishesUnfenced),
    ),
    Planted(
        "a worker that lost its lease renews that of its successor",
        REASONED,
        STORED._replace(store=RenewsUnfenced),
    ),
    Planted(
        "an event whose handler raised is stored as handled",
        REASONED,
        RAISING._replace(kept="inline"),
        patching(decisions, "fail_receipt", _completes),
    ),
    Planted(
        "a receipt is deleted when its event was handled",
        REASONED,
        LEASED._replace(store=ForgetsWhatWasHandled),
    ),
    Planted(
        "receipts last no longer than keys of requests",
        REASONED,
        LEASED,
        _of_protocol("make_claim", _expires_with_keys_of_requests),
    ),
    Planted(
        "a duplicate is refused as a conflict",
        REASONED,
        LEASED,
        patching(exchange, "response_to", _refuses_duplicates),
    ),
    Planted(
        "an attempt is told that it has lost its lease, and has not",
        REASONED,
        LEASED._replace(store=RefusesOutcomes),
    ),
    Planted(
        "the lease of a delivery is as long as its retention",
        "pathosDev/actor-ts#984: a crash wedges the key for 24 hours",
        LEASED._replace(store=LeasesForever),
    ),
    Planted(
        "a failed event is handled with another payload",
        REASONED,
        RAISING._replace(kept="inline"),
        judging(_matches_any_payload),
    ),
    Planted(
        "an event that failed is released, whatever was done",
        REASONED,
        RAISING._replace(kept="inline"),
        patching(decisions, "_settle_receipt", _releases_what_failed),
    ),
    Planted(
        "an event that failed is never handled again",
        REASONED,
        RAISING._replace(kept="inline", patient=True),
        judging(_never_again_after_a_failure),
    ),
    Planted(
        "a delivery does not store its payload",
        REASONED,
        RAISING,
        _of_protocol("Inbox", _stores_no_payload),
    ),
    Planted(
        "a payload that killed its worker is taken by no other",
        REASONED,
        KILLING._replace(store=TakenForGood),
    ),
    Planted(
        "an inbox acknowledges what could not be stored",
        REASONED,
        INBOX,
        _of_protocol("accept", _accepts_before_it_is_stored),
    ),
    Planted(
        "an inbox acknowledges a record whose payload is not there yet",
        REASONED,
        INBOX._replace(store=PayloadStoredLater),
    ),
    Planted(
        "an event is acknowledged although it could not be stored that it was handled",
        REASONED,
        LEASED,
        patching(exchange, "response_to", _acknowledges_what_is_not_stored),
    ),
    Planted(
        "tx: the receipt is completed outside of the transaction",
        "job-callbacks: the callback receipts are saved apart from what is stored of the event",
        COMMITTED,
        _of_protocol("commit", _commits_apart),
    ),
    Planted(
        "another payload is accepted as a duplicate",
        REASONED,
        LEASED,
        judging(_matches_any_payload),
    ),
    Planted(
        "nothing of an event is compared",
        REASONED,
        LEASED,
        patching(Receipts, "_fingerprint", _compares_nothing),
    ),
    Planted(
        "a worker leaves what another one died of",
        "job-callbacks: a claim is lost with its worker",
        STORED,
        _of_protocol("take_turn", _leaves_what_died),
    ),
    Planted(
        "a payload that kills its workers is handled for ever",
        REASONED,
        KILLING,
        _of_protocol("take_turn", _works_for_ever),
    ),
    Planted(
        "a worker handles what it has not taken over",
        REASONED,
        STORED,
        _of_protocol("take_turn", _works_without_claim),
    ),
    Planted(
        "an acknowledged payload is released by a handler that did nothing",
        REASONED,
        DECLINING,
        patching(decisions, "may_release", _is_always_released),
    ),
    Planted(
        "what failed is not due again",
        REASONED,
        RAISING,
        patching(decisions, "fail_receipt", _is_not_due_again),
    ),
    Planted(
        "a payload is removed from what is due when a worker takes it",
        REASONED,
        INBOX._replace(store=TakenForGood),
    ),
    Planted(
        "hold: what a delivery began is due for a worker",
        REASONED,
        HELD,
        _of_protocol("Inbox", _is_always_due),
    ),
)

TESTED: tuple[LeftToTests, ...] = (
    LeftToTests(
        "events of two sources with the same id are one",
        "job-callbacks, whose receipts have the id as their key",
        "tests/callbacks/test_handling.py::test_two_sources_do_not_hide_each_other",
        patching(keys, "digest", _without_source),
    ),
    LeftToTests(
        "the parts of an event that are to be the same are not compared",
        REASONED,
        "tests/callbacks/test_handling.py::test_what_is_compared",
        patching(Receipts, "_fingerprint", _ignores_named_parts),
    ),
)
