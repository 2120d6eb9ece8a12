"""Every schedule within a bound: no promise is broken, and not because nothing happened."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from retrysafe._core import protocol
from retrysafe._core.model import Reservation
from retrysafe._core.steps import Flow, Reserve, TakeOver
from retrysafe.errors import StoreUnavailable
from retrysafe.testing.simulate import SETTINGS, Bound, Refuted, Setting, Stage, search
from retrysafe.testing.simulate.setting import HOLDING, RETRYING, TX
from retrysafe.testing.simulate.world import World

BY_NAME = {setting.name: setting for setting in SETTINGS}
HOLD, RETRY = HOLDING[0], RETRYING[0]


@dataclass
class Observed:
    """What occurred in the worlds that schedules ended in, before they recovered."""

    seen: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, world: World) -> None:
        requests = world.requests.values()
        self.seen.update(request.result.verdict for request in requests if request.result is not None)
        executions = len(world.keys[0].executions)
        self.seen["twice"] += executions > 1
        self.seen["thrice"] += executions > 2
        self.seen["fenced"] += any(
            request.execution is not None and request.stored is None and request.result is not None
            for request in requests
        )

    def missing(self, expected: str) -> list[str]:
        return [word for word in expected.split() if not self.seen[word]]


@pytest.mark.parametrize(
    ("setting", "schedules", "occurs"),
    [
        (HOLD, 1_000, "completed replayed in-flight outcome-unknown unstored"),
        (RETRY, 70_000, "completed replayed in-flight store-unavailable unstored twice fenced"),
        (TX, 70_000, "completed replayed in-flight store-unavailable twice fenced"),
    ],
    ids=["hold", "retry", "tx"],
)
def test_three_attempts_a_crash_a_lost_reply_and_a_lapse(
    setting: Setting, schedules: int, occurs: str, record_property: Callable[[str, object], None]
) -> None:
    """The bound of the documentation, in each mode.  Requests that merely swap their numbers count once."""
    observed = Observed()
    found = search(Stage(setting), Bound(), observed)
    record_property("schedules", found.schedules)
    record_property("states", found.states)
    assert found.schedules >= schedules
    assert observed.missing(occurs) == []


OTHERS = {
    "hold, failures are replayed": "failed replayed in-flight outcome-unknown",
    "hold, at first it raises": "failed replayed in-flight outcome-unknown",
    "hold, failures are retried": "failed completed replayed in-flight outcome-unknown twice",
    "hold, failures are conflicts": "failed previously-failed in-flight outcome-unknown",
    "hold, nothing was done at first": "released completed replayed in-flight outcome-unknown twice",
    "hold, something may have been done": "failed replayed in-flight outcome-unknown",
    "hold, too large to keep": "completed replayed in-flight outcome-unknown",
    "hold, broken off": "failed replayed in-flight outcome-unknown",
    "hold, others wait": "completed replayed in-flight outcome-unknown",
    "hold, asked again who may see it": "completed replayed in-flight outcome-unknown",
    "hold, runs without the store": "completed replayed in-flight outcome-unknown",
    "retry, failures are replayed": "failed replayed in-flight fenced twice",
    "retry, failures are retried": "failed completed replayed in-flight outcome-unknown twice",
    "retry, failures are conflicts": "failed previously-failed in-flight fenced twice",
    "retry, nothing was done at first": "released completed replayed in-flight fenced twice",
    "retry, too large to keep": "completed replayed in-flight outcome-unknown twice",
    "retry, broken off": "failed completed replayed in-flight outcome-unknown twice",
    "retry, others wait": "completed replayed in-flight fenced twice",
    "tx, at first it fails": "released completed replayed in-flight fenced twice",
    "tx, nothing was done at first": "released completed replayed in-flight fenced twice",
    "tx, something may have been done": "released completed replayed in-flight fenced twice",
    "tx, others wait": "completed replayed in-flight fenced twice",
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_setting(name: str) -> None:
    """A crash and a lapse, whatever the policy is and however handlers behave."""
    observed = Observed()
    attempts = 2 if name.endswith("others wait") else 3  # who waits comes back several times
    search(Stage(BY_NAME[name]), Bound(attempts, lost_replies=0), observed)
    assert observed.missing(OTHERS[name]) == []


def test_all_settings_are_searched() -> None:
    """A setting that is added is not forgotten here."""
    assert {HOLD.name, RETRY.name, TX.name, *OTHERS} == set(BY_NAME)


@pytest.mark.parametrize("setting", [HOLD, RETRY, TX], ids=["hold", "retry", "tx"])
def test_one_asks_for_something_else(setting: Setting) -> None:
    """I7: in every order, the same key with another request neither runs nor sees a response."""
    observed = Observed()
    search(Stage(setting), Bound(lost_replies=0, asked=(0, 0, 1)), observed)
    assert observed.missing("completed replayed key-reused in-flight") == []


@pytest.mark.parametrize("setting", [HOLD, RETRY, TX], ids=["hold", "retry", "tx"])
def test_a_lease_is_lost_in_the_store(setting: Setting) -> None:
    """F24: it counts as alive, and its key is not taken over."""
    observed = Observed()
    search(Stage(setting), Bound(lost_replies=0, lapses=0, lost_leases=1), observed)
    assert observed.missing("completed replayed in-flight") == []
    assert not observed.seen["twice"]


@pytest.mark.parametrize("setting", [HOLD, RETRY, TX], ids=["hold", "retry", "tx"])
def test_a_cancellation_at_every_step(setting: Setting) -> None:
    """F28, F29: before a step and after it, with a lapse of the leases."""
    observed = Observed()
    search(Stage(setting), Bound(crashes=0, lost_replies=0, cancellations=1), observed)
    assert observed.missing("completed replayed in-flight") == []


def test_two_lapses() -> None:
    """An attempt that took over may be taken over in its turn."""
    observed = Observed()
    found = search(Stage(RETRY), Bound(crashes=0, lost_replies=0, lapses=2), observed)
    assert found.schedules > 1_000
    assert observed.missing("thrice") == []


def test_without_faults_one_executes() -> None:
    """Without faults there is one execution, and all other requests receive its response or a 409."""

    def at_the_end(world: World) -> None:
        verdicts = Counter(
            request.result.verdict for request in world.requests.values() if request.result is not None
        )
        assert len(world.keys[0].executions) == 1
        assert verdicts.total() == 3
        assert verdicts["completed"] == 1
        assert set(verdicts) <= {"completed", "in-flight", "replayed"}

    # One request of three steps (reserve, run, finish) and two of one step each, which come after its first
    # and in the order of their numbers: the ways to place two steps among the last four.
    quiet = Bound(crashes=0, lost_replies=0, lapses=0)
    assert search(Stage(HOLD), quiet, at_the_end).schedules == 6


def test_a_refutation_has_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found can be explained: the schedule that leads there is part of it."""
    monkeypatch.setattr("retrysafe._core.decisions.same", lambda one, other: True)
    with pytest.raises(Refuted, match="I7") as refuted:
        search(Stage(HOLD), Bound(asked=(0, 1, 0)))
    assert [action.kind for action in refuted.value.schedule][:2] == ["arrive", "step"]


