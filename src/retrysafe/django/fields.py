"""Columns of the store's tables as Django's fields: read by people, written by the store."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:  # generic for checkers alone
    _Binary = models.BinaryField[Any, Any]
    _Field = models.Field[Any, Any]
else:
    _Binary, _Field = models.BinaryField, models.Field


class DigestField(_Binary):
    """Bytes, as hexadecimal digits: an address has them, and the command line knows a record by them."""

    def from_db_value(self, value: Any, expression: object, connection: object) -> str | None:  # noqa: ANN401, ARG002 - as Django has it
        return None if value is None else bytes(value).hex()

    def to_python(self, value: Any) -> Any:  # noqa: ANN401 - as Django has it
        return bytes(cast("bytes", value)).hex() if isinstance(value, bytes | memoryview) else value

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:  # noqa: ANN401 - as Django has it
        try:
            found = bytes.fromhex(value) if isinstance(value, str) else value
        except ValueError:
            found = b""  # digits that no record has
        return super().get_db_prep_value(found, connection, prepared)

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))


class MomentField(_Field):
    """A time by the store's clock: of the server's own kind, or seconds since the epoch in SQLite."""

    description = "A time by the store's clock"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        kinds = {"postgresql": "timestamp with time zone", "sqlite": "real", "mysql": "datetime(6)"}
        return kinds.get(connection.vendor, "double precision")

    def from_db_value(self, value: Any, expression: object, connection: object) -> datetime | None:  # noqa: ANN401, ARG002 - as Django has it
        try:
            if isinstance(value, int | float):
                return datetime.fromtimestamp(value, UTC)
            if isinstance(value, datetime) and value.tzinfo is None:
                return value.replace(tzinfo=UTC)  # MySQL has no time zones, and the store writes UTC
            found: datetime | None = value
            return found
        except (OverflowError, ValueError, OSError):
            return None  # beyond the calendar: a damaged row, which is not to hide the others

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:  # noqa: ANN401, ARG002 - as Django has it
        if not isinstance(value, datetime) or connection.vendor == "postgresql":
            return value
        if connection.vendor == "mysql":
            return value.astimezone(UTC).replace(tzinfo=None)
        return value.timestamp()
