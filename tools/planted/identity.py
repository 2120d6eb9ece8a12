"""Requests that are taken for each other, or for others than they are."""

from collections.abc import Callable
from hashlib import sha256

from retrysafe._core import fingerprint, keys
from retrysafe._core.fingerprint import VERSION, BodyView, Fingerprint
from retrysafe._core.model import Parts, Request
from retrysafe._http import exchange
from tools.planted.bug import HOLD, Plant, Planted, patching, together

Digest = Callable[[str, Parts, str], bytes]
Head = Callable[[str, str, str, bytes, str], bytes]


def identifying(make: Callable[[Digest], Digest]) -> Plant:
    """Identities that are made wrongly, with a guard's secret or without."""

    def plant(real: Digest) -> Callable[..., bytes]:
        planted = make(real)

        def digest(door: str, scope: Parts, key: str, _secret: bytes | None = None) -> bytes:
            return planted(door, scope, key)

        return digest

    return patching(keys, "digest", plant)


def _without_scope(real: Digest) -> Digest:
    return lambda door, _scope, key: real(door, (), key)


def _by_the_first_part(real: Digest) -> Digest:
    return lambda door, scope, key: real(door, scope[:1], key)


def _without_lengths(_real: Digest) -> Digest:
    def digest(door: str, scope: Parts, key: str) -> bytes:
        return sha256("".join((door, *(value for _, value in scope), key)).encode()).digest()

    return digest


def _in_lower_case(real: Digest) -> Digest:
    return lambda door, scope, key: real(door, scope, key.lower())


def _cut_off(real: Digest) -> Digest:
    # After one character, because the keys here are short.
    return lambda door, scope, key: real(door, scope, key[:1])


# --- fingerprints


def heading(make: Callable[[Head], Head]) -> Plant:
    """What a fingerprint covers besides the body."""

    def plant(real: Head) -> Head:
        head = make(real)
        head.__wrapped__ = head  # type: ignore[attr-defined]  # the real one is cached, and used without, too
        return head

    return patching(fingerprint, "_head", plant)


def _without_path(real: Head) -> Head:
    return lambda encoding, method, _path, query, media: real(encoding, method, "", query, media)


def _without_method(real: Head) -> Head:
    return lambda encoding, _method, path, query, media: real(encoding, "", path, query, media)


def _without_query(real: Head) -> Head:
    return lambda encoding, method, path, _query, media: real(encoding, method, path, b"", media)


class _Hash:
    """SHA-256 of a head, as far as fingerprints use it."""

    def __init__(self, head: bytes) -> None:
        self._hash = sha256(head)

    def update(self, piece: bytes) -> None:
        self._hash.update(piece)

    def digest(self) -> bytes:
        return self._hash.digest()


class _HeadOnly(_Hash):
    def update(self, piece: bytes) -> None:
        """Bodies are not compared."""


class _Folded(_Hash):
    def update(self, piece: bytes) -> None:
        super().update(bytes(piece).lower())


def hashing(by: type[_Hash]) -> Plant:
    return patching(fingerprint, "sha256", lambda _: by)


Take = Callable[[Fingerprint, Request, BodyView], bytes]


def _with_all_headers(real: Take) -> Take:
    def take(kind: Fingerprint, request: Request, body: BodyView) -> bytes:
        return VERSION + sha256(real(kind, request, body) + repr(request.headers).encode()).digest()

    return take


def taking(make: Callable[[Take], Take]) -> Plant:
    return together(patching(fingerprint, "fingerprint", make), patching(exchange, "fingerprint", make))


PLANTED = (
    Planted(
        "a key is shared by all principals",
        "agents: the key alone is the primary key; asgi-idempotency-header 0.2.0 has no scope",
        HOLD,
        identifying(_without_scope),
    ),
    Planted(
        "a key is shared by all users of a tenant",
        "validation-api scopes by organisation and endpoint, and not by user",
        HOLD,
        identifying(_by_the_first_part),
    ),
    Planted(
        "fields are concatenated without their lengths",
        "agno-agi/agno#9412: two pairs of document and user are one key",
        HOLD,
        identifying(_without_lengths),
    ),
    Planted(
        "keys are compared in lower case",
        "measured on MySQL: text keys are merged by case, accent and trailing space",
        HOLD,
        identifying(_in_lower_case),
    ),
    Planted(
        "long keys are cut off",
        "measured on MySQL: INSERT IGNORE truncates long keys, and so merges them",
        HOLD,
        identifying(_cut_off),
    ),
    Planted(
        "the path is not compared",
        "nensii21/devlink#1195: the second route gets the first one's response; erp compares user and key",
        HOLD,
        heading(_without_path),
    ),
    Planted(
        "the method is not compared",
        "KanishJebaMathewM/Truxify#2885: keys collided across methods and routes",
        HOLD,
        heading(_without_method),
    ),
    Planted(
        "the query is not compared",
        "workflow-control: another start_step replays the wrong fork",
        HOLD,
        heading(_without_query),
    ),
    Planted(
        "the body is not compared",
        "erp and agents do not compare bodies",
        HOLD,
        hashing(_HeadOnly),
    ),
    Planted(
        "bodies are compared in lower case",
        "measured on MySQL: text is merged by case",
        HOLD,
        hashing(_Folded),
    ),
    Planted(
        "every header is compared",
        "idemptx 0.2.2 hashes every header, so a new traceparent breaks the replay",
        HOLD,
        taking(_with_all_headers),
    ),
)
