"""The quick start, followed word by word: its files saved, its servers started, its `curl` lines typed."""

import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.docs import commands, serving
from tests.docs.pages import Block, page

HEADERS = {"Idempotency-Key": "order-1", "X-Tenant": "acme"}
CONSOLE = [block for block in page("docs/quickstart.md").blocks if block.language == "console"]


def test_transcripts(tmp_path: Path) -> None:
    """Each command prints what the page says it prints, in the page's order; and the card is charged once."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with serving.quickstart(tmp_path) as address:
        for block in CONSOLE:
            assert_prints(block, address)
    assert serving.printed(tmp_path, "uvicorn").count("charging 5") == 1


def assert_prints(block: Block, address: str) -> None:
    [command] = commands.typed(block.text)
    _, _, expected = block.text.replace("\\\n", " ").partition("\n")
    words = shlex.split(command.replace("http://127.0.0.1:8000", address))
    done = subprocess.run([*words, "-sS"], capture_output=True, check=True, timeout=serving.PATIENCE)
    pattern = re.escape(expected.replace("http://127.0.0.1:8000", address).strip()).replace("…", ".*")
    shown = done.stdout.decode().replace("\r\n", "\n").strip()
    assert re.fullmatch(pattern, shown, re.S), f"{block}: {shown}"


def test_the_record_outlives_the_server(tmp_path: Path) -> None:
    """As the page says: stop it, start it again, and the same request is a replay."""
    with serving.quickstart(tmp_path) as address:
        first = httpx.post(f"{address}/payments", json={"amount": 5}, headers=HEADERS)
    with serving.quickstart(tmp_path) as address:
        again = httpx.post(f"{address}/payments", json={"amount": 5}, headers=HEADERS)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content


@pytest.mark.parametrize(
    ("application", "program", "needs"),
    [
        ("plain:app", "gunicorn", "gunicorn"),
        ("plain:app", "waitress-serve", "waitress"),
        ("fast:app", "uvicorn", "fastapi"),
    ],
)
def test_the_other_applications(application: str, program: str, needs: str, tmp_path: Path) -> None:
    """Whichever framework and server: charged once, answered twice."""
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    serving.save(tmp_path)
    with serving.serve(tmp_path, serving.command(application, program)) as address:
        first, again = (
            httpx.post(f"{address}/payments", json={"amount": 5}, headers=HEADERS) for _ in range(2)
        )
    assert (first.status_code, first.json()) == (201, {"paid": 5})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content
    assert serving.printed(tmp_path, program).count("charging 5") == 1


def test_the_page_asks_for_files() -> None:
    """Else the tests above would start nothing."""
    assert [block.file for block in page("docs/quickstart.md").blocks if block.file] == [
        "pay.py",
        "fast.py",
        "plain.py",
    ]
