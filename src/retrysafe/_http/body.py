"""A body on its way: in memory while it is small, on disk when it is not.

A request's must be read to its end before a key may be claimed, so a slow or huge upload costs disk and never
memory; an answer's must be complete before its effects are committed.  As a `BodyView` it can be read any
number of times: by the fingerprint, and then by the handler.
"""

from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from typing import NamedTuple

from retrysafe.errors import StoreUnavailable

IN_MEMORY = 1024 * 1024
"""Above this on disk: ten thousand uploads at once are then a matter of disk space."""

_PIECE = 256 * 1024
"""What a handler is given at a time: large enough for few calls, small enough not to be felt."""


class Whole(NamedTuple):
    """A body that arrived in one piece: nearly all of them."""

    piece: bytes
    size: int

    @property
    def on_disk(self) -> bool:
        return False

    def chunks(self) -> Iterable[bytes]:
        return (self.piece,) if self.size else ()

    def view(self) -> bytes:
        return self.piece

    def close(self) -> None:
        """It is freed with its request."""


EMPTY = Whole(b"", 0)


class Spool:
    """A body that arrives in pieces."""

    size = 0
    on_disk = False
    _file: "_File | None" = None

    def __init__(self, first: bytes = b"") -> None:
        self._pieces: list[bytes] = []
        if first:
            self.add(first)

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._file is not None:
            self._file.write(chunk)
            return
        self._pieces.append(chunk)
        if self.size > IN_MEMORY:
            self._file = _File()
            self.on_disk = True
            for piece in self._pieces:
                self._file.write(piece)
            self._pieces.clear()

    def chunks(self) -> Iterable[bytes]:
        if self._file is None:
            return self._pieces
        whole = self.view()
        return (whole[start : start + _PIECE] for start in range(0, self.size, _PIECE))

    def view(self) -> bytes | mmap:
        if self._file is not None:
            return self._file.mapped(self.size)
        if not self._pieces:
            return b""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def close(self) -> None:
        """Give the disk space back.  A body in memory is simply forgotten with its request."""
        if self._file is not None:
            self._file.close()


class _File:
    """Disk space that nobody else can see, and that goes with us."""

    def __init__(self) -> None:
        from tempfile import TemporaryFile  # it takes longer to import than this whole library

        self._map: mmap | None = None
        try:
            self._file = TemporaryFile()  # noqa: SIM115 - closed in close(), and by its own finaliser
        except OSError as error:
            raise _full(error) from error

    def write(self, chunk: bytes) -> None:
        try:
            self._file.write(chunk)
        except OSError as error:
            raise _full(error) from error

    def mapped(self, size: int) -> mmap:
        if self._map is None:
            try:
                self._file.flush()
                self._map = mmap(self._file.fileno(), size, access=ACCESS_READ)
            except OSError as error:
                raise _full(error) from error
        return self._map

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        self._file.close()

    def __del__(self) -> None:
        # A request may be cancelled before anybody is there to close its body.
        if hasattr(self, "_file"):
            self.close()


def _full(error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"a large body cannot be kept on disk: {error}")
