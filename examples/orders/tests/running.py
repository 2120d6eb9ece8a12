"""The shop and its provider as processes, and their books."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, create_engine, orm, select

from examples.orders.models import Instruction
from examples.orders.setup import fill

PATIENCE = 60.0
"""Seconds: far more than anything takes, on a machine that has other things to do."""

_LEASE = "1"
"""Short, so that a key whose worker was killed is soon tried again."""


class Shop:
    """Any number of servers behind one address."""

    def __init__(self, launcher: "subprocess.Popen[str]", engine: Engine, books: Path) -> None:
        self._launcher = launcher
        self.engine = engine
        self.books = books
        self.address = f"http://127.0.0.1:{self._read_line()}"
        self.servers: list[int] = []

    def start(self) -> None:
        assert self._launcher.stdin is not None
        self._launcher.stdin.write("one more\n")
        self._launcher.stdin.flush()
        self.servers.append(int(self._read_line()))

    def kill(self) -> None:
        """The one that has run longest, at once and whatever it is doing."""
        os.kill(self.servers.pop(0), signal.SIGKILL)

    def wait_for_outbox(self) -> None:
        """Until all instructions were sent to the provider."""
        until = time.monotonic() + PATIENCE
        with orm.Session(self.engine) as session:
            while session.scalars(select(Instruction).where(~Instruction.sent)).first() is not None:
                session.rollback()
                assert time.monotonic() < until, "the outbox is not delivered"
                time.sleep(0.05)

    def _read_line(self) -> str:
        assert self._launcher.stdout is not None
        line = self._launcher.stdout.readline()
        assert line, "the launcher has ended"
        return line.strip()


@contextmanager
def running(url: str, folder: Path) -> Generator[Shop]:
    """A shop that was just opened, and has no server yet."""
    engine = create_engine(url)
    fill(engine)
    books = folder / "provider.db"
    provider = _start("examples.orders.provider", "--port", "0", "--books", str(books), "--delay", "0.02")
    try:
        assert provider.stdout is not None
        address = provider.stdout.readline().split()[-1]
        launcher = _start(
            "examples.orders.tests.launcher", SHOP_DATABASE=url, SHOP_PROVIDER=address, SHOP_LEASE=_LEASE
        )
        try:
            yield Shop(launcher, engine, books)
        finally:
            assert launcher.stdin is not None
            launcher.stdin.close()
            launcher.wait(PATIENCE)
            _close(launcher)
    finally:
        provider.kill()
        provider.wait(PATIENCE)
        _close(provider)
        engine.dispose()


def _start(module: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[3],
    )


def _close(process: "subprocess.Popen[str]") -> None:
    for end in (process.stdin, process.stdout):
        if end is not None:
            end.close()
