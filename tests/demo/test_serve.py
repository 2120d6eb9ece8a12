"""`retrysafe demo --serve`: the commands that it prints do what their titles say."""

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
from tests.demo.demo_process import SERVE, TIMEOUT, Demo, interrupt

CURL = Path(__file__).with_name("curl.py")

FAST = (
    "from retrysafe.demo import serve; "
    f"serve.CAKE_SECONDS = serve.TEA_SECONDS = 4.0; serve.LEASE = 3.0; {SERVE}"
)
"""A program needs less time to paste the commands than a person."""


class Paster:
    """Pastes the commands below a title into a shell."""

    def __init__(self, demo: Demo, environment: dict[str, str]) -> None:
        self._environment = environment
        text = demo.read_until(lambda text: "has tea" in text and text.endswith("\n\n"))
        self.blocks: dict[str, str] = {}
        title = ""
        for line in text.splitlines():
            if re.match(r" +\d+ \S", line):
                title = line.split(maxsplit=1)[1]
            elif title and line.startswith("     "):
                self.blocks[title] = self.blocks.get(title, "") + line[5:] + "\n"

    def paste(self, title: str) -> str:
        found = [lines for heading, lines in self.blocks.items() if heading.startswith(title)]
        assert len(found) == 1, f"{title!r} is not one of {list(self.blocks)}"
        done = subprocess.run(
            ["sh"], input=found[0], capture_output=True, text=True, env=self._environment, timeout=TIMEOUT
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def paste_until(self, title: str, wanted: str) -> str:
        """Again and again, until `wanted` is in the response."""
        deadline = time.monotonic() + TIMEOUT
        while wanted not in (response := self.paste(title)):
            assert time.monotonic() < deadline, response
            time.sleep(0.2)
        return response


def receipt(response: str) -> str:
    return str(json.loads(response.strip().splitlines()[-1])["receipt"])


@pytest.fixture(params=["curl", "stand-in"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """With the real curl, and with a small one in Python for machines without it."""
    path = os.environ["PATH"]
    if request.param == "stand-in":
        script = tmp_path / "bin" / "curl"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{CURL}" "$@"\n')
        script.chmod(0o755)
        path = f"{script.parent}{os.pathsep}{path}"
    elif shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return {**os.environ, "PATH": path, "COLUMNS": "80"}


def test_the_commands_work(start: Start, environment: dict[str, str]) -> None:
    """From the first payment to the operator who releases the one during which the server was killed."""
    demo = start(FAST)
    paster = Paster(demo, environment)

    first = paster.paste("Pay for a coffee.")
    assert " 201 " in first
    again = paster.paste("The response was lost?")
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
    demo.read_until(lambda text: "The server was killed, and restarted" in text)
    unknown = paster.paste_until("Send it again", '"code": "outcome-unknown"')
    assert " 409 " in unknown
    assert "tea" not in paster.paste("What was really taken")

    listed = paster.paste("What waits for an operator")
    assert "abandoned" in listed
    assert "/payments" in listed
    paster.paste("There is no tea in the ledger")
    assert receipt(paster.paste_until("The customer retries once more", " 201 "))
    assert paster.paste("What was really taken").count("tea") == 1

    interrupt(demo)
    assert demo.end() == 0
    assert "Traceback" not in demo.text
    demo.assert_cleaned_up()


def test_it_looks_the_same_on_a_terminal(start: Start) -> None:
    """The commands are not wrapped, and Ctrl-C ends it."""
    demo = start(SERVE, columns=60)
    demo.read_until(lambda text: "has tea" in text)
    line = r"curl -i http://127\.0\.0\.1:\d+/payments -H 'X-Customer: ada' \\\n"
    assert re.search(line, demo.text)
    demo.type(b"\x03")
    assert demo.end() == 0
    demo.assert_cleaned_up()
