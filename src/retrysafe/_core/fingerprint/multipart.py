"""Multipart bodies without their boundary, which a client draws anew for every attempt.

`split` cuts a body at its delimiters (RFC 2046, section 5.1.1) into the preamble, the parts and
the epilogue.  The pieces hold every byte that is not a delimiter, part headers and stray line ends
included: bodies with the same pieces differ in the boundary and in nothing else.

Whatever a parser could read in another way (a line that goes on after the boundary, bare line
feeds, padding, no end) is not split at all: `None`, and the caller compares the bytes as they are.
That is safe, since at worst it takes a retry for another request.  A multipart inside a part is
not looked into.
"""

import re
from collections.abc import Iterator
from mmap import mmap

MOST_PARTS = 10_000
"""Frameworks stop at a thousand or two.  Splitting this many takes some milliseconds; without a
limit 100 MiB of empty parts would take seconds."""

Piece = tuple[int, int]
"""Where it begins, and where the next one or a delimiter does."""

# RFC 9110, section 5.6.6; but some clients send `boundary=a=b` without the quotation marks.
_PARAMETER = re.compile(
    rb"""
    ; [ \t]*
    (?: ([!#$%&'*+.^_`|~0-9A-Za-z-]+) =         # a token
        (?: "((?:[^"\\]|\\.)*)" | ([^";\s]+) )  # a quoted string, or all up to the next parameter
    )?
    [ \t]*
    """,
    re.VERBOSE,
)
# RFC 2046, section 5.1.1: `boundary`.  No line end is among these characters, and that is also why
# a search for the delimiter is linear, however naive: it can begin anew only at the next line end.
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


def encode_parts(body: bytes | mmap, content_type: bytes) -> Iterator[bytes | memoryview] | None:
    """The pieces, each behind its length, for hashing: nothing is copied."""
    boundary = find_boundary(content_type)
    pieces = None if boundary is None else split(body, boundary)
    return None if pieces is None else _framed(body, pieces)


def _framed(body: bytes | mmap, pieces: list[Piece]) -> Iterator[bytes | memoryview]:
    # Each view is released before the next one, since a map with views into it cannot be closed.
    with memoryview(body) as whole:
        for begin, end in pieces:
            yield b"%d:" % (end - begin)
            with whole[begin:end] as piece:
                yield piece


def find_boundary(content_type: bytes) -> bytes | None:
    """The boundary that a `Content-Type` names, if it names just one and a legal one."""
    position = content_type.find(b";")
    values: list[bytes] = []
    while 0 <= position < len(content_type):
        found = _PARAMETER.match(content_type, position)
        if found is None:
            return None
        name, quoted, unquoted = found.groups()
        if name is not None and name.lower() == b"boundary":
            values.append(unquoted if quoted is None else quoted)
        position = found.end()
    return values[0] if len(values) == 1 and _BOUNDARY.fullmatch(values[0]) else None


def split(body: bytes | mmap, boundary: bytes) -> list[Piece] | None:
    """Preamble, parts and epilogue."""
    delimiter = b"\r\n--" + boundary
    # The first one may open the body; the line end that it lacks is then before the beginning.
    opening = delimiter[2:]
    at = -2 if body[: len(opening)] == opening else body.find(delimiter)
    pieces: list[Piece] = []
    # To the preamble belongs its line end, so that a blank first line differs from none.
    begin, end = 0, at + 2
    while at != -1 and begin <= end and len(pieces) <= MOST_PARTS:
        pieces.append((begin, end))
        after = at + len(delimiter)
        match body[after : after + 2]:
            case b"\r\n":
                begin = after + 2
                # From the line end on, not after it: a delimiter line right after another one makes
                # a part that would end before it begins, and parsers disagree about that.
                at = end = body.find(delimiter, after)
            case b"--" if body[after + 2 : after + 4] in (b"", b"\r\n"):
                return [*pieces, (after + 2, len(body))]
            case _:
                break
    return None
