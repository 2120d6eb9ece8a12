"""Deliveries in Django's own tests, in its test environment: nothing leaks from one test into the next."""

import unittest
from collections.abc import Iterator

import pytest
from django.test.utils import setup_test_environment, teardown_test_environment

from tests.django import callback_cases


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    setup_test_environment()
    yield
    teardown_test_environment()


@pytest.mark.parametrize("case", [callback_cases.InTestCase, callback_cases.InTransactionTestCase])
def test_deliveries(case: type[unittest.TestCase], each_database: str) -> None:
    """Receipts, effects, a worker: in the test's own transaction, or committed and flushed."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun > 2
    for trouble in (result.errors, result.failures):
        assert not trouble, trouble[0][1]
