"""How gunicorn serves it: `gunicorn --config python:examples.erp.serving 'examples.erp.app:create_app()'`."""

from typing import Any

bind = "127.0.0.1:8000"
workers = 2
worker_class = "gthread"
threads = 8
preload_app = True


def post_worker_init(worker: Any) -> None:
    guard = worker.wsgi.extensions["retrysafe"].guard
    guard.check()  # one line in the log if the store cannot be used
    guard.drain_on()  # from SIGTERM on, nothing new is claimed


def worker_exit(_server: Any, worker: Any) -> None:
    guard = worker.wsgi.extensions["retrysafe"].guard
    guard.drain()
    guard.close()
