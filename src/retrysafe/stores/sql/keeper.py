"""The lease keeper's own connection: renewals wait neither for a batch nor for an event loop."""

import logging
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from time import monotonic
from typing import TypeVar

from retrysafe._core.model import Claim, Counted, Deliveries
from retrysafe.stores.queue import Executor, Operation, perform_alone
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.cleanup import Cleanup

T = TypeVar("T")

_log = logging.getLogger("retrysafe.store")

_ASK_AGAIN = 600.0
"""Seconds after which it is asked again whether calls can be counted by route: an operator may have migrated
the tables, or granted the rights, and no service need be restarted for it."""


class SQLRenewer:
    """Every call is one statement, however many leases there are."""

    def __init__(self, executor: Executor, deadline: float, cleanup: Cleanup) -> None:
        self._executor = executor
        self._deadline = deadline
        self._cleanup = cleanup
        self._by_route = False
        self._ask_at = 0.0
        # One that is dropped without being closed must not leave a connection behind.
        weakref.finalize(self, executor.close).atexit = False

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._perform(operations.renew_all(claims)) if claims else []

    def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            self._perform(operations.release_all(claims))

    def count(self, ended: Mapping[Counted, int]) -> None:
        if ended:
            by_route = self._counts_by_route()
            self._perform(operations.add_calls(ended) if by_route else operations.add_verdicts(ended))
        self._cleanup.tidy(self._perform)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        if asked:
            self._perform(operations.add_deliveries(asked))

    def close(self) -> None:
        self._executor.close()

    def _counts_by_route(self) -> bool:
        """Asked, and not tried: a server would log the error of each try."""
        if not self._by_route and monotonic() >= self._ask_at:
            self._ask_at = monotonic() + _ASK_AGAIN
            found = self._perform(operations.may_count_by_route())
            self._by_route = found is True
            if found is False:
                _say_what_is_not_permitted()
        return self._by_route

    def _perform(self, operation: Operation[T]) -> T:
        return perform_alone(self._executor, operation, self._deadline)


@cache
def _say_what_is_not_permitted() -> None:
    """Once per process.  Where the table is missing, this has been said when the tables were looked at."""
    _log.warning("calls are not counted by route: this role lacks a permission on retrysafe_routes")
