"""A bid that was given up may still arrive, and must not take the key for a request that is over."""

import asyncio

import pytest

from retrysafe._core.model import Found, Reserved
from retrysafe._core.protocol import once
from retrysafe._core.steps import (
    Commit,
    Finish,
    Forget,
    Look,
    Pause,
    Persist,
    Raised,
    Release,
    Reserve,
    Responded,
    Result,
    RollBack,
    Run,
    TakeOver,
    Wait,
)
from retrysafe.errors import NotDone
from retrysafe.policy import Policy
from tests.protocol.values import (
    ABANDONED,
    CLAIM,
    COMPLETED,
    CREATED,
    DOWN,
    RETRY,
    RUNNING,
    WAITING,
    Stepper,
    a_call,
    a_record,
    found,
    stepping,
)


def bidding_again(policy: Policy | None = None) -> Stepper[Result]:
    """A flow whose first bid was given up, and which bids for the second time."""
    flow = stepping(a_call(policy))
    flow.expect(Reserve)
    flow.throw(DOWN)
    flow.expect(Pause)
    flow.give(None)
    flow.expect(Reserve)
    return flow


@pytest.mark.parametrize(
    ("there", "verdict"),
    [
        (found(COMPLETED), "replayed"),
        (found(RUNNING), "in-flight"),
        (found(ABANDONED), "outcome-unknown"),
        (found(a_record(fingerprint=b"something else")), "key-reused"),
    ],
)
def test_who_is_answered_by_another_forgets_its_own_bid(there: Found, verdict: str) -> None:
    """Else it takes the key when the other one lets go, and nobody runs it."""
    flow = bidding_again()
    flow.give(there)
    assert flow.expect(Forget) == Forget(CLAIM)
    flow.give(None)
    assert flow.result.verdict == verdict


def test_who_releases_the_key_forgets_its_first_bid() -> None:
    """It may come after the release, and the client was told that the key is free."""
    flow = bidding_again()
    flow.give(Reserved(1))
    flow.expect(Run)
    flow.give(Raised(NotDone()))
    flow.expect(Release)
    flow.give(None)
    assert flow.expect(Forget) == Forget(CLAIM)
    flow.give(None)
    assert flow.result.verdict == "released"


def test_who_keeps_an_outcome_forgets_nothing() -> None:
    """The outcome stands in the way of whatever comes late."""
    flow = bidding_again()
    flow.give(Reserved(1))
    flow.expect(Run)
    flow.give(Responded(CREATED))
    flow.expect(Finish)
    flow.give(True)
    assert flow.result.verdict == "completed"


def test_nothing_is_forgotten_while_the_request_still_bids() -> None:
    """All its bids have one token: to forget one in the middle would release the other."""
    flow = bidding_again(RETRY)
    flow.give(found(ABANDONED))
    flow.expect(TakeOver)
    flow.give(Reserved(2))
    flow.expect(Run)
    flow.give(Responded(CREATED))
    flow.expect(Finish)
    flow.give(True)
    assert not any(isinstance(step, Forget) for step in flow.asked)


def test_who_is_cancelled_while_it_waits_forgets_its_bid() -> None:
    """Nobody else would."""
    flow = bidding_again(WAITING)
    flow.give(found(RUNNING))
    flow.expect(Wait)
    flow.throw(asyncio.CancelledError())
    assert flow.expect(Forget) == Forget(CLAIM)
    with pytest.raises(asyncio.CancelledError):
        flow.give(None)


def test_who_has_no_doubts_forgets_nothing() -> None:
    """A bid that was answered is not on its way."""
    flow = stepping()
    flow.give(found(COMPLETED))
    assert flow.result.verdict == "replayed"
    assert not any(isinstance(step, Forget) for step in flow.asked)


def test_who_could_not_commit_forgets_its_first_bid() -> None:
    """The fenced release found out that nothing was committed; a bid that comes after it is for nobody."""
    flow = Stepper(once(a_call()._replace(claim=CLAIM._replace(mode="tx"))))
    flow.expect(Reserve)
    flow.throw(DOWN)
    flow.give(None)
    flow.give(Reserved(1))
    flow.expect(Run)
    flow.give(Responded(CREATED))
    flow.expect(Commit)
    flow.throw(DOWN)
    flow.expect(RollBack)
    flow.give(None)
    flow.expect(Release)
    flow.give(None)
    flow.expect(Look)
    flow.give(None)
    assert isinstance(flow.expect(Forget), Forget)
    flow.give(None)
    assert flow.result.verdict == "store-unavailable"


def test_whose_transaction_was_overtaken_forgets_its_first_bid() -> None:
    """Everything was rolled back, and what is still on its way would be nobody's."""
    flow = Stepper(once(a_call()._replace(claim=CLAIM._replace(mode="tx"))))
    flow.expect(Reserve)
    flow.throw(DOWN)
    flow.give(None)
    flow.give(Reserved(1))
    flow.expect(Run)
    flow.give(Responded(CREATED))
    flow.expect(Commit)
    flow.give(False)
    flow.expect(Look)
    flow.give(found(COMPLETED))
    assert isinstance(flow.expect(Forget), Forget)
    flow.give(None)
    assert flow.result.verdict == "replayed"


def test_who_could_not_store_its_outcome_forgets_nothing() -> None:
    """Something happened, and the record that says so is left to lapse."""
    flow = bidding_again()
    flow.give(Reserved(1))
    flow.expect(Run)
    flow.give(Responded(CREATED))
    flow.expect(Finish)
    flow.throw(DOWN)
    flow.expect(Persist)
    flow.give(False)
    assert flow.result.verdict == "unstored"
    assert not any(isinstance(step, Forget) for step in flow.asked)
