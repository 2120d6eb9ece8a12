"""What a sender of webhooks is to the rest: where it signs, what its ids are, what may not change."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from retrysafe.errors import RetrysafeError

Headers: TypeAlias = Mapping[str, str]
"""Names in lower case, values decoded as Latin-1, several lines of one name joined with ", "."""

DAY = 86400.0


class SignatureInvalid(RetrysafeError, ValueError):
    """The request was not shown to come from the sender, or is too old.  Nothing is looked up or stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """For logs and for the sender: without secrets, and without what was sent."""


class PayloadInvalid(RetrysafeError, ValueError):
    """The request is not one that this sender sends: no JSON, no id."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """For logs and for the sender, without what was sent."""


class Identity(NamedTuple):
    """Which event a delivery is about."""

    id: str
    """The sender's id of the event."""
    origin: str = ""
    """Where one sender has several sources of its own, each with its own ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(ABC):
    """One sender.  Called in this order: `verify`, `challenge`, `identify`, `compared`."""

    source: str
    """What records are stored under, unless the application gives another name."""
    stored_headers: tuple[str, ...] = ("content-type",)
    """Request headers, in lower case, that are worth storing with a payload.  No credentials."""
    horizon: float = 7 * DAY
    """For how many seconds after the first delivery the sender may deliver again.  What was handled has to be
    remembered at least as long."""

    @abstractmethod
    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        """Raise `SignatureInvalid`, and nothing else, unless the sender signed this; `now` is a Unix time."""

    def challenge(self, headers: Headers, body: bytes) -> bytes | None:
        """Where this is no event but a check of the endpoint: the text that the sender expects with 200.

        Raises `PayloadInvalid`, and nothing else, as the next two do.
        """
        return None

    @abstractmethod
    def identify(self, headers: Headers, body: bytes) -> Identity:
        """Which event this is."""

    @abstractmethod
    def compared(self, headers: Headers, body: bytes) -> bytes:
        """What is the same in every delivery of one id.  For hashing: it may be as long as the body."""
