"""A request body in memory or on disk, read any number of times."""

import pytest

from retrysafe._http.body import IN_MEMORY, Spool

LARGE = IN_MEMORY + 1


def spooled(*chunks: bytes) -> Spool:
    spool = Spool()
    for chunk in chunks:
        spool.add(chunk)
    return spool


@pytest.mark.parametrize("chunks", [[], [b""], [b"abc"], [b"a", b"", b"bc"], [b"x" * IN_MEMORY]])
def test_small_bodies_stay_in_memory(chunks: list[bytes]) -> None:
    """As many pieces as came, and one view of the whole."""
    spool, whole = spooled(*chunks), b"".join(chunks)
    assert not spool.on_disk
    assert spool.size == len(whole)
    assert b"".join(spool.chunks()) == whole
    assert spool.view() == whole
    assert b"".join(spool.chunks()) == whole
    spool.close()


@pytest.mark.parametrize(
    "chunks",
    [
        [b"x" * LARGE],
        [b"a" * IN_MEMORY, b"b"],
        [b"a" * IN_MEMORY, b"b", b"c" * 700_000],
        [b"ab" * 100_000] * 30,
    ],
)
def test_large_bodies_go_to_disk(chunks: list[bytes]) -> None:
    """One byte above the limit is on disk, and reads the same."""
    spool, whole = spooled(*chunks), b"".join(chunks)
    assert spool.on_disk
    assert not spool._pieces
    assert spool.size == len(whole)
    assert b"".join(spool.chunks()) == whole
    view = spool.view()
    assert view[:] == whole
    assert spool.view() is view
    assert b"".join(spool.chunks()) == whole
    spool.close()


def test_pieces_from_disk_are_small() -> None:
    """A handler is given a piece at a time, and the whole is never in memory."""
    spool = spooled(b"x" * (3 * IN_MEMORY))
    assert max(len(piece) for piece in spool.chunks()) <= 256 * 1024
    spool.close()


def test_the_file_goes_with_the_spool() -> None:
    """Its space is given back at once, and a second close is harmless."""
    spool = spooled(b"x" * LARGE)
    spool.view()
    file = spool._file
    assert file is not None
    spool.close()
    assert file._file.closed
    spool.close()


def test_a_file_nobody_looked_at() -> None:
    """It is closed all the same: a request may be refused before its body is read."""
    spool = spooled(b"x" * LARGE)
    spool.close()
    assert spool._file is not None
    assert spool._file._file.closed
