"""The service as a process that can be killed and started again, at the same address."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

PATIENCE = 60.0
"""Seconds until a service that does not start is given up: far more than it takes, on a busy machine too."""

TOKEN = "a-token-of-the-storm"

LEASE = "2"
"""Seconds: short, so that a retry soon takes over from a server that was killed."""


class Service:
    """Runs as long as the `with` does.  Its databases and its log are in `folder`; its keys in any store."""

    def __init__(self, folder: Path, keys: str | None = None) -> None:
        self.database = f"sqlite:///{folder}/workflows.sqlite"
        self.deliveries = folder / "deliveries.sqlite"
        self.kills = 0
        self._log = folder / "service.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self._environment = {
            **os.environ,
            "CONTROL_DATABASE": self.database,
            "CONTROL_KEYS": keys or f"sqlite:///{folder}/keys.db",
            "CONTROL_DELIVERIES": str(self.deliveries),
            "CONTROL_LEASE": LEASE,
            "CONTROL_TOKENS": f"storm={TOKEN}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C too: no process may be left running
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self) -> None:
        """Start it, and wait until it is healthy."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.workflow_control", f"--port={self._port}"],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=Path(__file__).parents[2],
            )
        until = time.monotonic() + PATIENCE
        while not self._is_healthy():
            if (status := self._process.poll()) is not None:
                raise RuntimeError(
                    f"the service ended with {status} when it was started; its log:\n{self.log}"
                )
            if time.monotonic() > until:
                raise RuntimeError(f"the service was not ready within {PATIENCE:g} s; its log:\n{self.log}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; and start it again."""
        self._end()
        self.kills += 1
        self.start()

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
