"""Fingerprints: two requests have the same one if, and only if, they ask for the same.

One input is cut into two requests, each at places of its own, so that they differ mostly in where one field
ends and the next begins.  That is what an encoding without lengths confuses.
"""

from retrysafe._core import fingerprint as fingerprints
from retrysafe._core.fingerprint import Fingerprint, InMemory
from retrysafe._core.model import Request
from tools.fuzz.targets import Broken

_KINDS: tuple[Fingerprint, ...] = ("raw", "json", ("a", "b.0"), None)


def check(data: bytes) -> None:
    if len(data) < 8:
        return
    kind = _KINDS[data[0] & 3]
    rest = data[8:]
    one, one_body, means = _request(rest, data[1], data[2], data[3], data[0])
    other, other_body, other_means = _request(rest, data[4], data[5], data[6], data[7])
    print_of_one = fingerprints.fingerprint(kind, one, InMemory(one_body))
    print_of_other = fingerprints.fingerprint(kind, other, InMemory(other_body))
    if len(print_of_one) != 33 or len(print_of_other) != 33:
        raise Broken("a fingerprint is not 33 bytes long")
    if means == other_means or (kind is None and means[:2] == other_means[:2]):
        if print_of_one != print_of_other:
            raise Broken(f"{means!r} has two fingerprints")
    elif print_of_one == print_of_other and (
        kind is None
        or means[:4] != other_means[:4]
        or (kind == "raw" and not means[3].startswith(b"multipart/"))
    ):
        # Different bodies may be the same JSON, or the same parts: those are other targets.
        raise Broken(f"{means!r} and {other_means!r} have the same fingerprint")


def _request(
    rest: bytes, path: int, query: int, body: int, how: int
) -> tuple[Request, bytes, tuple[str, str, bytes, bytes, bytes]]:
    """The request, its body, and what it means: whatever a fingerprint may not leave out."""
    method = "POST" if how & 4 else "PUT"
    media_type = b"text/x" if how & 8 else b""
    content_type = media_type + b"; charset=x" if how & 16 and media_type else media_type
    headers = ((b"content-type", content_type),) if how & 32 or content_type else ()
    path %= len(rest) + 1
    query = path + query % (len(rest) - path + 1)
    target, asked, content = rest[:path].decode("latin-1"), rest[path:query], rest[query:]
    if how & 64:
        # The media type is a field like the others, and as hostile.
        cut = body % (len(content) + 1)
        content_type, content = content[:cut], content[cut:]
        headers = ((b"content-type", content_type),)
        media_type = content_type.split(b";")[0].strip(b" \t").lower()
    means = (method, target, asked, media_type, content)
    return Request(method, target, asked, headers), content, means
