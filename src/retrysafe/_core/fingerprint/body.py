"""A request's body as fingerprints need it, wherever it is kept.

Two ways to look at the same bytes, because there are two kinds of readers: a hash takes them as
they come, and a search needs them in one piece without having them all in memory.  Both may be
called any number of times; neither changes the body.
"""

from collections.abc import Iterable
from mmap import mmap
from typing import NamedTuple, Protocol


class BodyView(Protocol):
    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def chunks(self) -> Iterable[bytes]:
        """The body from its beginning, in pieces of any size."""
        ...

    def view(self) -> bytes | mmap:
        """The body in one piece.

        A body on disk is mapped, not read.  It belongs to the body, which closes it; whoever asked
        keeps no reference into it.
        """
        ...


class InMemory(NamedTuple):
    """A body that is small enough to be held, and so costs nothing to look at."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterable[bytes]:
        return (self.data,)

    def view(self) -> bytes:
        return self.data
