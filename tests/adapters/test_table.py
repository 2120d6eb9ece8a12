"""The checklist is covered, and the published table says by what."""

from pathlib import Path

from retrysafe.testing.adapters import AdapterSuite
from retrysafe.testing.adapters.limits import ADAPTERS
from retrysafe.testing.adapters.lines import LINES
from retrysafe.testing.adapters.table import proofs, table

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"

# Every number of the sections A to I, but 49 and 77, which are about the transactional mode.
NUMBERS = (
    "1 2 3 4 5 6 7 8 10 11 12 15 16 17 18 19 22 23 24 25 26 27 28 29 30 32 33 34 35 36 39 40 43 "
    "45 46 48 50 52 53 55 56 57 59 60 61 62 64 65 66 68 69 70 73 74 75 76 78 81 82 83 85"
)


def test_the_checklist_is_complete() -> None:
    """No line was dropped, and none invented."""
    assert sorted(LINES) == [int(number) for number in NUMBERS.split()]


def test_every_line_is_proved() -> None:
    """Each line has at least one test."""
    assert sorted(set(LINES) - set(proofs())) == []


def test_limits_name_tests_that_exist() -> None:
    """A renamed test does not leave its excuse behind."""
    declared = {name for servers in ADAPTERS.values() for limits in servers.values() for name in limits}
    assert [name for name in sorted(declared) if not hasattr(AdapterSuite, name)] == []


def test_no_line_is_excused_altogether() -> None:
    """Under every server each line is still proved by a test that is not excused."""
    for servers in ADAPTERS.values():
        for limits in servers.values():
            for line, names in proofs().items():
                assert any(name.split(".")[1] not in limits for name in names), line


def test_the_table_is_current() -> None:
    """`python -m retrysafe.testing.adapters.table > docs/conformance.md` would change nothing."""
    assert TABLE.read_text(encoding="utf-8") == table()
