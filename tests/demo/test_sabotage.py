"""A demo that cannot fail shows nothing: with a broken server it ends with 1, and says what was wrong."""

from pathlib import Path

import pytest

from tests.demo.conftest import Start

SABOTAGED = str(Path(__file__).with_name("sabotaged.py"))


def with_a_server_that_is(how: str) -> str:
    # Who gets no answer by then never gets one: there is no need to wait as long as the demo would.
    return (
        "import sys; from retrysafe.demo import scenario; scenario.PATIENCE = 8.0; "
        f"sys.exit(scenario.perform(7, program=({SABOTAGED!r}, {how!r})))"
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("unguarded", "with keys: order-"),
        ("repeatable", "with keys, server killed: order-04 was charged 2 times"),
        ("lossy", "with keys: order-20 was never charged"),
        ("generous", "with keys: order-20 was charged as r-"),
        ("broken", "the card network has moved"),
    ],
    ids=lambda value: value if value.isalpha() else "",
)
def test_the_exit_code_says_that_something_was_wrong(start: Start, how: str, said: str) -> None:
    """Doubled, lost, told wrongly, or not even started: 1, and a sentence about it."""
    demo = start(with_a_server_that_is(how))
    assert demo.end() == 1, demo.text
    assert said in demo.text
    demo.assert_nothing_left()
