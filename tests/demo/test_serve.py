"""`retrysafe demo --serve`: the lines that it prints do what they promise when they are pasted."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.demo.conftest import Start
from tests.demo.demo_process import PATIENCE, SERVE, Demo, interrupt

STAND_IN = Path(__file__).with_name("curl.py")

BRISK = f"from retrysafe.demo import serve; serve.CAKE = serve.TEA = 4.0; serve.LEASE = 3.0; {SERVE}"
"""Who reads what happens needs more time than who pastes it."""


class Paster:
    """Pastes what stands below a heading into a shell."""

    def __init__(self, demo: Demo, environment: dict[str, str]) -> None:
        self._environment = environment
        text = demo.read_until(lambda text: "has tea" in text and text.endswith("\n\n"))
        self.blocks: dict[str, str] = {}
        heading = ""
        for line in text.splitlines():
            if re.match(r" +\d+ \S", line):
                heading = line.split(maxsplit=1)[1]
            elif heading and line.startswith("     "):
                self.blocks[heading] = self.blocks.get(heading, "") + line[5:] + "\n"

    def paste(self, heading: str) -> str:
        found = [lines for title, lines in self.blocks.items() if title.startswith(heading)]
        assert len(found) == 1, f"{heading!r} is not one of {list(self.blocks)}"
        done = subprocess.run(
            ["sh"], input=found[0], capture_output=True, text=True, env=self._environment, timeout=PATIENCE
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def paste_until(self, heading: str, wanted: str) -> str:
        """Again and again, until the answer is as wanted."""
        deadline = time.monotonic() + PATIENCE
        while wanted not in (answer := self.paste(heading)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)
        return answer


def receipt(answer: str) -> str:
    return str(json.loads(answer.strip().splitlines()[-1])["receipt"])


@pytest.fixture(params=["curl", "stand-in"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """With the real curl, and with one that every machine has."""
    path = os.environ["PATH"]
    if request.param == "stand-in":
        script = tmp_path / "bin" / "curl"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
        script.chmod(0o755)
        path = f"{script.parent}{os.pathsep}{path}"
    elif shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    return {**os.environ, "PATH": path, "COLUMNS": "80"}


def test_the_lines_work(start: Start, environment: dict[str, str]) -> None:
    """From the first payment to the operator who releases the one that the server died over."""
    demo = start(BRISK)
    paster = Paster(demo, environment)

    first = paster.paste("Pay for a coffee.")
    assert " 201 " in first
    again = paster.paste("The answer got lost?")
    assert "idempotent-replayed: true" in again.lower()
    assert receipt(again) == receipt(first)
    assert " 422 " in paster.paste("The same key for another amount")

    keyless = "Without a key, every request is a new payment."
    assert receipt(paster.paste(keyless)) != receipt(paster.paste(keyless))
    coffees = json.loads(paster.paste("What was really taken"))
    assert len(coffees) == 3

    meanwhile = paster.paste("A payment takes 4 seconds")
    assert " 409 " in meanwhile
    assert '"code": "in-flight"' in meanwhile
    assert '"order": "cake"' in meanwhile

    paster.paste("Kill the server")
    demo.read_until(lambda text: "The server was killed, and started again" in text)
    unknown = paster.paste_until("Send it again", '"code": "outcome-unknown"')
    assert " 409 " in unknown
    assert "tea" not in paster.paste("What was really taken")

    listed = paster.paste("What waits for an operator")
    assert "abandoned" in listed
    assert "/payments" in listed
    paster.paste("There is no tea in the ledger")
    assert receipt(paster.paste_until("The customer tries once more", " 201 "))
    assert paster.paste("What was really taken").count("tea") == 1

    interrupt(demo)
    assert demo.end() == 0
    assert "Traceback" not in demo.text
    demo.assert_nothing_left()


def test_it_looks_the_same_on_a_terminal(start: Start) -> None:
    """Lines that are pasted are not wrapped, and Ctrl-C ends it."""
    demo = start(SERVE, columns=60)
    demo.read_until(lambda text: "has tea" in text)
    line = r"curl -i http://127\.0\.0\.1:\d+/payments -H 'X-Customer: ada' \\\n"
    assert re.search(line, demo.text)
    demo.type(b"\x03")
    assert demo.end() == 0
    demo.assert_nothing_left()
