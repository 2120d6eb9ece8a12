"""The checker on histories that were judged by hand, and the reference on the same ones."""

from typing import Any, cast

import pytest

from retrysafe.testing.linearize import MODES, Mode, Operation, check, is_linearizable
from tests.linearize import known, reference

GOOD = [pytest.param(mode, text, id=f"{mode}: {name}") for name, modes, text in known.GOOD for mode in modes]
BAD = [
    pytest.param(mode, text, says, id=f"{mode}: {name}")
    for name, modes, text, says in known.BAD
    for mode in modes
]


def test_there_are_enough_of_both() -> None:
    """At least 15 of each, and each has a name of its own."""
    for table in (known.GOOD, known.BAD):
        assert len({entry[0] for entry in table}) == len(table) >= 15


@pytest.mark.parametrize(("mode", "text"), GOOD)
def test_good(mode: Mode, text: str) -> None:
    """What can have happened is accepted, in whatever order it is given."""
    history = known.history(text)
    assert check(history, mode=mode) is None
    assert is_linearizable(history[::-1], mode)
    assert reference.is_linearizable(history, mode)


@pytest.mark.parametrize(("mode", "text", "says"), BAD)
def test_bad(mode: Mode, text: str, says: str) -> None:
    """What cannot have happened is rejected, in whatever order it is given, and the reason is given."""
    history = known.history(text)
    why = check(history, mode=mode)
    assert why is not None
    assert says in why
    assert not is_linearizable(history[::-1], mode)
    assert not reference.is_linearizable(history, mode)


@pytest.mark.parametrize("mode", MODES)
def test_where_a_history_of_one_mode_is_none_of_another(mode: Mode) -> None:
    """The modes differ: what is good in some of them only is rejected in all others."""
    for name, modes, text in known.GOOD:
        assert is_linearizable(known.history(text), mode) == (mode in modes), name


def test_the_explanation_names_what_contradicts_and_draws_it() -> None:
    """Those whose responses are beside the point are drawn and not named."""
    history = known.history("0-1 pay first 201\n1-4 refund mismatch\n2-3 pay in-flight\n5-… pay nothing")
    assert check(history) == (
        'No order of single moments explains these responses (mode "hold"): #0 and #2, for the response '
        "was settled by then, or no operation seen running can have had the key before.\n"
        "► #0 asked 'pay' received first b'201'  ├─┤\n"
        "  #1 asked 'refund' received mismatch     ├─────┤\n"
        "► #2 asked 'pay' received in-flight         ├─┤\n"
        "  #3 asked 'pay' received nothing                 ├─►"
    )


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (Operation(2, 1, "pay", "open"), "ends before it begins"),
        (Operation(float("nan"), 1, "pay", "open"), "ends before it begins"),
        (Operation(2, None, "pay", "first", b"201"), "so `ended` must be a time"),
        (Operation(1, 2, "pay", cast("Any", "nonsense")), "expected one of the values"),
    ],
)
def test_what_is_not_a_history(operation: Operation, says: str) -> None:
    """A mistake in the recording is not a contradiction, also where there is one already."""
    for others in ([], known.history("0-1 pay first 201\n2-3 pay first 201")):
        with pytest.raises(ValueError, match=says):
            check([*others, operation])


def test_an_unknown_mode() -> None:
    with pytest.raises(ValueError, match="must be one of tx, hold, retry"):
        check([], mode=cast("Any", "lease"))
