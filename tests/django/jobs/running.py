"""The project's processes, and what they leave behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from examples.gates import Gates

ROOT = Path(__file__).parents[3]

PATIENCE = 60.0
"""Seconds: far more than anything takes, on a machine that has other things to do."""


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_duplicate(self) -> bool:
        return self.status == 200 and self.json()["idempotent_replayed"] is True


class Processes:
    """They end with the `with`.  Their log is in `folder`."""

    def __init__(self, folder: Path, database: str, broker: str = "memory://") -> None:
        self.folder = folder
        self.gates = Gates(folder)
        self.database = database
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.django.jobs.settings",
            "JOBS_FOLDER": str(folder),
            "JOBS_DATABASE": database,
            "JOBS_BROKER": broker,
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)

    # --- processes

    def start(self, *command: str, pass_fds: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=self._environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                pass_fds=pass_fds,
                start_new_session=True,  # a group of its own, so that it can be killed with its children
            )
        self._running.append(process)
        return process

    def serve(self, workers: int = 2, threads: int = 12) -> None:
        """gunicorn, on a port that is open before it has started."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
            descriptor = listener.fileno()
            options = [f"--bind=fd://{descriptor}", f"--workers={workers}", f"--threads={threads}"]
            options += ["--worker-tmp-dir=/dev/shm", "--no-control-socket"]
            self.start("-m", "gunicorn", "tests.django.jobs.wsgi", *options, pass_fds=(descriptor,))

    def shell(self, code: str) -> "subprocess.Popen[bytes]":
        """`manage.py shell`."""
        return self.start("-m", "django", "shell", "--command", code)

    def celery(self, processes: int = 2) -> None:
        options = [f"--concurrency={processes}", "--without-gossip", "--without-mingle", "--loglevel=INFO"]
        self.start("-m", "celery", "--app", "tests.django.jobs.tasks", "worker", *options)

    def wait_until_held(self, place: str) -> int:
        """The id of the process that has come to a gate that was closed."""
        self.wait_until(lambda: self.gates.held(place) is not None)
        held = self.gates.held(place)
        assert held is not None
        return held

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, f"what the test waits for does not happen; the log:\n{self.log}"
            time.sleep(0.01)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def notes(self, file: str) -> list[str]:
        found = self.folder / file
        return found.read_text().splitlines() if found.exists() else []

    # --- requests

    def post(self, path: str, payload: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Raises `OSError` where the connection breaks, as it does where its process is killed."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request("POST", path, json.dumps(payload), sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def deliver(self, path: str, payload: object) -> Reply:
        """As a sender does: until it is acknowledged."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                reply = self.post(path, payload)
            except OSError:
                reply = None
            if reply is not None and reply.status < 300:
                return reply
            assert time.monotonic() < until, self.log
            time.sleep(0.05)  # the sender's own pause

    def deliver_until_handled(self, path: str, payload: object) -> None:
        """To an inbox: until its worker has handled the event."""
        self.wait_until(lambda: self.post(path, payload).status == 200)
