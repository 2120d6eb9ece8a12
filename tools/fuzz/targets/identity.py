"""The identity of a key: no other door, scope and key have it.

One input is cut twice, at different places: an encoding without lengths would take the two for one.
"""

from retrysafe._core import keys
from tools.fuzz.targets import Broken

_DOORS = ("request", "callback", "operation", "")


def check(data: bytes) -> None:
    if len(data) < 10:
        return
    text = data[10:].decode("utf-8", "surrogateescape")
    one = _owner(text, data[:5])
    other = _owner(text, data[5:10])
    identity, other_identity = keys.digest(*one), keys.digest(*other)
    if len(identity) != 32:
        raise Broken("an identity is not 32 bytes long")
    if (identity == other_identity) != (one == other):
        raise Broken(f"{one!r} and {other!r}: their identities are {identity.hex()}, {other_identity.hex()}")


def _owner(text: str, cuts: bytes) -> tuple[str, tuple[tuple[str, str], ...], str]:
    """Door, scope and key: up to two parts of a scope, and what is left is the key."""
    door = _DOORS[cuts[0] & 3]
    if cuts[0] & 4:
        end = cuts[0] >> 3
        door, text = text[:end], text[end:]
    fields: list[str] = []
    for cut in cuts[1 : 5 if cuts[0] & 128 else 3]:
        end = cut % (len(text) + 1)
        fields.append(text[:end])
        text = text[end:]
    return door, tuple(zip(fields[::2], fields[1::2], strict=True)), text
