"""The workers of the application: several processes on one socket, forked again as soon as one is gone.

python -m tools.crash.workers STORE URL WAY MODE DOOR LEASE WORKERS
"""

import contextlib
import gc
import logging
import os
import select
import signal
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from retrysafe.testing.adapters.server import children
from tools.crash.journal import JOURNAL, Entry, Reader
from tools.crash.modes import Door, Mode

PATIENCE = 60.0


class WorkerGroup:
    """The workers, as the harness sees them."""

    def __init__(
        self,
        folder: Path,
        store: str,
        url: str,
        way: str,
        mode: Mode,
        *,
        lease: float,
        workers: int,
        door: Door = "request",
    ) -> None:
        journal = folder / "journal"
        self._reader = Reader(journal)
        self._trapped: list[Entry] = []
        self._log = folder / "log"
        arguments = [store, url, way, mode, door, str(lease), str(workers)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, *arguments],
                stdin=subprocess.PIPE,  # nothing is ever written to it; it closes when the harness ends
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, JOURNAL: str(journal)},
            )
        try:
            self.port = self._await_port()
        except BaseException:
            self.end()
            raise

    def _await_port(self) -> int:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            readable, _, _ = select.select([out], [], [], PATIENCE)
            line = out.readline().decode() if readable else ""
        if not line.startswith("ready "):
            raise RuntimeError(f"the workers wrote {line!r}: expected 'ready HOST:PORT'\n{self.log}")
        return int(line.strip().rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def pids(self) -> list[int]:
        return children(self._process.pid)

    def news(self) -> list[Entry]:
        """What they have written to their journal since the last call."""
        entries = self._reader.news()
        self._trapped += [entry for entry in entries if entry.event == "trapped"]
        return entries

    def trapped(self) -> list[tuple[int, str]]:
        """The workers that reached a trap so far, and which."""
        self.news()
        return [(entry.pid, " ".join(entry.fields[:2])) for entry in self._trapped]

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to one of its workers; whether it was there."""
        if pid not in self.pids():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.end()


def main(store: str, url: str, way: str, mode: Mode, door: Door, lease: str, workers: str) -> None:
    """In the process that forks the workers: what they need is loaded before."""
    _end_with_the_harness()
    from retrysafe.testing.reference.serve import serve
    from tools.crash import application, planted, targets, traps
    from tools.crash.journal import Journal

    logging.basicConfig(format="%(process)d %(name)s %(levelname)s %(message)s")
    target = targets.find(store)
    planted.plant()
    path = Path(os.environ[JOURNAL])
    journal = Journal(str(path))
    traps.install(journal)
    target.install_traps()
    app, guard = application.build(target, url, way, mode, door, float(lease), journal, path.parent)
    _warm_up()
    serve(app, guard, port=0, workers=int(workers), grace=5.0)


def _end_with_the_harness() -> None:
    """However that ends: a process waits for it that is never frozen, and is not one of our children.

    Only a SIGKILL ends a worker that is frozen at that moment; it ends the whole group, and this one with it.
    """
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
        return
    if os.fork() != 0:
        os._exit(0)
    os.close(sys.stdout.fileno())  # the harness, which waits for `ready`, must see it close
    os.read(sys.stdin.fileno(), 1)
    os.killpg(0, signal.SIGKILL)


def _warm_up() -> None:
    """What every worker would import by itself, which is half of the time until it serves."""
    import_module("uvicorn.protocols.http.auto")
    import_module("uvicorn.lifespan.on")
    if find_spec("uvloop") is not None:
        import_module("uvloop")
    gc.collect()
    gc.freeze()  # else each would copy what its collector looks through and never frees


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # mode and door, as `WorkerGroup` has passed them
