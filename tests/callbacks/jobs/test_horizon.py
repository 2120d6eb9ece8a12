"""When attempts are made, over days: the flow is stepped on a clock of the test, and nothing waits."""

import time
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrysafe.callbacks.jobs import BackOff, Delivered, DeliveryFailed
from retrysafe.callbacks.jobs.flow import NoResponse, Pause, Post, Response, Terms, attempts
from retrysafe.callbacks.jobs.request import CallbackRequest, make_request

HOUR = 3600.0
Reply = Response | NoResponse


class Run(NamedTuple):
    times: list[float]
    """Of the attempts, in seconds after the first."""
    sent: list[CallbackRequest]
    end: Delivered | DeliveryFailed


def run(
    replies: list[Reply],
    *,
    horizon: float = 72 * HOUR,
    back_off: BackOff | None = None,
    before: float = 0.0,
    early: float = 0.0,
) -> Run:
    """The last reply is given for ever.

    `before`: for how long an earlier process has tried.  `early`: by which part a pause is too short.
    """
    request = make_request(b"{}", "https://service.example/", callback_id="c", horizon=horizon)
    request = request._replace(first_attempt=time.time() - before)
    now = 0.0
    flow = attempts(request, Terms({}, None, back_off or BackOff()), clock=lambda: now)
    times: list[float] = []
    sent: list[CallbackRequest] = []
    reply: Reply | None = None
    try:
        while True:
            match flow.send(reply):
                case Post(posted):
                    reply = replies[min(len(times), len(replies) - 1)]
                    times.append(now)
                    sent.append(posted)
                case Pause(seconds):
                    now += seconds * (1 - early)
                    reply = None
                case other:
                    raise AssertionError(other)
    except StopIteration as end:
        return Run(times, sent, end.value)
    except DeliveryFailed as error:
        return Run(times, sent, error)


def unavailable(seconds: float) -> Response:
    return Response(503, {"retry-after": f"{seconds:.6f}"}, b"")


def test_three_days() -> None:
    """The first attempts come quickly, the last one at the end of the horizon, and there are not too many."""
    found = run([NoResponse("refused")])
    assert isinstance(found.end, DeliveryFailed)
    assert found.times[0] == 0
    assert sum(at < 60 for at in found.times) >= 5
    assert found.times[-1] == pytest.approx(72 * HOUR, abs=1)
    assert max(after - before for before, after in zip(found.times, found.times[1:], strict=False)) <= 300
    assert 1000 < len(found.times) < 3000
    assert found.sent == [found.sent[0]] * len(found.sent)
    assert str(found.end).endswith("within its horizon of 259200 s: refused")


replies = st.one_of(
    st.just(NoResponse("timed out")),
    st.just(Response(500, {}, b"")),
    st.floats(0, 1e6).map(unavailable),
)


@given(st.lists(replies, min_size=1, max_size=30), st.floats(1, 29 * 24 * HOUR))
def test_no_attempt_is_early_or_late(said: list[Reply], horizon: float) -> None:
    """Never before the receiver said, unless the horizon ends there; and never after it."""
    found = run(said, horizon=horizon, back_off=BackOff(horizon / 100, horizon / 20))
    assert isinstance(found.end, DeliveryFailed)
    ends = found.times[-1]
    assert ends == pytest.approx(horizon, abs=1)
    for number, (before, after) in enumerate(zip(found.times, found.times[1:], strict=False)):
        reply = said[min(number, len(said) - 1)]
        if isinstance(reply, Response) and "retry-after" in reply.headers and after != ends:
            assert after - before >= float(reply.headers["retry-after"]) * (1 - 1e-9)


@given(st.lists(replies, max_size=5))
def test_an_acknowledgement_ends_it(said: list[Reply]) -> None:
    """There is no attempt after it."""
    found = run([*said, Response(200, {}, b"")], horizon=29 * 24 * HOUR)
    if len(found.times) == len(said) + 1:
        assert found.end == Delivered(200, len(said) + 1, False, {})
    else:
        assert isinstance(found.end, DeliveryFailed)


def test_a_sleep_that_ends_early() -> None:
    """There is one last attempt, and not one more for each rest of a second that is left."""
    assert len(run([unavailable(1e9)], early=1e-6).times) == 2


def test_a_restart_has_the_rest_of_the_horizon() -> None:
    """It is counted from the first attempt, whichever process made it."""
    found = run([NoResponse("refused")], before=70 * HOUR)
    assert found.times[-1] == pytest.approx(2 * HOUR, abs=2)


def test_a_restart_after_the_horizon() -> None:
    """There is no attempt: the receiver may have forgotten the first."""
    found = run([Response(200, {}, b"")], before=73 * HOUR)
    assert found.times == []
    assert isinstance(found.end, DeliveryFailed)
    assert (found.end.attempts, found.end.status) == (0, None)
    assert "ended before this process began" in str(found.end)


def test_a_clock_that_was_set_back() -> None:
    """A first attempt in the future does not make the horizon longer."""
    found = run([NoResponse("refused")], before=-1000 * HOUR)
    assert found.times[-1] == pytest.approx(72 * HOUR, abs=1)
