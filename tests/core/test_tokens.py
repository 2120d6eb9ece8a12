"""Tokens: no two draws are ever equal, in threads or in processes."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrysafe._core import tokens
from tests.core.values import in_a_child

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def test_sixteen_bytes() -> None:
    """128 bits, from the first of a page to the last."""
    assert {len(tokens.draw()) for _ in range(1000)} == {16}


def test_draws_are_unique() -> None:
    """Across several pages."""
    assert len({tokens.draw() for _ in range(5000)}) == 5000


def test_draws_are_unique_across_threads() -> None:
    """Eight threads that empty and fill the same pages."""
    with ThreadPoolExecutor(8) as threads:
        drawn = list(threads.map(lambda _: [tokens.draw() for _ in range(2000)], range(8)))
    assert len({token for tokens in drawn for token in tokens}) == 8 * 2000


@forks
def test_a_child_inherits_no_entropy() -> None:
    """Parent and child both draw from the same page otherwise, and fence each other's writes in (F9)."""
    tokens.draw()
    assert tokens._pieces
    waiting = {piece.hex() for piece in tokens._pieces}
    child = in_a_child(lambda: [tokens.draw().hex() for _ in range(300)]).decode()
    drawn = set(child.strip("[]").replace("'", "").split(", "))
    assert len(drawn) == 300
    assert not drawn & waiting
    assert not drawn & {tokens.draw().hex() for _ in range(300)}
