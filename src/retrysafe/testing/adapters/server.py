"""The reference application as a process of its own, and the stores that can stand behind it."""

import contextlib
import os
import resource
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from retrysafe.testing.adapters.client import PATIENCE, Client
from retrysafe.testing.server_folder import children as children  # of processes of other kinds, too

Option = str | int | float | bool

# The reference application on a machine whose clock is wrong by so many seconds.
_SKEWED = """
import runpy, sys, time
skew, right = float(sys.argv.pop(1)), time.time
time.time = lambda: right() + skew
time.time_ns = lambda: int(time.time() * 1e9)
runpy.run_module("retrysafe.testing.reference", run_name="__main__", alter_sys=True)
"""


class Backing(Protocol):
    """A kind of store, as far as the suite has to know it."""

    @property
    def title(self) -> str:
        """Its name in reports."""
        ...

    @property
    def shared(self) -> bool:
        """Whether processes can share it, and it outlives them."""
        ...

    @property
    def one_writer(self) -> bool:
        """Whether a transaction that has written something keeps all others from writing."""
        ...

    def standing(self) -> AbstractContextManager[None]:
        """As long as it is entered, what it needs is there."""
        ...

    def new(self, folder: Path) -> str:
        """The URL of an empty one."""
        ...

    def outage(self, url: str) -> AbstractContextManager[None]:
        """As long as it is entered, no record can be written."""
        ...

    def outage_at_the_end(self, api: "Server") -> AbstractContextManager[None]:
        """The same for a server one of whose handlers may have written something in its transaction."""
        ...


def address(url: str) -> str:
    """Where a store is, whichever driver the application uses."""
    scheme, colon, rest = url.partition(":")
    return scheme.partition("+")[0] + colon + rest


class Sqlite:
    """`driver` is one of SQLAlchemy's, where the application is to have an engine."""

    shared = True
    one_writer = True

    def __init__(self, driver: str | None = None) -> None:
        self._scheme = f"sqlite+{driver}" if driver else "sqlite"
        self.title = f"SQLite, SQLAlchemy with {driver}" if driver else "SQLite"

    def standing(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def new(self, folder: Path) -> str:
        return f"{self._scheme}:///{folder / 'keys.db'}"

    @contextmanager
    def outage(self, url: str) -> Generator[None]:
        """Another program holds the write lock, as a stuck migration would."""
        path = address(url).removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    @contextmanager
    def outage_at_the_end(self, api: "Server") -> Generator[None]:
        """The disk is full, for the processes of the server: a transaction that has begun to write cannot
        commit.

        No other process can take the write lock from it.
        """
        limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in api.processes()}
        try:
            for pid, (_, hard) in limits.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
            yield
        finally:
            for pid, before in limits.items():
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


class Memory:
    title = "memory"
    shared = False
    one_writer = False

    def standing(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def new(self, folder: Path) -> str:  # noqa: ARG002 - it needs no place
        return "memory:"

    @contextmanager
    def outage(self, url: str) -> Generator[None]:  # noqa: ARG002 - there is nothing to take away
        pytest.skip("memory does not go away")
        yield

    def outage_at_the_end(self, api: "Server") -> AbstractContextManager[None]:
        return self.outage(api.store)


class Process(Protocol):
    """Of `subprocess.Popen`, what a server needs."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


def start(program: Sequence[str], stdout: int, stderr: int) -> Process:
    """Start a Python program, in a group of its own: it can be killed or frozen with all its workers."""
    return subprocess.Popen([sys.executable, *program], stdout=stdout, stderr=stderr, start_new_session=True)


launch: Callable[[Sequence[str], int, int], Process] = start
"""How a reference application becomes a process.  May be set to what takes less time."""


class Server(Client):
    """A running reference application.

    Options are those of its command line; `skew` sets its clock wrong, and with `trapdoor` it can be made to
    kill itself at a step of the protocol.
    """

    def __init__(self, framework: str, store: str, effects: Path, **options: Option) -> None:
        super().__init__(port=0)
        self.store = store
        self.effects_file = effects
        # gunicorn is a parent even to a single worker.
        alone = framework not in ("django", "flask", "wsgi") or options.get("server") == "waitress"
        self._has_parent = not alone or options.get("workers", 1) != 1
        self._trap = effects.with_name(f"trap-{id(self)}") if options.pop("trapdoor", False) else None
        skew = options.pop("skew", None)
        main = ["-m", "retrysafe.testing.reference"] if skew is None else ["-c", _SKEWED, str(skew)]
        if self._trap is not None:
            main = ["-m", "retrysafe.testing.adapters.trapdoor", str(self._trap)]
        self._command = [*main, framework, f"--store={store}"]
        self._command.append(f"--effects={effects}")
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            self._command.append(flag if value is True else f"{flag}={value}")
        self._log = effects.with_name(f"log-{id(self)}")
        self._process = self._start()

    def _start(self) -> Process:
        """Start it, on the port that it had before if it had one, and wait until it is ready."""
        ours, theirs = os.pipe()
        with open(ours) as stdout:
            with open(theirs, "wb"), self._log.open("ab") as log:
                process = launch([*self._command, f"--port={self.port}"], theirs, log.fileno())
            readable, _, _ = select.select([stdout], [], [], PATIENCE)
            line = stdout.readline() if readable else ""
        if not line.startswith("ready "):
            _signal_all(process, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"the server said {line!r} instead of being ready\n{self.log}")
        self.port = urlsplit(line.removeprefix("ready ").strip()).port or 0
        return process

    @property
    def log(self) -> str:
        """All that it has written to standard error."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def processes(self) -> list[int]:
        """It, and the workers that it has at this moment."""
        return [self.pid, *children(self.pid)]

    def trap(self, place: str) -> None:
        """Have the next process kill itself that comes there: `before Commit`, `after Commit`, …"""
        assert self._trap is not None, "it was started without a trapdoor"
        self._trap.write_text(place)

    def revive(self) -> None:
        """After a `/crash`: start it again, unless it has a parent process that does."""
        if not self._has_parent:
            self._process.wait(PATIENCE)
            self._process = self._start()

    def restart(self) -> None:
        """Kill it, all of it, and start it again."""
        self.kill()
        # A worker may take a moment to be gone, and holds the old port until then.
        self.port = 0
        self._process = self._start()

    def freeze(self) -> None:
        """Stop it where it is, all of it, as a machine does that is suspended."""
        _signal_all(self._process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        _signal_all(self._process, signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end, as a supervisor would."""
        self._process.send_signal(signal.SIGTERM)

    def exit_status(self) -> int:
        """How it ended; waits until it has."""
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        _signal_all(self._process, signal.SIGKILL)
        self._process.wait()


def _signal_all(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone, and so are its workers
        os.killpg(process.pid, number)
