"""What the page about operating claims, and its programs really do."""

import re

import pytest
from starlette.requests import Request

from retrysafe import Guard, scopes
from retrysafe._core.attempt import DEFAULT_SECRET, Attempt
from retrysafe._runtime import leases
from retrysafe.stores.memory import MemoryStore
from retrysafe.stores.options import CLEANUP_INTERVAL
from retrysafe.stores.sql import cleanup
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome
from tests.docs.pages import page
from tests.docs.running import story

OPERATING = "docs/operating.md"


def test_the_size_of_a_record() -> None:
    """The figure in the text is what its program prints, give or take what another SQLite does."""
    printed = "".join(ran.printed for ran in story(OPERATING).ran.values())
    measured = re.search(r"(\d+) bytes per record besides the body", printed)
    claimed = re.search(r"A record takes about (\d+) bytes", page(OPERATING).text)
    assert measured is not None
    assert claimed is not None
    assert int(measured[1]) == pytest.approx(int(claimed[1]), rel=0.2)


@pytest.mark.parametrize("secret", [DEFAULT_SECRET, b"a secret of the application"])
def test_a_derived_key_can_be_computed_again(secret: bytes) -> None:
    """The page's function gives what a handler was given."""
    claim = a_claim()
    derived = story(OPERATING).names["derived_key"](claim.id.hex(), "charge", secret)
    assert derived == Attempt(claim, 1, secret).derive("charge")


def test_the_constant_of_the_page_is_ours() -> None:
    """A guard without a secret uses what the page says."""
    assert story(OPERATING).names["derived_key"].__defaults__ == (DEFAULT_SECRET,)


def test_the_endpoint_for_a_scheduler() -> None:
    """It removes what has expired, and says how much of it nobody had settled."""
    clock = ManualClock()
    guard = Guard(MemoryStore(clock), scope=scopes.public())
    for number in range(3):
        claim = a_claim(f"key {number}")
        guard.store.reserve(claim)
        if number:
            guard.store.finish(claim, an_outcome())
    clock.elapse(3600.0)
    purge = story(OPERATING).names["purge"]
    purge.__globals__["guard"] = guard
    assert purge(Request({"type": "http"})).body == b'{"removed":3,"unresolved":1}'


def test_the_pace_of_tidying_up() -> None:
    """The figures in the text are those of the code."""
    text = " ".join(page(OPERATING).text.split())
    assert f"every {leases._ROUND:g} s the thread that renews leases looks" in text
    assert f"was more than {CLEANUP_INTERVAL:g} s ago" in text
    assert f"at most {cleanup.SLICE} records in one commit" in text
    assert f"After {cleanup.BUDGET:g} s it leaves the rest" in text
    assert f"due after {cleanup.BUDGET / cleanup.DUTY:g} s" in text
    assert f"at most {cleanup.DUTY:.0%} of the time of a process" in text
