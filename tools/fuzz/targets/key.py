"""The key of a request: whatever was sent is a key within its limits or a reason, and the right one of both.

Beside the parser stands a reading of RFC 9651 that was written from its text, character by character.
"""

from retrysafe._core import keys
from tools.fuzz.targets import Broken
from tools.fuzz.targets.rfc9651 import NotAString, string_item

_LONGEST = 255
"""As it is documented; that the product goes by it is what is tested."""

_PRINTABLE = frozenset(range(0x20, 0x7F))
_NOT_BARE = frozenset(b' ",')


def check(data: bytes) -> None:
    found = keys.parse_key([data])
    expected = _expected(data)
    if isinstance(found, keys.BadKey):
        if expected is not None:
            raise Broken(f"{data!r} is the key {expected!r}, and was refused: {found.reason}")
        if len(data) > 4 and data.decode("latin-1") in found.reason:
            raise Broken(f"the reason repeats what was sent: {found.reason}")
        return
    if found != expected:
        raise Broken(f"{data!r} was read as {found!r}, and not as {expected!r}")
    quoted = '"' + found.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if keys.parse_key([quoted.encode()]) != found:
        raise Broken(f"{found!r} is another key when it is sent as {quoted}")
    if not isinstance(keys.parse_key([data, data]), keys.BadKey):
        raise Broken("a header that was sent twice is a key")


def _expected(data: bytes) -> str | None:
    """The key by the words of `keys.py` and of the RFC; `None` if it is none."""
    begin, end = 0, len(data)
    while begin < end and data[begin] in b" \t":
        begin += 1
    while end > begin and data[end - 1] in b" \t":
        end -= 1
    value = data[begin:end]
    if not value or not _PRINTABLE.issuperset(value):
        return None
    if value[0] != 0x22:
        return value.decode() if _NOT_BARE.isdisjoint(value) and len(value) <= _LONGEST else None
    try:
        key = string_item(value.decode())
    except NotAString:
        return None
    return key if 1 <= len(key) <= _LONGEST else None
