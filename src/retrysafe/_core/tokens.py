"""Random bytes for tokens and ids, bought from the kernel by the page.

A system call for every token would cost more than most of what is done for a request.  No two draws may ever
be equal, in threads or in processes: a token fences one owner of a key off from the next.  So a piece is
popped, which is atomic, and a forked child starts with nothing of its parent's.
"""

import os
from struct import Struct

_SIZE = 16
"""128 bits, as in a random UUID: no two will meet."""

_cut = Struct(f"{_SIZE}s" * 256).unpack
_pieces: list[bytes] = []


def draw() -> bytes:
    """Sixteen bytes that are drawn once."""
    try:
        return _pieces.pop()
    except IndexError:
        _pieces.extend(_cut(os.urandom(256 * _SIZE)))
        return os.urandom(_SIZE)


if hasattr(os, "register_at_fork"):  # where there is no fork, nothing is inherited
    os.register_at_fork(after_in_child=_pieces.clear)
