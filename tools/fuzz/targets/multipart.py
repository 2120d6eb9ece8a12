"""Multipart bodies: what is compared holds every byte but the boundary, and does not depend on it.

In the input a `|` stands for a line with the boundary, and `!` for the last of them.
"""

from retrysafe._core.fingerprint import multipart
from tools.fuzz.targets import Broken


def check(data: bytes) -> None:
    boundary = b"x%d" % (data[0] if data else 0)
    body = _body(data[1:], boundary)
    content_type = b"multipart/form-data; boundary=" + boundary
    pieces = _encoded(body, content_type)
    if pieces is not None:
        again = _put_together(pieces, boundary)
        if again != body:
            raise Broken(f"{body!r} was taken apart into {pieces!r}, which is {again!r}")
        other = b"--another?boundary"
        if other[2:] not in body and b"--" + boundary not in b"".join(pieces):
            moved = _encoded(_put_together(pieces, other), b'multipart/form-data; boundary="%b"' % other)
            if moved != pieces:
                raise Broken(f"{body!r} is another one with another boundary: {pieces!r}, {moved!r}")
    # The header itself is as hostile as the body.
    found = multipart.find_boundary(b"multipart/mixed" + data)
    if found is not None and (
        found not in data or b"\r" in found or b"\n" in found or not 1 <= len(found) <= 70
    ):
        raise Broken(f"the boundary of {data!r} is {found!r}")


def _body(template: bytes, boundary: bytes) -> bytes:
    last = template.replace(b"!", b"\r\n--" + boundary + b"--")
    body = last.replace(b"|", b"\r\n--" + boundary + b"\r\n")
    return body[2:] if template.startswith(b"|") else body


def _encoded(body: bytes, content_type: bytes) -> list[bytes] | None:
    """What is hashed, read again by the lengths in it."""
    hashed = multipart.encode_parts(body, content_type)
    if hashed is None:
        return None
    text = b"".join(map(bytes, hashed))  # each view is gone when the next one comes
    pieces: list[bytes] = []
    at = 0
    while at < len(text):
        colon = text.index(b":", at)
        end = colon + 1 + int(text[at:colon])
        if end > len(text):
            raise Broken(f"the lengths in {text!r} are wrong")
        pieces.append(text[colon + 1 : end])
        at = end
    return pieces


def _put_together(pieces: list[bytes], boundary: bytes) -> bytes:
    """By RFC 2046, section 5.1.1: preamble, parts and epilogue with delimiters between them."""
    preamble, *parts, epilogue = pieces
    delimiter = b"--" + boundary
    lines = [preamble + delimiter, *(b"\r\n" + part + b"\r\n" + delimiter for part in parts)]
    return b"".join([*lines, b"--", epilogue])
