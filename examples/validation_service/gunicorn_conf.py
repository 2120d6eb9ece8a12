"""How gunicorn serves it: each worker looks for jobs that are to be launched, and drains before it ends."""

import signal
from typing import Any

bind = "127.0.0.1:8000"
workers = 2
worker_class = "gthread"
threads = 8
control_socket_disable = True
"""It would be a file in the home of whoever runs the example."""


def post_worker_init(worker: Any) -> None:
    # The application is loaded by now, and models can be imported.
    from examples.validation_service.validations import launching
    from retrysafe.django import guard

    guard().check()  # one line in the log if the store cannot be used
    guard().drain_on()  # from SIGTERM on, nothing new is claimed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too; the master ends them
    launching.start()
    worker.log.info("Worker is ready [%d]", worker.pid)


def worker_exit(_server: Any, _worker: Any) -> None:
    from django.apps import apps

    from retrysafe.django import guard

    if not apps.ready:
        return  # it could not be loaded
    for profile in (None, "job-callbacks"):
        guard(profile).drain()
        guard(profile).close()
