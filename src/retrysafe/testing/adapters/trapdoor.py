"""The reference application with a trapdoor: it kills itself before or after a step of the protocol.

    python -m retrysafe.testing.adapters.trapdoor FILE asgi --store URL --port N …

As long as FILE is not there, nothing happens.  If it says `before Commit`, the next process that is about to
perform a `Commit` removes it and is gone; `after Commit` likewise, before anybody is told.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from retrysafe._runtime import drive_async, drive_sync
from retrysafe.testing.reference.__main__ import main

_file = Path(os.devnull)


def _reach(moment: str, step: object) -> None:
    try:
        wanted = _file.read_text()
    except FileNotFoundError:
        return
    if wanted == f"{moment} {type(step).__name__}":
        _file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _around(perform: Callable[..., object]) -> Callable[..., object]:
    def performed(step: object, *rest: Any) -> object:
        _reach("before", step)
        answer = perform(step, *rest)
        _reach("after", step)
        return answer

    return performed


def _around_async(perform: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    async def performed(step: object, *rest: Any) -> object:
        _reach("before", step)
        answer = await perform(step, *rest)
        _reach("after", step)
        return answer

    return performed


if __name__ == "__main__":
    _file = Path(sys.argv.pop(1))
    # No product code knows of this: it is put around what performs the steps.
    blocking = drive_sync._PERFORM  # pyright: ignore[reportPrivateUsage]
    blocking.update({kind: _around(perform) for kind, perform in blocking.items()})
    awaiting = drive_async._PERFORM_ASYNC  # pyright: ignore[reportPrivateUsage]
    awaiting.update({kind: _around_async(perform) for kind, perform in awaiting.items()})
    main()
