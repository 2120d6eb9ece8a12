"""The service with a trap: `python -m examples.validation_service.tests.trapped`.

If the file `trap` is among its files, the worker that commits the next run dies before it launches the jobs.
"""

import os
import signal

from examples.validation_service import app as service
from examples.validation_service import launching, settings
from examples.validation_service.__main__ import main

app = service.app

_wake = launching.wake


def _die_or_wake() -> None:
    try:
        (settings.FILES / "trap").unlink()
    except FileNotFoundError:
        _wake()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


launching.wake = _die_or_wake


if __name__ == "__main__":
    main("examples.validation_service.tests.trapped:app")
