"""A simulator that never reports anything proves nothing: it catches a bug of every kind that is planted.

All of them are hunted by `make test-tools`.
"""

import pkgutil
from importlib import import_module

import pytest

import tools.planted
from tools.planted.bug import Planted
from tools.planted.catalogue import CATALOGUE
from tools.planted.hunt import hunt

KINDS: dict[str, tuple[Planted, ...]] = {
    found.name: bugs
    for found in pkgutil.iter_modules(tools.planted.__path__)
    if not found.name.startswith("_")
    and (bugs := getattr(import_module(f"tools.planted.{found.name}"), "PLANTED", None))
}
"""Modules of planted bugs, each about one part of the library, and what is in them."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_each_kind_is_caught(kind: str) -> None:
    planted = KINDS[kind][0]
    assert hunt(planted) is not None, f"was not noticed: {planted.name}"


def test_the_kinds_are_all_there_is() -> None:
    assert {planted for bugs in KINDS.values() for planted in bugs} == set(CATALOGUE)
