"""The quick start, followed word by word: its files saved, its servers started, its commands run."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
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
            assert_prints(block, address, tmp_path)
    assert serving.printed(tmp_path, "uvicorn").count("charging 5") == 1


def assert_prints(block: Block, address: str, folder: Path) -> None:
    [command] = commands.typed(block.text)
    _, _, expected = block.text.replace("\\\n", " ").partition("\n")
    program, *arguments = shlex.split(command.replace("http://127.0.0.1:8000", address))
    if program == ".venv/bin/retrysafe":  # of this Python, in the folder with the page's store
        words = [sys.executable, "-m", "retrysafe", *arguments]
    else:
        words = [program, *arguments, "-sS"]
    done = subprocess.run(words, cwd=folder, capture_output=True, check=True, timeout=serving.PATIENCE)
    expected = expected.replace("http://127.0.0.1:8000", address)
    pattern = re.escape(_one_space(expected)).replace("…", ".*")
    shown = _one_space(done.stdout.decode().replace("\r\n", "\n"))
    assert re.fullmatch(pattern, shown, re.S), f"{block}: {shown}"


def _one_space(text: str) -> str:
    """The columns of a table are as wide as what stands in them, which is not the same each time."""
    return re.sub(r" +", " ", text.strip())


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
    """With every framework and server: charged once, and the second response is a replay."""
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


def test_the_published_example(tmp_path: Path) -> None:
    """The command that a service shows its clients runs as it is: first a response, then its replay."""
    if importlib.util.find_spec("fastapi") is None:
        pytest.skip("fastapi is not installed")
    if missing := [program for program in ("curl", "openssl") if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    serving.save(tmp_path)
    (tmp_path / "request.json").write_text('{"amount": 5}', encoding="utf-8")
    with serving.serve(tmp_path, serving.command("fast:app", "uvicorn")) as address:
        published = httpx.get(f"{address}/idempotency", headers={"Accept": "application/json"}).json()
        make, _, send = published["example"]["command"].partition("\n")
        assert f"{address}/payments" in send
        script = f"{make}\n{send} -sSi\n{send} -sSi\n"
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            check=True,
            timeout=serving.PATIENCE,
        )
    first, again = done.stdout.decode().split("HTTP/1.1 ")[1:]
    assert first.startswith("201")
    assert "idempotent-replayed" not in first
    assert "idempotent-replayed: true" in again
    assert serving.printed(tmp_path, "uvicorn").count("charging 5") == 1
