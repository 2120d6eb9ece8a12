"""Django's own test tools: what a project's tests do works, and nothing leaks from one test into the next.

Django's test environment is set up here as its runner does; these tests are classes of Django's, run one
after the other by pytest and by `manage.py test` in a process of its own.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import AsyncClient, Client, TestCase, TransactionTestCase
from django.test.utils import override_settings, setup_test_environment, teardown_test_environment

from retrysafe.django import guard
from retrysafe.django.models import Record
from tests.django import cases
from tests.django.cases import KEYED, urlpatterns
from tests.django.shop.models import Order

__all__ = ["urlpatterns"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    setup_test_environment()
    yield
    teardown_test_environment()


def run(case: type[TestCase] | type[TransactionTestCase]) -> None:
    """As Django's runner does."""
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun
    assert not result.errors, result.errors[0][1]
    assert not result.failures, result.failures[0][1]


def test_in_a_test_case(each_database: str) -> None:
    """Reservation, view and completion are in the test's transaction, and gone with it."""
    run(cases.InTestCase)


def test_in_a_transaction_test_case(each_database: str) -> None:
    """Everything is committed, and flushed with the application's own tables."""
    run(cases.InTransactionTestCase)


def test_settings_of_one_test(client: Client) -> None:
    """`override_settings` makes another guard, and the one before comes back."""
    before = guard().rules.policy.retention
    with override_settings(RETRYSAFE={"DATABASE": "default", "RETENTION": 60, "REQUIRED": True}):
        assert guard().rules.policy.retention == 60
        assert client.post("/create/").status_code == 400
    assert guard().rules.policy.retention == before
    assert client.post("/create/").status_code == 201


def test_inside_of_the_callers_atomic(client: Client, each_database: str) -> None:
    """Outside of the test environment, too: what is undone there takes the record with it."""
    teardown_test_environment()
    try:
        with transaction.atomic():
            assert client.post("/create/", headers=KEYED).status_code == 201
            assert client.post("/create/", headers=KEYED).headers["Idempotent-Replayed"] == "true"
            transaction.set_rollback(True)
        assert Order.objects.count() == Record.objects.count() == 0
        with connection.cursor() as cursor:  # and the connection is as it was
            if connection.vendor == "postgresql":
                cursor.execute("SHOW lock_timeout")
                assert cursor.fetchone() == ("0",)
    finally:
        setup_test_environment()


def test_async_client_outside_of_a_test_case(async_client: AsyncClient) -> None:
    """As pytest's own asynchronous tests use it."""

    async def post() -> Any:
        return await async_client.post("/async/", headers=KEYED)

    assert asyncio.run(post()).status_code == 201
    assert asyncio.run(post()).headers["Idempotent-Replayed"] == "true"


MANAGE = """
import sys
from tests.django import project

project.configure()
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""


@pytest.mark.parametrize("options", [[], ["--parallel", "2"]], ids=["one process", "two processes"])
def test_manage_py_test(options: list[str]) -> None:
    """Django's runner makes its own database, in memory, runs the tests and drops it."""
    label = "tests.django.cases.InTestCase"
    other = "tests.django.cases.InTransactionTestCase"
    done = subprocess.run(
        [sys.executable, "-c", MANAGE, "test", label, other, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 11 tests" in done.stderr
