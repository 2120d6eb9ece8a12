"""Loggers that load `logging` when they first have something to say.

It takes longer to import than all of this library, and a healthy service never needs it from here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


class Log:
    """The logger of this name, and the three things that are done with it here."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def warning(self, message: str, *details: object) -> None:
        self._logger().warning(message, *details, stacklevel=2)

    def error(self, message: str, *details: object, exc_info: BaseException | None = None) -> None:
        self._logger().error(message, *details, exc_info=exc_info, stacklevel=2)

    def exception(self, message: str, *details: object) -> None:
        self._logger().exception(message, *details, stacklevel=2)

    def _logger(self) -> "Logger":
        from logging import getLogger

        return getLogger(self._name)
