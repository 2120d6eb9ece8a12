"""The shop's workers: several processes on one socket, forked again as soon as one is gone.

python -m tests.crash.fleet URL WAY LEASE WORKERS
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from retrysafe.testing.adapters.server import children
from tests.crash.traps import FALLS

PATIENCE = 60.0


class Fleet:
    """Seen from outside."""

    def __init__(self, folder: Path, url: str, way: str, *, lease: float, workers: int) -> None:
        self._falls = folder / "falls"
        self._falls.touch()
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.fleet", url, way, str(lease), str(workers)],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, FALLS: str(self._falls)},
            )
        assert self._process.stdout is not None
        with self._process.stdout as out:
            readable, _, _ = select.select([out], [], [], PATIENCE)
            line = out.readline().decode() if readable else ""
        if not line.startswith("ready "):
            self.end()
            raise AssertionError(f"the fleet said {line!r} instead of being ready\n{self.log}")
        self.port = int(line.strip().rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def workers(self) -> list[int]:
        return children(self._process.pid)

    def falls(self) -> list[tuple[int, str]]:
        """Who fell into a trap so far, and into which."""
        lines = [line.split(" ", 1) for line in self._falls.read_text().splitlines()]
        return [(int(pid), what) for pid, what in lines]

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to one of its workers; whether it was there."""
        if pid not in self.workers():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.end()


def main(url: str, way: str, lease: str, workers: str) -> None:
    from retrysafe.testing.reference.serve import serve
    from tests.crash import orders, traps

    logging.basicConfig(format="%(process)d %(name)s %(levelname)s %(message)s")
    traps.install()
    app, guard = orders.build(url, way, float(lease))  # type: ignore[arg-type]  # the command line's
    serve(app, guard, port=0, workers=int(workers), grace=5.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
