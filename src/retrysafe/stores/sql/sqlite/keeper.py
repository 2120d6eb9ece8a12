"""The lease keeper's own connection: renewals wait neither for the writer's queue nor for an event loop."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from retrysafe._core.model import Claim, Deliveries
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import admin_operations, operations
from retrysafe.stores.sql.sqlite.connection import Clock, Connection
from retrysafe.stores.sql.sqlite.file import DatabaseFile
from retrysafe.stores.sql.sqlite.schema import open_database

T = TypeVar("T")


class SQLiteRenewer:
    """Opens its connection when it is first used, and again after trouble."""

    def __init__(self, file: DatabaseFile, clock: Clock, deadline: float) -> None:
        self._file = file
        self._clock = clock
        self._deadline = deadline
        self._connection: Connection | None = None

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._perform([operations.renew(claim) for claim in claims])

    def release(self, claims: Sequence[Claim]) -> None:
        self._perform([operations.release(claim) for claim in claims])

    def count(self, verdicts: Mapping[str, int]) -> None:
        self._perform([admin_operations.add_verdict(verdict, number) for verdict, number in verdicts.items()])

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        self._perform([operations.add_deliveries(asked)])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _perform(self, all: Sequence[Operation[T]]) -> list[T]:
        if self._connection is None:
            self._connection = open_database(
                self._file.path, "renewer", self._clock, self._deadline, self._file
            )
        try:
            with self._connection.transaction():
                return [self._connection.perform(operation) for operation in all]
        except StoreUnavailable:
            self.close()  # and opened anew by the next one
            raise
