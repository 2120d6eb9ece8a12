"""Starts the servers of the quick start, by the page's own commands, from the files that it asks to save."""

import contextlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path, PurePath

from tests.docs import commands
from tests.docs.pages import page

PATIENCE = 60.0
"""Seconds: a server starts in one, on a machine that has nothing else to do."""

_MODULES = {"uvicorn": "uvicorn", "gunicorn": "gunicorn", "waitress-serve": "waitress"}
_ADDRESS = re.compile(r"http://127\.0\.0\.1:[1-9]\d*")


def save(folder: Path) -> None:
    """The files that the quick start asks for."""
    for block in page("docs/quickstart.md").blocks:
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def command(application: str, program: str) -> list[str]:
    """The page's command for this, for this Python and on any free port."""
    [line] = [
        line
        for block in page("docs/quickstart.md").blocks
        if block.language == "sh"
        for line in commands.lines(block.text)
        if application in line and PurePath(shlex.split(line)[0]).name == program
    ]
    words = shlex.split(line.replace("8000", "0"))
    return [sys.executable, "-m", _MODULES[PurePath(words[0]).name], *words[1:]]


@contextlib.contextmanager
def serve(folder: Path, words: list[str]) -> Generator[str]:
    """Start it in this folder.  Gives its address, once it serves there."""
    log = folder / f"{words[2]}.log"
    with log.open("wb") as written:
        process = subprocess.Popen(words, cwd=folder, stdout=written, stderr=subprocess.STDOUT)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextlib.contextmanager
def quickstart(folder: Path) -> Generator[str]:
    """The first application of the page."""
    save(folder)
    with serve(folder, command("pay:app", "uvicorn")) as address:
        yield address


def printed(folder: Path, program: str) -> str:
    """What a server and its application have written."""
    return (folder / f"{_MODULES[program]}.log").read_text(encoding="utf-8")


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        text = log.read_text(encoding="utf-8")
        if process.poll() is not None:
            raise AssertionError(f"the server ended:\n{text}")
        if found := _ADDRESS.search(text):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the server did not say where it is:\n{log.read_text(encoding='utf-8')}")
