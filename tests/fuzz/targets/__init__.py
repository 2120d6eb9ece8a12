"""What is fuzzed: one module for each target, with `check(data: bytes)`, which raises if a promise is broken.

They are called millions of times and by two engines, so each does without fixtures, and calls the product
through its modules: what was replaced there, to plant a bug, is what is called.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

Check = Callable[[bytes], None]

LONGEST: Final[dict[str, int]] = {
    "key": 40,
    "structured": 40,
    "fingerprint": 40,
    "canonical": 40,
    "multipart": 48,
    "identity": 40,
    "codec": 40,
    "headers": 56,
    "scope": 24,
    "problem": 32,
    "duration": 20,
}
"""The targets, and up to how many bytes each is given: enough for everything that it can tell apart, since
small inputs are tried faster."""


class Broken(AssertionError):
    """A promise does not hold for this input."""


def load(name: str) -> Check:
    """The target of this name."""
    check: Check = import_module(f"tests.fuzz.targets.{name}").check
    return check
