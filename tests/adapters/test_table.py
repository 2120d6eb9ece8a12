"""The checklist is covered, and the published table says by what."""

from importlib import import_module
from pathlib import Path

from retrysafe.testing.adapters import (
    AbandonedTx,
    AdapterSuite,
    FailuresTx,
    OutageTx,
    StreamingTx,
    Suite,
    TransactionalSuite,
)
from retrysafe.testing.adapters.checklist import LINES
from retrysafe.testing.adapters.combinations import COMBINATIONS, Combination, Extent
from retrysafe.testing.adapters.limits import ADAPTERS
from retrysafe.testing.adapters.table import proofs, table
from tests.adapters.sampling import is_in_sample
from tests.adapters.test_django import TestAsyncTransactions as DjangoAsyncTransactions
from tests.adapters.test_django import TestTransactions as DjangoTransactions
from tests.adapters.test_fastapi import TestTransactions as FastapiTransactions
from tests.adapters.test_flask import TestTransactions as FlaskTransactions
from tests.adapters.test_transactions import TestWsgiOnSqlite as WsgiOnSqlite

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"

# Every number of the sections A to I, and the profiles of section K.
NUMBERS = (
    "1 2 3 4 5 6 7 8 10 11 12 15 16 17 18 19 22 23 24 25 26 27 28 29 30 32 33 34 35 36 39 40 43 "
    "45 46 48 49 50 52 53 55 56 57 59 60 61 62 64 65 66 68 69 70 73 74 75 76 77 78 81 82 83 85 "
    "95 102 103 104 105"
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
    suites = (AdapterSuite, TransactionalSuite)
    assert [name for name in sorted(declared) if not any(hasattr(suite, name) for suite in suites)] == []


def test_no_line_is_excused_altogether() -> None:
    """Under every server each line is still proved by a test that is not excused."""
    for servers in ADAPTERS.values():
        for limits in servers.values():
            for suite in (AdapterSuite, TransactionalSuite):
                for line, names in proofs(suite).items():
                    assert any(name.split(".")[1] not in limits for name in names), line


def test_what_is_said_to_be_tried_is_tried() -> None:
    """Every combination of the table has a class with the whole suite here, sampled as the table says."""
    classes = {
        value
        for file in Path(__file__).parent.glob("test_*.py")
        for value in vars(import_module(f"tests.adapters.{file.stem}")).values()
        if isinstance(value, type) and issubclass(value, Suite) and value.__name__.startswith("Test")
    }
    whole = {_combination(one) for one in classes if issubclass(one, AdapterSuite | TransactionalSuite)}
    assert COMBINATIONS - whole == set()


def _combination(suite: type[Suite]) -> Combination:
    on_loop = suite.framework not in ("django", "flask", "wsgi")
    server = "uvicorn" if on_loop else str(suite.options.get("server", "gthread"))
    in_sample = [is_in_sample(suite, name) for name in dir(suite) if name.startswith("test_")]
    extent: Extent = "all" if all(in_sample) else "part" if any(in_sample) else "none"
    return Combination(suite.framework, server, suite.workers, suite.backing.title, suite.tx, extent)


def test_a_whole_suite_in_every_run() -> None:
    """Each adapter proves each line in lease mode and what a transaction changes, whatever the sample."""
    always = {one[:5] for one in COMBINATIONS if one.extent == "all"}
    assert ("asgi", "uvicorn", 1, "SQLite", False) in always
    assert ("asgi", "uvicorn", 1, "SQLite", True) in always
    assert ("django", "gthread", 1, "SQLite", False) in always
    assert ("django-async", "uvicorn", 1, "SQLite", False) in always
    assert ("fastapi", "uvicorn", 1, "SQLite", False) in always
    assert ("flask", "gthread", 1, "SQLite", False) in always
    assert ("wsgi", "gthread", 1, "SQLite", False) in always
    changed = set(vars(FailuresTx)) | set(vars(StreamingTx)) | set(vars(AbandonedTx)) | set(vars(OutageTx))
    for name in changed:
        for suite in (
            WsgiOnSqlite,
            DjangoTransactions,
            DjangoAsyncTransactions,
            FastapiTransactions,
            FlaskTransactions,
        ):
            assert not name.startswith("test_") or is_in_sample(suite, name), name


def test_the_table_is_current() -> None:
    """`python -m retrysafe.testing.adapters.table > docs/conformance.md` would change nothing."""
    assert TABLE.read_text(encoding="utf-8") == table()
