"""A demo that cannot fail shows nothing: with a broken server it ends with 1, and names the problem."""

from pathlib import Path

import pytest

from tests.demo.conftest import Start

SABOTAGED = str(Path(__file__).with_name("sabotaged.py"))


def run_with(bug: str) -> str:
    # A customer without a response by then never gets one: no need to wait as long as the demo does.
    return (
        "import sys; from retrysafe.demo import scenario; scenario.RUN_TIMEOUT = 8.0; "
        f"sys.exit(scenario.run_demo(7, program=({SABOTAGED!r}, {bug!r})))"
    )


@pytest.mark.parametrize(
    ("bug", "reported"),
    [
        ("unguarded", "with keys: order-"),
        ("repeatable", "with keys, server killed: order-04 was charged 2 times"),
        ("lossy", "with keys: order-20 was never charged"),
        ("wrong_receipt", "with keys: order-20 was charged as r-"),
        ("not_starting", "the card network has moved"),
    ],
    ids=lambda value: value if value.isidentifier() else "",
)
def test_a_broken_server_is_reported(start: Start, bug: str, reported: str) -> None:
    """Doubled, lost, a wrong receipt, or not even started: exit code 1, and a sentence about it."""
    demo = start(run_with(bug))
    assert demo.end() == 1, demo.text
    assert reported in demo.text
    demo.assert_cleaned_up()
