"""Starts servers, each a process of its own on a free port, and ends them."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from benchmarks import cores
from benchmarks.apps import ADDRESS
from benchmarks.database import Kind
from benchmarks.load import MARK

THREADS = 32
"""Of a gunicorn worker: one for each connection, as an event loop has a task for each."""

PATIENCE = 30.0
"""Seconds that a server may take to start on a busy machine."""


@dataclass(frozen=True)
class Server:
    """How one application is served."""

    app: str
    """The function in `apps.py`; in another module, if it is named before a dot."""
    kind: str = "uvicorn"
    needs: tuple[str, ...] = ()
    """Modules that must be there."""
    database: Kind | None = None
    """Which server it is given a database in."""
    replayed: str | None = MARK
    """By what its replays are known; `None`: by nothing."""
    runs: str | None = None
    """The path at which it tells how often its handler has run; `None`: it does not tell."""

    def command(self, folder: Path, descriptor: int) -> list[str]:
        if self.kind == "uvicorn":
            return [sys.executable, "-m", "benchmarks.serve", self.app, str(folder), str(descriptor)]
        app = f"benchmarks.apps:for_gunicorn({self.app!r}, {str(folder)!r})"
        return [
            *(sys.executable, "-m", "gunicorn", "--bind", f"fd://{descriptor}", "--log-level", "warning"),
            *("--worker-class", "gthread", "--workers", "1", "--threads", str(THREADS)),
            *("--keep-alive", "75", "--worker-connections", "1000", "--no-control-socket", app),
        ]


class Running:
    """A server that was started."""

    def __init__(self, server: Server, folder: Path, core: int | None, address: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if address is not None:
            (folder / ADDRESS).write_text(address, encoding="utf-8")
        self.folder = folder
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1024)
            self.port: int = listening.getsockname()[1]
            descriptor = listening.fileno()
            self.log = folder / "server.log"
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    server.command(folder, descriptor),
                    pass_fds=[descriptor],
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parent.parent,
                )
        cores.pin(core, self.process.pid)

    def wait(self) -> None:
        """Until it answers: the port accepts from the beginning, so an answer is the only sign."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                    probe.sendall(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    if probe.recv(1):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"a server did not start: {self.tail()}")

    def runs(self, path: str) -> int:
        """How often the handler has run."""
        with urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=PATIENCE) as response:
            return int(response.read())

    def tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-2000:].strip() or "it wrote nothing"

    def cpu(self) -> float:
        return cores.cpu_seconds(self.process.pid)

    def dismiss(self) -> None:
        """Ask it to end."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)

    def stop(self) -> None:
        self.dismiss()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
