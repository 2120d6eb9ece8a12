"""A check that never reports anything proves nothing: a bug of every kind that is planted is caught.

All of them are hunted by `make test-tools`.
"""

import pkgutil
from importlib import import_module

import pytest

import tools.planted
from retrysafe.testing.postgres import is_available
from tools.planted import by_tests
from tools.planted.bug import LeftToTests, Planted
from tools.planted.catalogue import CATALOGUE, TESTED
from tools.planted.hunt import hunt

MODULES = {
    found.name: import_module(f"tools.planted.{found.name}")
    for found in pkgutil.iter_modules(tools.planted.__path__)
    if not found.name.startswith("_") and found.name != "catalogue"
}
KINDS: dict[str, tuple[Planted, ...]] = {
    name: bugs for name, module in MODULES.items() if (bugs := getattr(module, "PLANTED", ()))
}
"""Modules of planted bugs, each about one part of the library, and what is in them."""

TESTED_KINDS: dict[str, tuple[LeftToTests, ...]] = {
    name: bugs for name, module in MODULES.items() if (bugs := getattr(module, "TESTED", ()))
}
"""Those that are left to tests."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_each_kind_is_caught(kind: str) -> None:
    planted = KINDS[kind][0]
    assert hunt(planted) is not None, f"was not noticed: {planted.name}"


@pytest.mark.skipif(not is_available(), reason="PostgreSQL is not installed")
@pytest.mark.parametrize("kind", TESTED_KINDS)
def test_the_first_of_each_kind_makes_its_test_fail(kind: str) -> None:
    planted = TESTED_KINDS[kind][0]
    assert by_tests.run([planted.test], planted).failed is not None, f"was not noticed: {planted.name}"


def test_the_kinds_are_all_there_is() -> None:
    assert {planted for bugs in KINDS.values() for planted in bugs} == set(CATALOGUE)
    assert {planted for bugs in TESTED_KINDS.values() for planted in bugs} == set(TESTED)
