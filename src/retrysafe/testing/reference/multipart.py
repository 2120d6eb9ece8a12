"""Just enough of RFC 7578 to say what was uploaded, byte for byte."""

from email.message import Message
from email.parser import BytesHeaderParser


def parts_of(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """Each part's name and its exact bytes."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if boundary is None:
        return []
    # The line break before a delimiter belongs to the delimiter (RFC 2046 section 5.1.1).
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    parts: list[tuple[str, bytes]] = []
    for piece in pieces[1:]:
        if piece.startswith(b"--"):
            break
        head, _, data = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = BytesHeaderParser().parsebytes(head).get_param("name", "", "content-disposition")
        parts.append((str(name), data))
    return parts
