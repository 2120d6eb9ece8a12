"""A MariaDB server of one's own: from the machine's packages, on a free port, gone afterwards.

    with MariaDBServer() as server:
        store = stores.open(server.new_database())

It needs the programs `mariadbd` and `mariadb-install-db`, which no wheel has: Debian's `mariadb-server` does,
and the service that comes with it need not run.  It listens on the loopback interface only, reads none of the
machine's configuration, and lives in a folder that it removes.  It does not outlive this process, even if
that is killed.  Its password is new each time, so that a client never meets another server that happens to
listen where this one did.

It can be treated as badly as a real one: `kill` and `start` again, `freeze` and `thaw`.
"""

import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymysql

from retrysafe.testing.ports import free_port
from retrysafe.testing.server_folder import ServerFolder
from retrysafe.testing.unprivileged import UID, check, own, start

PATIENCE = 60.0
"""Seconds until a server that does not start, or does not stop, is given up.  Far more than it takes."""

_USER = "test"

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "max-connections": "512",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-autoextend-increment": "8",  # the default of 64 writes 64 MB as soon as a table is made
    "innodb-buffer-pool-dump-at-shutdown": "OFF",
    "innodb-fast-shutdown": "2",  # the log is enough to start again
    "feedback": "OFF",
}


def is_available() -> bool:
    """Whether the server's programs are installed."""
    return _find("mariadbd") is not None and _find("mariadb-install-db") is not None


class _Template:
    """An empty data folder to be copied: to make one takes seconds.  One for this process, made by the first
    server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: ServerFolder | None = None

    def copy(self, data: Path) -> None:
        with self._lock:
            if self._folder is None:
                self._folder = self._make()
        # By a program, because that runs as the user who owns it.
        check(["/bin/cp", "-R", self._folder.path / _DATA, data])

    def _make(self) -> ServerFolder:
        folder = _make_folder()
        atexit.register(folder.close)
        check(
            [
                _program("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={folder.path / _DATA}",
                # A server that starts removes the temporary tables of all others in the same folder.
                f"--tmpdir={folder.path}",
                # `root` gets in by the socket of the server's own user, and without a password nowhere.
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={pwd.getpwuid(UID).pw_name}",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-log-file-size=4M",
                "--innodb-flush-method=nosync",
            ]
        )
        return folder


_template = _Template()
_DATA = "data"


def _make_folder() -> ServerFolder:
    folder = ServerFolder("mariadb", pid_file="pid", argument=_DATA)
    own(folder.path)
    return folder


class MariaDBServer:
    """One server.  Started when it is made; `with` stops it and removes everything.

    Settings are those of an option file, with `_` for `-`.  `innodb_flush_method="nosync"` spares the disk:
    clients see no difference, and what was committed is lost only if the machine itself goes down.  Servers
    that are one to their clients need the same `password`.
    """

    def __init__(self, *, password: str | None = None, **settings: str) -> None:
        self._program = _program("mariadbd")
        self._place = _make_folder()
        self._folder = self._place.path
        self._settings = dict(_SETTINGS)
        self._password = password or secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.port = free_port()
            _template.copy(self._folder / _DATA)
            self.configure(**settings)
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
            command = [
                self._program,
                f"--defaults-file={self._folder / 'my.cnf'}",
                "--datadir",  # apart from its value, by which the process is recognised
                str(self._folder / _DATA),
            ]
            self._process = start(command, log)
        until = time.monotonic() + PATIENCE
        while not self._responds():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"MariaDB did not start:\n{self.log}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end: clients are disconnected, and everything committed is on disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what the server had not yet given to the operating system is lost."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is: connections stay open and get no response."""
        self._running().send_signal(signal.SIGSTOP)
        # Its threads do not all stop at once: one of them could execute a statement still.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in, and remove all that it has written."""
        self._end(signal.SIGKILL)
        self._place.close()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE)

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "the server does not run"
        return self._process

    # --- what is in it

    def url(self, database: str) -> str:
        return f"mysql://{_USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    @property
    def socket(self) -> Path:
        """Where it listens besides: a client names it in the address as `?unix_socket=`."""
        return self._folder / "socket"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database that `new_database` created, even if clients are connected to it."""
        name = url.rpartition("/")[2]
        if not name.startswith("test_") or url != self.url(name):
            raise ValueError(f"{url} is not a database that this server created")
        self.execute(f"DROP DATABASE {name}")

    @property
    def log_file(self) -> Path:
        return self._folder / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @contextlib.contextmanager
    def connected(self) -> "Generator[pymysql.Connection[Any]]":
        """A connection of an operator: only this server has this password."""
        with pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=_USER,
            password=self._password,
            connect_timeout=2,
            read_timeout=PATIENCE,
            autocommit=True,
        ) as connection:
            yield connection

    def execute(self, statement: str) -> "tuple[tuple[Any, ...], ...]":
        """The rows of a statement, on a connection of its own."""
        with self.connected() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    @contextlib.contextmanager
    def paused(self) -> "Generator[None]":
        """Let it write nothing meanwhile, what other servers send included; it can be read."""
        with self.connected() as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            yield

    def _responds(self) -> bool:
        # Asked first without an attempt to log in, which the server's log would report.
        if not self.socket.exists():
            return False
        with contextlib.suppress(pymysql.OperationalError):
            return self.execute("SELECT 1") == ((1,),)
        return False

    def configure(self, **settings: str) -> None:
        """Change settings, from the next start on."""
        self._settings.update({name.replace("_", "-"): value for name, value in settings.items()})
        # Each statement of such a file is one line.  It is executed before the first client is accepted.
        first = self._private("first.sql")
        first.write_text(
            f"CREATE OR REPLACE USER {_USER}@'127.0.0.1' IDENTIFIED BY '{self._password}';\n"
            f"CREATE OR REPLACE USER {_USER}@localhost IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO {_USER}@'127.0.0.1' WITH GRANT OPTION;\n"
            f"GRANT ALL ON *.* TO {_USER}@localhost WITH GRANT OPTION;\n"
        )
        # Of its own: a server that starts removes what it takes for leftovers in a folder that others share.
        temporary = self._folder / "tmp"
        temporary.mkdir(mode=0o700, exist_ok=True)
        own(temporary)
        said = {
            **self._settings,
            "port": str(self.port),
            "tmpdir": str(temporary),
            # Below the data folder, in which the server runs: a whole path may be too long for a socket.
            "socket": "../socket",
            "pid-file": str(self._folder / "pid"),
            "init-file": str(first),
        }
        lines = "".join(f'{name} = "{value}"\n' for name, value in said.items())
        self._private("my.cnf").write_text(f"[mariadbd]\n{lines}")

    def _private(self, name: str) -> Path:
        file = self._folder / name
        file.touch(mode=0o600)
        own(file)
        return file


def _find(name: str) -> str | None:
    # Daemons are in a folder that only root has on its path.
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/libexec")


def _program(name: str) -> str:
    found = _find(name)
    if found is None:
        raise RuntimeError(
            f"{name} is not installed: run `make services`, or install Debian's mariadb-server"
        )
    return found
