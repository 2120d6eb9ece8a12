"""Administration on Django's own connection: in tests, and inside of the caller's `atomic()`."""

from collections.abc import Sequence
from typing import TypeVar

from django.db import transaction

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Finding, Index
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql.admin import SQLAdmin
from retrysafe.stores.sql.admin_operations import PurgeStep
from retrysafe.stores.sql.django.own_connection import MIGRATE, OwnConnection
from retrysafe.stores.sql.join import Joint

T = TypeVar("T")


class OwnAdmin(SQLAdmin):
    step = 200

    def __init__(self, alias: str, joint: Joint) -> None:
        self._alias = alias
        self._queue = OwnConnection(alias, lambda: joint)
        self.dialect = joint.dialect  # type: ignore[misc]  # of an alias, and so not of the class

    def _read(self, operation: Operation[T]) -> T:
        return self._queue.perform(operation, b"")

    def _write(self, operation: Operation[T]) -> T:
        with transaction.atomic(using=self._alias):
            return self._queue.perform(operation, b"")

    def _purge_step(self, operation: Operation[PurgeStep]) -> tuple[PurgeStep, float]:
        return self._write(operation), 0.0

    def _rest(self, took: float) -> None:
        """No other transaction waits for this one's end in turns."""

    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:  # noqa: ARG002 - as any admin
        raise StoreUnavailable(f"Django applies the migrations of this database: run `{MIGRATE}`")

    def diagnose(self) -> Sequence[Finding]:
        return (
            Finding(
                "connection",
                "warning",
                f"this is Django's own connection to {self._alias!r}, in a test or inside of atomic(): the "
                "server was not examined",
                "Run `python manage.py retrysafe doctor` outside of both.",
            ),
        )

    def close(self) -> None:
        """The connection is Django's."""
