"""Makes the tables, and runs the service and its runner: `python -m examples.validation_service`."""

import argparse
import os
import signal
import subprocess
import sys
import threading

import uvicorn
from sqlalchemy import orm

from examples.validation_service import process_lock, settings
from examples.validation_service.database import engine
from examples.validation_service.models import Base, Organisation

_RESTART_AFTER = 0.5
"""Seconds: a runner that cannot start is not started in a loop."""


class KeptRunner:
    """A runner, and another one when it dies, as a supervisor has it."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._process.terminate()
        self._thread.join()
        self._process.terminate()  # the one that was just started again, if so
        self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "examples.validation_service.runner"]
        return subprocess.Popen(command)

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._process.wait()
            if not self._closing.wait(_RESTART_AFTER):
                self._process = self._start()


def main(app: str = "examples.validation_service.app:app") -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.validation_service")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    set_up()
    runner = KeptRunner()
    try:
        uvicorn.run(app, port=given.port, workers=given.workers, access_log=False)
    finally:
        runner.close()
        for lock in settings.JOBS.glob("*/lock"):
            if (job := process_lock.holder(lock)) is not None:
                os.kill(job, signal.SIGTERM)  # it goes on when the service is started again


def set_up() -> None:
    """Here, because two workers would do it at the same time."""
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        for name in settings.ORGANISATIONS:
            if session.get(Organisation, name) is None:
                session.add(Organisation(name=name))
        session.commit()
    engine.dispose()
    for folder in (settings.JOBS, settings.SPOOL):
        folder.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()
