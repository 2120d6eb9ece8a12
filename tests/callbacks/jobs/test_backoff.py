"""How long a job waits between two attempts, and what it makes of what receivers ask for."""

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrysafe import ConfigurationError
from retrysafe.callbacks.jobs import BackOff
from retrysafe.callbacks.jobs.backoff import retry_after

NOW = 1_760_000_000.0
MOMENT = datetime.fromtimestamp(NOW, UTC)


@given(st.floats(1e-3, 1e4), st.floats(1, 1e4), st.integers(1, 10**9), st.floats(0, 1e9))
def test_pauses_are_within_their_limits(first: float, times: float, attempt: int, at_least: float) -> None:
    """Never before what was asked for, and after it at most as long as the doubled limit."""
    back_off = BackOff(first, first * times)
    limit = min(first * times, first * 2 ** min(attempt - 1, 1000))
    assert back_off.limit(attempt) == limit
    assert at_least <= back_off.pause(attempt, at_least) <= at_least + limit


def test_the_limits_double() -> None:
    """From one second to five minutes, by default."""
    assert [BackOff().limit(attempt) for attempt in range(1, 12)] == [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300,
    ]  # fmt: skip


def test_jitter_is_full() -> None:
    """Pauses spread over the whole range: not around its end, and not around its middle."""
    pauses = [BackOff().pause(5) for _ in range(2000)]
    for tenth in range(10):
        share = sum(tenth <= pause / 1.6 < tenth + 1 for pause in pauses)
        assert 100 < share < 300, tenth


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "first must be a number of seconds greater than 0, got 0.0"),
        ((-1.0,), "first must be"),
        ((1.0, math.inf), "longest must be a number of seconds greater than 0, got inf"),
        ((1.0, math.nan), "longest must be"),
        ((2.0, 1.0), "longest must not be less than first, got 1.0 and 2.0"),
    ],
)
def test_a_back_off_that_makes_no_sense(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BackOff(*arguments)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 120 ", 120),
        ("1.5", 1.5),
        ("9" * 30, 1e30),
        ("9" * 1000, math.inf),
        (format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True), 90),
        (format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True), 0),
        ((datetime.fromtimestamp(NOW + 90, UTC)).strftime("%A, %d-%b-%y %H:%M:%S GMT"), 90),
        ((datetime.fromtimestamp(NOW + 90, UTC)).strftime("%a %b %d %H:%M:%S %Y"), 90),
    ],
)
def test_what_is_asked_for(text: str, seconds: float) -> None:
    """Seconds, and dates in the three forms of RFC 9110."""
    assert retry_after({"retry-after": text}, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "-1", "-9999999999", "+1", "NaN", "nan", "inf", "-inf", "1e9", "0x10", "1 2", "1, 2", "soon", "²",
     "\u0661", "Tue, 99 Foo 2026 99:99:99 GMT", "Fri, 31 Dec 99999 23:59:59 GMT", "\x00"],
)  # fmt: skip
def test_what_makes_no_sense_is_ignored(text: str) -> None:
    """The back-off alone decides then."""
    assert retry_after({"retry-after": text}, NOW) == 0
    assert retry_after({"retry-after-ms": text}, NOW) == 0


def test_milliseconds_are_more_precise() -> None:
    """Of both, they count, unless they make no sense."""
    assert retry_after({"retry-after": "1", "retry-after-ms": "250"}, NOW) == 0.25
    assert retry_after({"retry-after": "1", "retry-after-ms": "NaN"}, NOW) == 1
    assert retry_after({"retry-after-ms": "9" * 1000}, NOW) == math.inf


def test_a_date_is_meant_by_the_clock_of_the_receiver() -> None:
    """Which may differ from ours by hours; it says what its own is."""
    headers = {
        "date": format_datetime(datetime.fromtimestamp(NOW - 7200, UTC), usegmt=True),
        "retry-after": format_datetime(datetime.fromtimestamp(NOW - 7200 + 30, UTC), usegmt=True),
    }
    assert retry_after(headers, NOW) == 30
    assert retry_after({**headers, "date": "yesterday"}, NOW) == 0


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "date"]),
        st.one_of(
            st.text(max_size=40),
            st.datetimes().map(lambda at: format_datetime(at)),
            st.floats().map(str),
            st.integers().map(str),
        ),
    )
)
def test_whatever_is_sent_gives_a_number(headers: dict[str, str]) -> None:
    """At least 0, and never an error."""
    assert retry_after(headers, NOW) >= 0
