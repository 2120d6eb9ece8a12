"""Export: all records of a store, page by page."""

from collections.abc import Callable, Iterator

from retrysafe._core.model import Door, Record
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import admin_operations
from retrysafe.stores.sql.admin_operations import Page

_PAGE = 50
"""Records in memory at once, of which each may have a body of a megabyte."""


def exported(
    read: Callable[[Operation[Page]], Page], expiring: float | None, door: Door | None
) -> Iterator[Record]:
    after: bytes | None = b""
    while after is not None:
        page = read(admin_operations.export(after, _PAGE, expiring, door))
        yield from page.records
        after = page.last
