"""The Lua scripts, and how a call of one is written on the wire.

What is sent is made here and not by redis-py: a call is a few pieces of bytes that are joined, and most of
them are the same for every call of a script or for every key of a bucket.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from retrysafe.errors import ConfigurationError

VERSION = 1
"""Of the names of keys and of what is in them; a sentinel begins with it."""

BUCKETS = 256
"""By the first byte of an identity.  A bucket is in one slot of a cluster, and there are many more buckets
than a cluster has nodes."""

BOOKS = BUCKETS
"""The number of the bucket without records: counts of calls, turns of the cleanup."""

_FIRST = ("clock", "confirm", "common")
"""What every script begins with."""

_LAST = {"take_over": ("reserve",)}
"""What a script goes on with, where it has not returned."""

NAMES = (
    "reserve",
    "take_over",
    "look",
    "checkpoint",
    "finish",
    "release",
    "renew",
    "deliveries",
    "count",
    "claim_cleanup",
    "postpone_cleanup",
    "list_expired",
    "purge",
    "list_due",
    "read",
    "admin_release",
    "admin_resolve",
    "admin_redrive",
)


class Command(NamedTuple):
    """One command for the server, and whose records it is about."""

    bucket: int
    packed: bytes


class Script:
    """A script, and the first bytes of each of its calls."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.load = pack(b"SCRIPT", b"LOAD", source.encode())
        self.sha = sha1(source.encode(), usedforsecurity=False).hexdigest().encode()
        self._heads: dict[tuple[int, int], bytes] = {}

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> bytes:
        """The command that runs it, with any keys."""
        return self.head(len(keys), len(arguments)) + packed(keys) + packed(arguments)

    def head(self, keys: int, arguments: int) -> bytes:
        """The command up to its keys."""
        try:
            return self._heads[keys, arguments]
        except KeyError:
            head = b"*%d\r\n" % (3 + keys + arguments) + packed((b"EVALSHA", self.sha, b"%d" % keys))
            self._heads[keys, arguments] = head
            return head


class Scripts:
    """All scripts, for one store."""

    def __init__(self, *, confirms: bool = False, clock: str | None = None) -> None:
        """`confirms`: whatever is told has been written on this connection, so that WAIT knows of it."""
        texts = {
            "clock": _text("clock") if clock is None else clock,
            "confirm": f"local CONFIRM = {'true' if confirms else 'false'}\n",
            "common": _text("common"),
        }

        def source(name: str) -> str:
            parts = (*_FIRST, name, *_LAST.get(name, ()))
            return "".join(texts[part] if part in texts else _text(part) for part in parts)

        self.by_name = {name: Script(name, source(name)) for name in NAMES}
        self.load = b"".join(script.load for script in self.by_name.values())
        self.number = len(NAMES)


class Bucket(NamedTuple):
    """The keys of a bucket, and the same as they are sent."""

    armed: bytes
    ids: bytes
    due: bytes
    audit: bytes
    record: bytes
    """What the key of a record begins with; its identity follows, in hexadecimal as logs and operators have
    it."""
    packed: bytes
    """The first three of them."""

    def record_of(self, id: bytes) -> bytes:
        """The key of a record."""
        return self.record + id.hex().encode()


class Layout:
    """The names of all keys of a store."""

    def __init__(self, prefix: str) -> None:
        if not prefix or any(character in "{}" or not character.isprintable() for character in prefix):
            raise ConfigurationError(
                "prefix must be printable text without braces, which stand for a cluster's hash tag"
            )
        self.prefix = prefix
        self.buckets = tuple(_bucket(prefix, f"{number:02x}") for number in range(BUCKETS))
        books = _bucket(prefix, "books")
        self.all = (*self.buckets, books)
        """The buckets, and then the books."""
        self.books = books
        base = books.armed.removesuffix(b"armed")
        self.calls = base + b"calls"
        self.cleanup = base + b"cleanup"

    def of(self, id: bytes) -> Bucket:
        return self.buckets[number_of(id)]


def number_of(id: bytes) -> int:
    """The number of an identity's bucket."""
    return id[0] if id else 0


def pack(*words: bytes | str) -> bytes:
    """A command as the protocol has it: RESP, an array of strings."""
    return b"*%d\r\n" % len(words) + packed(words)


def packed(words: Sequence[bytes | str]) -> bytes:
    """Words of a command."""
    encoded = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])


def _bucket(prefix: str, tag: str) -> Bucket:
    base = f"{prefix}:{{{tag}}}:".encode()
    names = [base + name for name in (b"armed", b"ids", b"due", b"audit", b"r:")]
    armed, ids, due, audit, record = names
    return Bucket(armed, ids, due, audit, record, packed(names[:3]))


@cache
def _text(name: str) -> str:
    return files("retrysafe.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
