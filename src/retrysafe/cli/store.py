"""Opens the store that a command was pointed at, as its operator."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from retrysafe import stores
from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.options import ENVIRONMENT
from retrysafe.stores.admin import Admin

_PATIENCE = 5.0
"""Seconds.  A person waits longer than a client, and a busy store deserves its chance."""


class _Aloud(logging.Handler):
    """What a service would log, a command says: a record that had to be left out of a list, for instance."""

    def emit(self, record: logging.LogRecord) -> None:
        output.complain(record.getMessage(), "")


@contextmanager
def admin_of(url: str | None) -> Generator[Admin]:
    """The operator's end of the store, for as long as the command needs it."""
    logging.getLogger("retrysafe").addHandler(_Aloud())
    store = stores.open(_checked(url), deadline=_PATIENCE)
    try:
        admin = store.open_admin()
        try:
            yield admin
        finally:
            admin.close()
    finally:
        store.close()


def _checked(url: str | None) -> str:
    if not url:
        raise Failure(
            "no store is named",
            "Give --store sqlite:///keys.db or --store postgresql://user@host/database, or set "
            f"{ENVIRONMENT} to such an address.",
            Exit.USAGE,
        )
    if url.startswith("memory:"):
        raise Failure(
            "memory: is inside of the process that uses it, and cannot be looked at from here",
            "A store that several processes share has a file or a server: sqlite:///keys.db, "
            "postgresql://user@host/database.",
            Exit.USAGE,
        )
    return url
