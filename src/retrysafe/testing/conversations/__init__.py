"""What clients and servers say to each other, as far as a proxy must understand it: a file per protocol.

Both directions are streams of messages.  What a client has a server execute is a group of messages, and is
answered by a group, in the same order: that is how a response is known to belong to a statement.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Said(NamedTuple):
    """One message of a client."""

    message: bytes
    statement: str | None = None
    """What it has the server execute, its white space made single blanks."""
    group: int = 0
    """Which of the groups of this conversation it belongs to."""
    refusal: bytes | None = None
    """The reply to an offer that a proxy has to refuse, because it could not read what follows, such as
    encryption.  The message is then not passed on."""


class Conversation(Protocol):
    """One connection, as it goes on."""

    groups: int
    """How many groups of the client are complete."""

    def said(self, data: bytes) -> Iterator[Said]:
        """The messages that are complete with these bytes of the client."""
        ...

    def replied(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """The messages that are complete with these bytes of the server, as the client is to get them, and
        whether each is the last one of its group."""
        ...
