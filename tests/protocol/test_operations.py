"""The flows of the operation door, step by step: on its own, and in the transaction of the call around it."""

import asyncio

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Final, Record, Response, Scope
from retrysafe._core.problems import Problem
from retrysafe._core.protocol import operate
from retrysafe._core.steps import (
    CanTakeOver,
    Identify,
    LookWithin,
    Operation,
    Raised,
    Reserve,
    Responded,
    Result,
    Run,
    Spoil,
    StoreWithin,
)
from retrysafe.errors import NotDone
from retrysafe.policy import Options, Rules, Wire, compile_rules
from retrysafe.scopes import service
from tests.protocol.values import (
    ABANDONED,
    CLAIM,
    COMPLETED,
    DOWN,
    RUNNING,
    Stepper,
    a_record,
    describe,
    found,
)

OPERATION = Operation("ship", "o-1", CLAIM.fingerprint, "request-1", None)
OUTER = Attempt(CLAIM._replace(mode="tx"), 1)
VALUE = Response(200, ((b"content-type", b"application/json"),), b"1")


def rules(**options: object) -> Rules:
    said: Options = {"scope": service("billing"), "effects": "database", **options}  # type: ignore[typeddict-item]
    return compile_rules(said, Wire())


def flow(key: object = "k", outer: Attempt | None = OUTER, **options: object) -> Stepper[Result]:
    return Stepper(
        operate(OPERATION, key, rules(**options), describe, b"ours", lambda: False, b"secret", outer)
    )


def looking() -> Stepper[Result]:
    stepper = flow()
    stepper.expect(Identify)
    stepper.give(Scope((("service", "billing"),)))
    step = stepper.expect(LookWithin)
    assert step.attempt.transaction is OUTER.transaction
    assert not step.attempt.leased, "nothing is reserved that a lease would have to be held for"
    return stepper


def running() -> Stepper[Result]:
    stepper = looking()
    stepper.give(None)
    stepper.expect(Run)
    return stepper


def test_on_its_own_it_is_reserved_like_a_request() -> None:
    """By its own door: the same key of a request is another record."""
    stepper = flow(outer=None)
    stepper.expect(Identify)
    stepper.give(Scope((("service", "billing"),)))
    claim = stepper.expect(Reserve).claim
    assert (claim.door, claim.action, claim.target, claim.key) == ("operation", "ship", "o-1", "k")
    assert claim.id != CLAIM.id


@pytest.mark.parametrize(("key", "code"), [(None, "key-missing"), ("", "key-invalid"), (7, "key-invalid")])
def test_without_a_key_nothing_is_asked(key: object, code: str) -> None:
    """Not even whose it is."""
    assert flow(key).result.verdict == code


def test_without_an_owner_nothing_is_looked_up() -> None:
    """A key means nothing without one."""
    stepper = flow()
    stepper.expect(Identify)
    stepper.give(None)
    assert stepper.result.verdict == "principal-required"


def test_it_is_stored_in_the_transaction_around_it() -> None:
    """At its end, with its outcome; the commit is not its own."""
    stepper = running()
    stepper.give(Responded(VALUE, False, VALUE.headers))
    step = stepper.expect(StoreWithin)
    assert (step.final, step.previous) == (Final("completed", VALUE), None)
    stepper.give(True)
    result = stepper.result
    assert (result.verdict, result.reply, result.attempt) == ("completed", VALUE, 1)


def test_a_key_that_was_taken_meanwhile_spoils_everything() -> None:
    """Another call did the same: ours must not be committed.  The next try finds it done."""
    stepper = running()
    stepper.give(Responded(VALUE))
    stepper.expect(StoreWithin)
    stepper.give(False)
    assert stepper.expect(Spoil).passing
    stepper.give(None)
    result = stepper.result
    assert result.verdict == "released"
    assert result.error is not None


@pytest.mark.parametrize("error", [RuntimeError("broke"), NotDone("nothing")], ids=repr)
def test_a_failure_spoils_everything(error: Exception) -> None:
    """What it wrote cannot be undone alone."""
    stepper = running()
    stepper.give(Raised(error))
    assert "failed" in stepper.expect(Spoil).reason
    stepper.give(None)
    assert stepper.result.verdict == "released"


@pytest.mark.parametrize("where", ["run", "store"])
def test_a_cancellation_spoils_everything(where: str) -> None:
    """It is not known how far it came, and the call around it may go on."""
    stepper = running()
    if where == "store":
        stepper.give(Responded(VALUE))
        stepper.expect(StoreWithin)
    stepper.throw(asyncio.CancelledError())
    stepper.expect(Spoil)
    with pytest.raises(asyncio.CancelledError):
        stepper.give(None)


def test_a_record_that_cannot_be_stored_spoils_everything() -> None:
    """Its effect must not be committed without it."""
    stepper = running()
    stepper.give(Responded(VALUE))
    stepper.expect(StoreWithin)
    stepper.throw(DOWN)
    stepper.expect(Spoil)
    stepper.give(None)
    assert stepper.result.verdict == "store-unavailable"


def test_a_store_that_cannot_be_read_runs_nothing() -> None:
    """Nothing was done, so nothing is spoilt by us."""
    stepper = looking()
    stepper.throw(DOWN)
    assert stepper.result.verdict == "store-unavailable"


def test_what_was_done_is_replayed() -> None:
    """Before this transaction, or earlier in it."""
    stepper = looking()
    stepper.give(found(COMPLETED))
    result = stepper.result
    assert result.verdict == "replayed"
    assert isinstance(result.reply, Record)


@pytest.mark.parametrize(
    ("record", "code"),
    [(RUNNING, "in-flight"), (a_record(fingerprint=b"other"), "key-reused")],
    ids=["running", "other"],
)
def test_what_is_in_the_way_is_a_refusal(record: Record, code: str) -> None:
    """Nothing was run; the call around it decides what to make of it."""
    stepper = looking()
    stepper.give(found(record))
    result = stepper.result
    assert result.verdict == code
    assert isinstance(result.reply, Problem)


def test_an_abandoned_attempt_is_replaced_with_the_rest() -> None:
    """If the transaction is rolled back, it is abandoned as before."""
    stepper = looking()
    stepper.give(found(ABANDONED._replace(mode="tx")))
    assert stepper.expect(Run).attempt.number == 2
    stepper.give(Responded(VALUE))
    assert stepper.expect(StoreWithin).previous == CanTakeOver(ABANDONED.token, "in_progress")
