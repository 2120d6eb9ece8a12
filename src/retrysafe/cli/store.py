"""Opens the store that `--store` names, or that of a project, for an operator."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from retrysafe import stores
from retrysafe.cli import output, projects
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.options import ENVIRONMENT
from retrysafe.stores.admin import Admin

_DEADLINE = 5.0
"""Seconds, where services have 2: a person waits longer than a client, and a busy store may need it."""


class _ToStderr(logging.Handler):
    """Prints what a service would log, such as a record that had to be left out of a list."""

    def emit(self, record: logging.LogRecord) -> None:
        output.report(record.getMessage(), "")


@contextmanager
def open_admin(url: str | None) -> Generator[Admin]:
    """The store's admin interface, closed at the end of the block."""
    logging.getLogger("retrysafe").addHandler(_ToStderr())
    project = projects.current()
    if project is None:
        store, is_own = stores.open(check_address(url), deadline=_DEADLINE), True
    else:
        store, is_own = project.open_store()
    try:
        admin = store.open_admin()
        try:
            yield admin
        finally:
            admin.close()
    finally:
        if is_own:
            store.close()


def check_address(url: str | None) -> str:
    """An address that a command can open; the others have a sentence each."""
    if not url:
        raise Failure(
            "no store was given",
            f"Give --store with the service's address, such as {_examples()}, or set {ENVIRONMENT} to it.",
            Exit.USAGE,
        )
    if url.startswith("memory:"):
        raise Failure(
            "a memory: store exists only inside the process that uses it, so no command can open it",
            f"Use a store that processes share: {_examples()}.",
            Exit.USAGE,
        )
    scheme = url.partition(":")[0]
    dialect, plus, driver = scheme.partition("+")
    if plus and dialect in stores.SCHEMES and scheme not in stores.SCHEMES:
        # Only the scheme is repeated: the rest may contain a password.
        raise Failure(
            f"{scheme}: is an address for SQLAlchemy, and this command opens the store without it",
            f"Write {stores.SCHEMES[dialect].syntax}: the same address without +{driver}.",
            Exit.USAGE,
        )
    return url


def _examples() -> str:
    """An address of each kind of store."""
    kinds = dict.fromkeys(
        scheme.syntax for name, scheme in stores.SCHEMES.items() if name != "memory" and "+" not in name
    )
    *others, last = kinds
    return f"{', '.join(others)} or {last}"
