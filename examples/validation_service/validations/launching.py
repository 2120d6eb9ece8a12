"""Launches what was committed, and launches it again until it has called back.

It runs in a thread of each worker, which is woken after a commit.  A worker that dies between the commit and
the launch has lost nothing: the execution is in its table, and the next thread that looks finds it.
"""

import logging
from collections.abc import Mapping
from threading import Event, Thread

from django.db import Error, close_old_connections

from examples.validation_service import environment
from examples.validation_service.jobs.checks import Check
from examples.validation_service.jobs.envelopes import CheckEnvelope
from examples.validation_service.jobs.launchers import Launcher, LocalLauncher, SpoolLauncher
from examples.validation_service.validations.models import Execution, Run

log = logging.getLogger("validation")

_news = Event()
wake = _news.set

LOCAL_JOBS = 2
"""Processes that a worker starts at once; what is too many waits in its table."""

LAUNCHERS: Mapping[Check, Launcher] = {
    Check.RANGE: LocalLauncher(LOCAL_JOBS, ended=wake),
    Check.CONTINUITY: SpoolLauncher(environment.SPOOL),
}
"""By check: one that is quick runs here, one that takes long where there is room for it."""


def new_envelope(run: Run, check: Check) -> CheckEnvelope:
    """What its job is given.  The callback id is made here, and so committed before there is a job."""
    envelope = CheckEnvelope.launch(
        run_id=str(run.pk),
        callback_url=environment.CALLBACK_URL,
        check=check,
        readings=run.readings,
        folder=environment.JOBS / f"{run.pk}-{check}",
    )
    if environment.CALLBACK_IDS:
        return envelope
    return envelope.model_copy(update={"context": envelope.context.model_copy(update={"callback_id": None})})


def start() -> None:
    """In each worker, when it has been forked."""
    Thread(target=_work, daemon=True).start()


def _work() -> None:
    while True:
        _news.clear()
        try:
            launch_missing()
        except (OSError, Error) as error:
            log.warning("not all jobs could be launched: %s", error)
        close_old_connections()
        _news.wait(environment.LAUNCH_EVERY)


def launch_missing() -> None:
    """Have a job for each execution that has not called back, unless its run was cancelled."""
    missing = Execution.objects.filter(finished=False, run__status=Run.Status.RUNNING).order_by("pk")
    for written in list(missing.values_list("envelope", flat=True)):
        envelope = CheckEnvelope.model_validate_json(written)
        LAUNCHERS[envelope.check].launch(envelope)
