"""Makes the tables, and runs the service and its runner: `python -m examples.validation_service`."""

import argparse
import os
import signal
import subprocess
import sys
import threading

import django
from django.core.management import call_command
from django.db import connections, transaction

from examples.validation_service import environment
from examples.validation_service.jobs import process_lock

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
        command = [sys.executable, "-m", "examples.validation_service.jobs.runner"]
        return subprocess.Popen(command)

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._process.wait()
            if not self._closing.wait(_RESTART_AFTER):
                self._process = self._start()


def main(application: str = "examples.validation_service.wsgi") -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.validation_service")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.validation_service.settings")
    if given.port:
        os.environ.setdefault("VALIDATION_CALLBACK_URL", f"http://127.0.0.1:{given.port}/api/callbacks/")
    django.setup()
    set_up()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    command = [
        *(sys.executable, "-m", "gunicorn", "--config=python:examples.validation_service.gunicorn_conf"),
        *(f"--bind=127.0.0.1:{given.port}", f"--workers={given.workers}", application),
    ]
    runner = KeptRunner()
    gunicorn = subprocess.Popen(command)
    try:
        sys.exit(gunicorn.wait())
    except KeyboardInterrupt:
        sys.exit(0)  # which has reached gunicorn, too
    finally:
        gunicorn.terminate()
        gunicorn.wait()
        runner.close()
        for lock in environment.JOBS.glob("*/lock"):
            if (job := process_lock.holder(lock)) is not None:
                os.kill(job, signal.SIGTERM)  # it goes on when the service is started again


def set_up() -> None:
    """Tables, folders, and two organisations with tokens that everyone knows: this is an example."""
    call_command("migrate", verbosity=0)
    with transaction.atomic():
        for name in environment.ORGANISATIONS:
            add_organisation(name)
    connections.close_all()
    for folder in (environment.JOBS, environment.SPOOL):
        folder.mkdir(parents=True, exist_ok=True)


def add_organisation(name: str) -> None:
    from django.contrib.auth.models import User

    from examples.validation_service.jobs.checks import Check
    from examples.validation_service.validations.models import ApiToken, Organisation, Workflow

    organisation, is_new = Organisation.objects.get_or_create(name=name)
    if is_new:
        checks = [check.value for check in Check]
        Workflow.objects.create(organisation=organisation, name=environment.WORKFLOW, checks=checks)
        user = User.objects.create(username=name)
        ApiToken.issue(organisation, user, token=environment.demo_token(name))


if __name__ == "__main__":
    main()
