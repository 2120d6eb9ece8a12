"""The service with traps: `python -m examples.validation_service.tests.trapped`.

A trap is a file of this name among the files of the service, and the next run that is started falls into it:

    fail before commit    the view raises, when it has counted the run
    die before commit     the worker dies there
    die after commit      the worker dies before it launches the jobs
"""

import os
import signal
from typing import Any

from examples.validation_service import environment
from examples.validation_service.__main__ import main


def _is_set(trap: str) -> bool:
    try:
        (environment.FILES / trap).unlink()
    except FileNotFoundError:
        return False
    return True


def _set_traps() -> None:
    from examples.validation_service.validations import launching

    new_envelope, wake = launching.new_envelope, launching.wake

    def new_envelope_or_fail(*given: Any) -> Any:
        if _is_set("fail before commit"):
            raise RuntimeError("a trap")
        if _is_set("die before commit"):
            os.kill(os.getpid(), signal.SIGKILL)
        return new_envelope(*given)

    def wake_or_die() -> None:
        if _is_set("die after commit"):
            os.kill(os.getpid(), signal.SIGKILL)
        wake()

    setattr(launching, "new_envelope", new_envelope_or_fail)  # noqa: B010 - typed
    launching.wake = wake_or_die


if __name__ == "__main__":
    main("examples.validation_service.tests.trapped")
else:  # in each worker
    from examples.validation_service.wsgi import application as application

    _set_traps()
