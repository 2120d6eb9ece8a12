"""The load generator as the benchmark sees it."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.load import Order, Tally


class Client:
    """A process that carries out orders, one at a time."""

    def __init__(self, core: int | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load", *([] if core is None else [str(core)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def carry_out(self, order: Order) -> Tally:
        self.begin(order)
        return self.end()

    def begin(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()

    def end(self) -> Tally:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator has died; its own message is above")
        answer: dict[str, Any] = json.loads(line)
        return Tally(**answer)
