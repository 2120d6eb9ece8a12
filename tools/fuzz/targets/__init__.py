"""What is fuzzed: one module for each target, with `check(data: bytes)`, which raises if a promise is broken.

They are called millions of times and by two engines, so each does without fixtures, and calls the product
through its modules: what was replaced there, to plant a bug, is what is called.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

Check = Callable[[bytes], None]

LONGEST: Final[dict[str, int]] = {
    "key": 600,
    "structured": 40,
    "fingerprint": 40,
    "canonical": 300,
    "multipart": 48,
    "identity": 40,
    "codec": 40,
    "headers": 56,
    "scope": 24,
    "problem": 32,
    "duration": 20,
}
"""The targets, and up to how many bytes each is given.  Small inputs are tried faster, so there are no more
than it takes to get to the limits of what is tested: a key of 255 characters, all of them escaped, is 512
bytes long, and JSON that is nested a hundred times is 200.  Of the others no long input is tried."""


class Broken(AssertionError):
    """A promise does not hold for this input."""


def load(name: str) -> Check:
    """The target of this name."""
    check: Check = import_module(f"tools.fuzz.targets.{name}").check
    return check
