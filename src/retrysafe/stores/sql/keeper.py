"""The lease keeper's own connection: renewals wait neither for a batch nor for an event loop."""

import weakref
from collections.abc import Mapping, Sequence
from typing import TypeVar

from retrysafe._core.model import Claim, Deliveries
from retrysafe.stores.queue import Executor, Operation, perform_alone
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.cleanup import Cleanup

T = TypeVar("T")


class SQLRenewer:
    """Every call is one statement, however many leases there are."""

    def __init__(self, executor: Executor, deadline: float, cleanup: Cleanup) -> None:
        self._executor = executor
        self._deadline = deadline
        self._cleanup = cleanup
        # One that is dropped without being closed must not leave a connection behind.
        weakref.finalize(self, executor.close).atexit = False

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._perform(operations.renew_all(claims)) if claims else []

    def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            self._perform(operations.release_all(claims))

    def count(self, verdicts: Mapping[str, int]) -> None:
        if verdicts:
            self._perform(operations.add_verdicts(verdicts))
        self._cleanup.tidy(self._perform)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        if asked:
            self._perform(operations.add_deliveries(asked))

    def close(self) -> None:
        self._executor.close()

    def _perform(self, operation: Operation[T]) -> T:
        return perform_alone(self._executor, operation, self._deadline)
