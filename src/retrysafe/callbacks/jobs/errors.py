"""Exceptions of a delivery.

DeliveryError
├── DeliveryRefused    the receiver said that another attempt is of no use
├── DeliveryFailed     not acknowledged until the horizon ended
├── CallbackChanged    the same id is stored with another body or URL
└── FolderError        the folder cannot be read or written
    └── DamagedFile    a file in it is not what was written
"""

from functools import partial
from pathlib import Path

from retrysafe.errors import RetrysafeError


class DeliveryError(RetrysafeError):
    """A callback was not delivered."""


class DeliveryRefused(DeliveryError):
    """The receiver said that another attempt is of no use: 410, or `X-Should-Retry: false`."""

    def __init__(self, message: str, *, status: int, attempts: int) -> None:
        super().__init__(message)
        self.status = status
        self.attempts = attempts
        """Of this process."""
        self.file: Path | None = None
        """Where the request is stored, if there is a folder."""

    # A job may run in a process of a pool, which pickles what it raises, and hangs on what cannot be read.
    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), status=self.status, attempts=self.attempts), self.args, self.__dict__


class DeliveryFailed(DeliveryError):
    """The horizon ended, and no attempt was acknowledged."""

    def __init__(self, message: str, *, status: int | None, attempts: int) -> None:
        super().__init__(message)
        self.status = status
        """Of the last response; `None` if the last attempt had none, or none was made."""
        self.attempts = attempts
        """Of this process."""
        self.file: Path | None = None
        """Where the request is stored, if there is a folder."""

    def __reduce__(self) -> tuple[object, ...]:  # as above
        return partial(type(self), status=self.status, attempts=self.attempts), self.args, self.__dict__


class CallbackChanged(DeliveryError):
    """The callback is stored already, with another body or URL under the same id."""


class FolderError(DeliveryError):
    """The folder of pending callbacks cannot be read or written."""


class DamagedFile(FolderError):
    """A file in the folder is damaged or of a version that this release does not know."""
