"""What is left out of `make test` is what the rules say, and rules do not go stale unnoticed."""

import pytest

from tests import sampling
from tests.sampling import Rule


def test_what_a_rule_matches() -> None:
    rule = Rule("tests/a.py::test_one", "pg8000", "")
    assert rule.matches("tests/a.py::test_one[Session, pg8000-200]")
    assert not rule.matches("tests/a.py::test_one[Session, psycopg-200]")
    assert not rule.matches("tests/b.py::test_one[pg8000]")
    assert Rule("tests/a.py", "", "").matches("tests/a.py::test_two")
    rule = Rule("tests/a.py", "valkey", "", "test_one[valkey-1]")
    assert rule.matches("tests/a.py::test_one[valkey-2]")
    assert not rule.matches("tests/a.py::test_one[valkey-1]")


def test_what_is_marked_is_left_out(request: pytest.FixtureRequest) -> None:
    item = request.node
    assert isinstance(item, pytest.Item)
    assert sampling.leave_out([item]) == ([item], [])
    item.add_marker(pytest.mark.full)
    assert sampling.leave_out([item]) == ([], [item])


def test_a_rule_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="matches no test: correct its names, or remove it"):
        sampling.check_rules([])


def test_every_rule_has_its_reason() -> None:
    assert all(rule.why and rule.where for rule in sampling.RULES)
