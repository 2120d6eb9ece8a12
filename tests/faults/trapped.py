"""The reference application behind `launcher.py`, and how a test sets a trap and waits for it.

It has several workers that share one socket and one store: when one has fallen, another one answers, and the
parent puts a new one in its place.
"""

import contextlib
import os
import signal
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from retrysafe.testing.adapters.client import Reply, settled, until
from retrysafe.testing.adapters.crash import DISCONNECTED
from retrysafe.testing.adapters.server import Option, Process, Server

LAUNCHER = Path(__file__).with_name("launcher.py")


class Trapped(Server):
    """A server some of whose requests bring their worker down."""

    falls: Path

    @classmethod
    def start(
        cls, folder: Path, framework: Option = "asgi", store: str | None = None, **options: Option
    ) -> Self:
        """With a store of its own, or the one that is given."""
        store = store or f"sqlite:///{folder / 'keys.db'}"
        return cls(str(framework), store, folder / "effects", **options)

    def _start(self) -> Process:
        self.falls = self.effects_file.with_name("falls")
        self.falls.touch()
        if "-m" in self._command:
            at = self._command.index("-m")
            self._command[at : at + 2] = [str(LAUNCHER)]
        with _environment(RETRYSAFE_TRAPS=str(self.falls)):
            return super()._start()

    def fallen(self, trap: str, times: int = 1) -> list[int]:
        """Wait until so many have fallen into this trap since the file was begun; their processes."""
        found: list[int] = []

        def happened() -> bool:
            lines = [line.split(" ", 1) for line in self.falls.read_text().splitlines()]
            found[:] = [int(pid) for pid, what in lines if what == trap]
            return len(found) >= times

        until(happened)
        return found

    def killed(self, path: str, trap: str, **rest: Any) -> Reply | None:
        """Send a request whose worker dies there.  What was heard of it: nothing, if the connection broke."""
        before = self.falls.read_text().count(f" {trap}\n")
        answer = None
        with contextlib.suppress(*DISCONNECTED):
            answer = self.post(path, fields=[("Trap", trap)], **rest)
        self.fallen(trap, before + 1)
        return answer

    @contextmanager
    def frozen(
        self, path: str, trap: str, *, persistent: bool = False, **rest: Any
    ) -> "Generator[Future[Reply]]":
        """While entered, the worker that serves this request is frozen there; then it goes on.

        A persistent client sends again what is refused because another one is in flight.
        """
        before = self.falls.read_text().count(f" {trap}\n")

        def send() -> Reply:
            return self.post(path, fields=[("Trap", trap)], **rest)

        running = self.started((lambda: settled(send)) if persistent else send)
        pid = self.fallen(trap, before + 1)[-1]
        try:
            until(lambda: _state(pid) == "T")
            yield running
        finally:
            os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """End it and its workers, whichever state they are in."""
        for line in self.falls.read_text().splitlines():
            pid, what = line.split(" ", 1)
            if what.startswith("stop") and _parent(int(pid)) == self.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGCONT)
        self.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@contextmanager
def _environment(**values: str) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
