"""The checklist is covered, and the published table says by what."""

from importlib import import_module
from pathlib import Path

from retrysafe.testing.adapters import AdapterSuite, Suite, TransactionalSuite
from retrysafe.testing.adapters.checklist import LINES
from retrysafe.testing.adapters.combinations import COMBINATIONS, Combination
from retrysafe.testing.adapters.limits import ADAPTERS
from retrysafe.testing.adapters.suite import LONG
from retrysafe.testing.adapters.table import proofs, table

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"

# Every number of the sections A to I.
NUMBERS = (
    "1 2 3 4 5 6 7 8 10 11 12 15 16 17 18 19 22 23 24 25 26 27 28 29 30 32 33 34 35 36 39 40 43 "
    "45 46 48 49 50 52 53 55 56 57 59 60 61 62 64 65 66 68 69 70 73 74 75 76 77 78 81 82 83 85"
)
# Where effects are outside of the database, there is no transaction to be killed in.
TRANSACTIONAL = {49, 77}


def test_the_checklist_is_complete() -> None:
    """No line was dropped, and none invented."""
    assert sorted(LINES) == [int(number) for number in NUMBERS.split()]


def test_every_line_is_proved() -> None:
    """Each line has at least one test, in each mode that it is about."""
    assert set(LINES) - set(proofs(AdapterSuite)) == TRANSACTIONAL
    assert set(LINES) - set(proofs(TransactionalSuite)) == set()


def test_what_differs_is_asked_of_both_modes() -> None:
    """A line with answers of its own in one mode has some in the other, or tests that are common to both."""
    ours, theirs = proofs(AdapterSuite), proofs(TransactionalSuite)
    for line in (48, 50, 76, 83):
        assert set(ours[line]) - set(theirs[line]), line
        assert set(theirs[line]) - set(ours[line]), line


def test_limits_name_tests_that_exist() -> None:
    """A renamed test does not leave its excuse behind."""
    declared = {name for servers in ADAPTERS.values() for limits in servers.values() for name in limits}
    assert [name for name in sorted(declared) if not hasattr(AdapterSuite, name)] == []


def test_no_line_is_excused_altogether() -> None:
    """Under every server each line is still proved by a test that is not excused."""
    for servers in ADAPTERS.values():
        for limits in servers.values():
            for suite in (AdapterSuite, TransactionalSuite):
                for line, names in proofs(suite).items():
                    assert any(name.split(".")[1] not in limits for name in names), line


def test_what_is_said_to_be_tried_is_tried() -> None:
    """Every combination of the table has a class here, as large as it says; in long runs all are whole."""
    classes = [
        value
        for file in Path(__file__).parent.glob("test_*.py")
        for value in vars(import_module(f"tests.adapters.{file.stem}")).values()
        if isinstance(value, type) and issubclass(value, Suite) and value.__name__.startswith("Test")
    ]
    whole = {
        _combination(one, "all") for one in classes if issubclass(one, AdapterSuite | TransactionalSuite)
    }
    always = {one for one in COMBINATIONS if one.extent == "all"}
    assert always - whole == set()
    others = COMBINATIONS - always
    if LONG:
        assert {one._replace(extent="all") for one in others} - whole == set()
    else:
        assert others - {_combination(one, "part") for one in classes} == set()
        assert {one._replace(extent="all") for one in others} & whole == set()


def _combination(suite: type[Suite], extent: str) -> Combination:
    server = str(suite.options.get("server", "gthread")) if suite.framework == "wsgi" else "uvicorn"
    found = Combination(suite.framework, server, suite.workers, suite.backing.title, suite.tx, "all")
    return found if extent == "all" else found._replace(extent="part")


def test_the_table_is_current() -> None:
    """`python -m retrysafe.testing.adapters.table > docs/conformance.md` would change nothing."""
    assert TABLE.read_text(encoding="utf-8") == table()
