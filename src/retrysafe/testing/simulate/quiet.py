"""Silence in the log, for as long as worlds come and go."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quiet() -> Generator[None]:
    """A store says in the log what expired unresolved, and here that is thousands."""
    log = logging.getLogger("retrysafe.store")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
