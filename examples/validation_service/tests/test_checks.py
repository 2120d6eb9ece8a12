"""What checks find."""

import pytest

from examples.validation_service.jobs.checks import Check, Found, Readings, Severity, errors, validate


@pytest.mark.parametrize(
    ("check", "readings", "rules"),
    [
        (Check.RANGE, [0.0, 100.0], {}),
        (Check.RANGE, [None, -0.1, 100.1], {0: "missing", 1: "negative", 2: "too high"}),
        (Check.CONTINUITY, [5.0, 65.0, 5.0], {}),
        (Check.CONTINUITY, [5.0, 65.1, 5.0], {1: "too steep", 2: "too steep"}),
        (Check.CONTINUITY, [5.0, None, 90.0], {}),
        (Check.CONTINUITY, [7.0] * 3, {}),
        (Check.CONTINUITY, [7.0] * 9, {3: "stuck"}),
        (Check.CONTINUITY, [None] * 9, {}),
    ],
)
def test_findings(check: Check, readings: Readings, rules: dict[int, str]) -> None:
    assert {found.position: found.rule for found in validate(check, readings)} == rules


def test_errors() -> None:
    """Warnings are none."""
    found = validate(Check.RANGE, [None, 120.0])
    assert found == [Found(0, "missing", Severity.ERROR), Found(1, "too high", Severity.WARNING)]
    assert errors(found) == 1
