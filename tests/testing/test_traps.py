"""What is put around the steps of both drivers, and a process that falls into a trap."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from retrysafe._core.steps import Pause
from retrysafe._runtime import drive_async, drive_sync
from retrysafe.testing import traps


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Copies of the drivers' tables, in their place until the end of the test."""
    monkeypatch.setattr(drive_sync, "_PERFORM", dict(drive_sync._PERFORM))
    monkeypatch.setattr(drive_async, "_PERFORM_ASYNC", dict(drive_async._PERFORM_ASYNC))
    return drive_sync._PERFORM, drive_async._PERFORM_ASYNC


def test_a_place_lasts_as_long_as_its_step(tables: tuple[dict[Any, Any], dict[Any, Any]]) -> None:
    """In either table, and whether the step is done when its entry returns or has to be awaited."""
    happened: list[str] = []

    @contextmanager
    def entered(name: str) -> Generator[None]:
        happened.append(f"before {name}")
        yield
        happened.append(f"after {name}")

    def at_once(step: Any, runtime: Any, performer: Any) -> str:
        happened.append(step)
        return "done"

    async def later(step: Any, runtime: Any, performer: Any) -> str:
        await asyncio.sleep(0)
        return at_once(step, runtime, performer)

    blocking, awaiting = tables
    untouched = [dict(table) for table in tables]
    for perform in (at_once, later):
        for table, before in zip(tables, untouched, strict=True):
            table.update(before)
        blocking[Pause], awaiting[Pause] = at_once, perform
        traps.around_steps(entered)
        assert blocking[Pause]("step", None, None) == "done"
        answer = awaiting[Pause]("step", None, None)
        assert (asyncio.run(answer) if perform is later else answer) == "done"
        assert happened == ["before Pause", "step", "after Pause"] * 2
        happened.clear()


def test_every_step_has_its_place(tables: tuple[dict[Any, Any], dict[Any, Any]]) -> None:
    before = [dict(table) for table in tables]
    traps.around_steps(lambda _: nullcontext())
    for table, plain in zip(tables, before, strict=True):
        assert table.keys() == plain.keys()
        assert all(table[step] is not plain[step] for step in table)


FALLS = """
import os, signal, sys
from contextlib import contextmanager
from retrysafe.testing import traps

@contextmanager
def falling(trap):
    os.write(writing, f"[{trap.how} {trap.where}]".encode())
    yield

for line in sys.stdin:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        traps.set_trap(line.strip(), falling)
        with traps.place("Commit"):
            os.write(writing, b"begun ")
            while " inside " in line:
                signal.pause()
            os.write(writing, b"done ")
        os.write(writing, b"over ")
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        ended = os.WSTOPSIG(status)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    else:
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    print(ended, os.read(reading, 1000).decode(), flush=True)
    os.close(reading)
"""


def test_a_process_that_falls() -> None:
    """It goes exactly as far as the trap says, and notes that it falls before."""
    wanted = {
        "kill before Commit": f"{signal.SIGKILL} [kill before Commit]",
        "kill after Commit": f"{signal.SIGKILL} begun done [kill after Commit]",
        "stop before Commit": f"{signal.SIGSTOP} [stop before Commit]",
        "stop after Commit": f"{signal.SIGSTOP} begun done [stop after Commit]",
        "kill before Finish": "0 begun done over ",
        "": "0 begun done over ",
    }
    *others, inside = _falls([*wanted, "kill inside Commit"])
    assert others == list(wanted.values())
    # Within two milliseconds: whether it has said that it began is a matter of chance.
    assert inside.startswith(f"{signal.SIGKILL:d} ")
    assert "[kill inside Commit]" in inside
    assert "done" not in inside


def _falls(set_traps: list[str]) -> list[str]:
    """How a process fared with each: by what it was ended or stopped, and what it had written."""
    done = subprocess.run(
        [sys.executable, "-c", FALLS],
        input="".join(f"{trap}\n" for trap in set_traps),
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.splitlines()
