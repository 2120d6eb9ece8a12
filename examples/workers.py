"""What the tests of tasks have in common: workers as processes, the books of the card network, records."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.gates import Gates
from retrysafe import stores
from retrysafe.stores.admin import Query, Sighting

PATIENCE = 60.0
"""Seconds: far more than anything takes, on a machine that has other things to do."""

LEASE = 1.0
"""Seconds: short, so that the key of a worker that was killed is soon tried again."""


class Workers:
    """They end with the `with`.  Their log is in `folder`."""

    def __init__(self, folder: Path, store: str, **environment: str) -> None:
        self.folder = folder
        self.gates = Gates(folder)
        self._environment = {
            **os.environ,
            "SHOP_FOLDER": str(folder),
            "SHOP_CARDS": str(folder / "cards.txt"),
            "SHOP_LABELS": str(folder / "labels"),
            "SHOP_LEASE": str(LEASE),
            **environment,
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._address = store
        self._store = stores.open(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._running:
            self.kill_worker()
        self._store.close()

    def start(self, module: str, *arguments: str, **environment: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", module, *arguments],
                    env={**self._environment, **environment},
                    cwd=Path(__file__).parents[1],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a group of its own, so that it can be killed with its pool
                )
            )

    def kill_worker(self) -> None:
        """SIGKILL for the one that has run longest, with its pool: the machine lost its power."""
        worker = self._running.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(PATIENCE)

    def wait_until_held(self, place: str) -> int:
        """The id of the process that has come to a gate that was closed."""
        self.wait_until(lambda: self.gates.held(place) is not None)
        held = self.gates.held(place)
        assert held is not None
        return held

    # --- what they did

    def charges(self, order: str) -> int:
        """How often the card network has charged for it."""
        books = self.folder / "cards.txt"
        lines = books.read_text().splitlines() if books.exists() else []
        return sum(line.split()[0] == order for line in lines)

    def record(self, key: str) -> Sighting:
        """Of a key, as operators see it."""
        admin = self._store.open_admin()
        try:
            [found] = admin.find(Query(key=key), 2)
            return found
        finally:
            admin.close()

    def command(self, *arguments: str) -> None:
        """A command of `retrysafe`, as an operator gives it."""
        subprocess.run(
            [sys.executable, "-m", "retrysafe", *arguments],
            env={**os.environ, "RETRYSAFE_STORE": self._address},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, (
                f"what the test waits for does not happen; the workers' log:\n{self.log}"
            )
            time.sleep(0.01)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")
