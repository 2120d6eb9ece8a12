"""Launches what was committed, and launches it again until it has called back.

It runs in a thread of each worker, which is woken after a commit.  A worker that dies between the commit and
the launch has lost nothing: the execution is in its table, and the next thread that looks finds it.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from threading import Event, Thread

from fastapi import FastAPI
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from examples.validation_service import settings
from examples.validation_service.checks import Check
from examples.validation_service.database import Session
from examples.validation_service.envelopes import CheckEnvelope
from examples.validation_service.launchers import Launcher, LocalLauncher, SpoolLauncher
from examples.validation_service.models import Execution

log = logging.getLogger("validation")

_news = Event()
wake = _news.set

LOCAL_JOBS = 2
"""Processes that a worker starts at once; what is too many waits in its table."""

LAUNCHERS: Mapping[Check, Launcher] = {
    Check.RANGE: LocalLauncher(LOCAL_JOBS, ended=wake),
    Check.CONTINUITY: SpoolLauncher(settings.SPOOL),
}
"""By check: one that is quick runs here, one that takes long where there is room for it."""


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    Thread(target=_work, daemon=True).start()
    yield


def _work() -> None:
    while True:
        _news.clear()
        try:
            launch_missing()
        except (OSError, OperationalError) as error:
            log.warning("not all jobs could be launched: %s", error)
        _news.wait(settings.LAUNCH_EVERY)


def launch_missing() -> None:
    """Have a job for each execution that has not called back."""
    with Session() as session:
        envelopes = session.scalars(
            select(Execution.envelope).where(~Execution.finished).order_by(Execution.id)
        ).all()
    for written in envelopes:
        envelope = CheckEnvelope.model_validate_json(written)
        LAUNCHERS[envelope.check].launch(envelope)
