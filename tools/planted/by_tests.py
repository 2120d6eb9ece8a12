"""Run the tests that catch a planted bug, in a process of their own, with the bug in the code or without it.

As a plugin of pytest this module plants the bug that the environment names, before anything is collected.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.planted.bug import LeftToTests

LIMIT = 120.0
"""Seconds for one bug; most take five, of which a server takes one to start."""

_NAMED = "RETRYSAFE_PLANTED"
_ROOT = Path(__file__).parents[2]
_INVALID = "(SQLSTATE 42"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Ran(NamedTuple):
    failed: str | None
    """The first test that failed."""
    said: str


def run(tests: Sequence[str], planted: LeftToTests | None) -> Ran:
    """Run these tests.  Raises `RuntimeError` if they could not be run, or none was there."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-rfE",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        *tests,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if planted is not None:
        command += ["-p", __name__]
        environment[_NAMED] = planted.name
    ran = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    said = ran.stdout + ran.stderr
    if ran.returncode == pytest.ExitCode.OK and " passed" in said:
        return Ran(None, said)
    found = _FAILED.search(said)
    if ran.returncode != pytest.ExitCode.TESTS_FAILED or found is None:
        raise RuntimeError(f"pytest ended with {ran.returncode} for {', '.join(tests)}:\n{said}")
    if _INVALID in said:
        raise RuntimeError(f"a statement is not valid SQL, which would be noticed by any test:\n{said}")
    return Ran(found[1], said)


def pytest_configure(config: pytest.Config) -> None:
    from tools.planted.catalogue import TESTED

    planted = next(one for one in TESTED if one.name == os.environ[_NAMED])
    stack = ExitStack()
    stack.enter_context(planted.plant())
    config.add_cleanup(stack.close)