def test_the_first_bid_is_spared_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may be cancelled before its first reply."""

    def again(
        bid: Reserve | TakeOver, trouble: BaseException, unconfirmed: protocol.Unconfirmed
    ) -> Flow[Reservation]:
        if not isinstance(trouble, StoreUnavailable):
            raise trouble  # and a bid that was cancelled is never forgotten
        unconfirmed.append(bid)
        reservation: Reservation = yield bid
        return reservation

    monkeypatch.setattr(protocol, "_again", again)
    with pytest.raises(Refuted, match="I11") as refuted:
        search(Stage(HOLD), Bound(attempts=1, crashes=0, lost_replies=0, cancellations=1))
    assert [action.kind for action in refuted.value.schedule] == ["arrive", "cancel after"]


BATCHED = Bound(crashes=0, lost_replies=0, lapses=0, batches=True, identities=(0, 1, 0))
"""Three attempts at one worker: while the first is in flight, the other two may form a batch."""

_FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("setting", "bound", "schedules"),
    [
        pytest.param(HOLD, BATCHED._replace(crashes=1), 10_000, id="hold, a crash"),
        pytest.param(TX, BATCHED._replace(repeated_batches=1), 6_000, id="tx, a repeated batch"),
        pytest.param(TX, BATCHED._replace(refused_batches=1), 9_000, id="tx, a refused batch"),
        pytest.param(HOLD, BATCHED._replace(lost_replies=1), 60_000, id="hold, a lost reply", marks=_FULL),
        pytest.param(RETRY, BATCHED._replace(lost_replies=1), 60_000, id="retry, a lost reply", marks=_FULL),
        pytest.param(HOLD, BATCHED._replace(repeated_batches=1), 20_000, id="hold, repeated", marks=_FULL),
        pytest.param(HOLD, BATCHED._replace(refused_batches=1), 30_000, id="hold, refused", marks=_FULL),
        pytest.param(HOLD, BATCHED._replace(cancellations=1), 20_000, id="hold, cancelled", marks=_FULL),
    ],
)
def test_calls_in_batches(setting: Setting, bound: Bound, schedules: int) -> None:
    """Every order in which three calls of a worker share batches, with one fault of a batch."""
    observed = Observed()
    assert search(Stage(setting), bound, observed).schedules >= schedules
    assert observed.missing("completed replayed in-flight") == []


def test_more_attempts_than_workers() -> None:
    """The workers then serve several each, and a crash ends all that one serves."""
    observed = Observed()
    search(Stage(HOLD), Bound(attempts=4, lost_replies=0), observed)
    assert observed.missing("completed replayed in-flight outcome-unknown") == []


@pytest.mark.parametrize(
    ("bound", "complaint"),
    [
        (Bound(attempts=0), r"attempts=0.*1 or more"),
        (Bound(crashes=-1), r"crashes=-1.*0 or more"),
        (Bound(asked=()), r"asked=\(\).*from 0 to"),
        (Bound(asked=(0, 99)), r"asked=\(0, 99\).*from 0 to"),
        (Bound(identities=(99,)), r"identities=\(99,\).*from 0 to"),
        (Bound(refused_batches=1), r"without batches=True"),
    ],
    ids=[
        "no attempt",
        "a negative number",
        "nothing asked for",
        "an unknown number",
        "an unknown identity",
        "no batches",
    ],
)
def test_a_bound_that_makes_no_sense(bound: Bound, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        search(Stage(HOLD), bound)
