"""The steps for resolving an unknown outcome, taken as the page has them, against a store that has one."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from retrysafe import stores
from retrysafe._core.model import Claim, Found
from retrysafe.testing.stores import a_claim
from tests.docs import commands
from tests.docs.pages import page

SHOWN = "3f9a2c7e"
"""The record of the page."""


def steps() -> list[str]:
    """The commands of the section, in its order."""
    section = (
        page("docs/operating.md").text.partition("## Resolving unknown outcomes")[2].partition("\n## ")[0]
    )
    blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
    return [line for block in blocks for line in commands.lines(block) if not line.startswith("export ")]


class Case(NamedTuple):
    """An abandoned record in a store of its own."""

    url: str
    claim: Claim

    def do(self, command: str) -> str:
        """Run a command as the page has it, about this record and without being asked."""
        words = shlex.split(command.replace(SHOWN, self.claim.id.hex()[:8]))[1:]
        if words[0] in ("resolve", "release"):
            words.append("--yes")
        done = subprocess.run(
            [sys.executable, "-m", "retrysafe", *words],
            env={**os.environ, "RETRYSAFE_STORE": self.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def look(self) -> Found | None:
        store = stores.open(self.url)
        try:
            return store.look(self.claim.id)
        finally:
            store.close()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    url = f"sqlite:///{tmp_path}/keys.db"
    claim = a_claim("a key that nobody should see")._replace(lease=0.01, hold=3600.0)
    store = stores.open(url)
    store.reserve(claim)
    store.close()
    time.sleep(0.05)
    return Case(url, claim)


def test_finding_it(case: Case) -> None:
    """It is listed and shown, with what is needed to look for it elsewhere, and without its key."""
    listing, showing, *_ = steps()
    assert case.claim.id.hex()[:8] in case.do(listing)
    shown = case.do(showing)
    assert case.claim.request_id in shown
    assert str(case.claim.key) not in shown


@pytest.mark.parametrize(
    ("act", "status", "body"),
    [("resolve --done", 201, b'{"paid": 5}'), ("resolve --failed", 500, b""), ("release", None, b"")],
)
def test_settling_it(case: Case, act: str, status: int | None, body: bytes) -> None:
    """The record is then as the page says, and the audit trail knows why."""
    *_, trail = steps()
    [settle] = [step for step in steps() if all(f" {word} " in step for word in act.split())]
    case.do(settle)
    found = case.look()
    kept = found.record.response if found else None
    assert (kept.status if kept else None, kept.body if kept else b"") == (status, body)
    assert found is None or found.record.omitted == (not body)
    # The first word of it: a table may break a sentence into lines.
    assert shlex.split(settle)[-1].split()[0] in case.do(trail)


def test_every_step_is_taken() -> None:
    """Listing, showing, three ways to settle, looking back."""
    verbs = [shlex.split(step)[1] for step in steps()]
    assert verbs == ["ls", "show", "resolve", "resolve", "release", "audit"]
