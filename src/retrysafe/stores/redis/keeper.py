"""The lease keeper's own connection: renewals wait neither for a batch nor for an event loop."""

import weakref
from collections.abc import Mapping, Sequence
from typing import TypeVar

from retrysafe._core.model import Claim, Counted, Deliveries
from retrysafe.stores.queue import Operation, perform_alone
from retrysafe.stores.redis.executor import RedisExecutor
from retrysafe.stores.redis.operations import Operations
from retrysafe.stores.sql.cleanup import Cleanup

T = TypeVar("T")


class RedisRenewer:
    """Every call is one pipeline, however many leases there are."""

    def __init__(
        self, executor: RedisExecutor, operations: Operations, deadline: float, cleanup: Cleanup
    ) -> None:
        self._executor = executor
        self._operations = operations
        self._deadline = deadline
        self._cleanup = cleanup
        # One that is dropped without being closed must not leave a connection behind.
        weakref.finalize(self, executor.close).atexit = False

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._perform(self._operations.renew_all(claims)) if claims else []

    def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            self._perform(self._operations.release_all(claims))

    def count(self, ended: Mapping[Counted, int]) -> None:
        if ended:
            self._perform(self._operations.add_calls(ended))
        self._cleanup.tidy(self._perform)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        if asked:
            self._perform(self._operations.add_deliveries(asked))

    def close(self) -> None:
        self._executor.close()

    def _perform(self, operation: Operation[T]) -> T:
        return perform_alone(self._executor, operation, self._deadline)
