"""Who is asking: the application's own authentication, and the scope that follows from it.

`Authorization: Bearer alice` is alice, and so is `Bearer alice.2`: the part after the dot is a
token that rotates, the part before it the stable id.  Without a header the client is unknown, and
there is the public scope.
"""

from typing import NamedTuple

from retrysafe import scopes
from retrysafe._core.model import Request

_SCHEME = b"bearer "


class Denied(NamedTuple):
    """Why a request does not get past the door."""

    status: int
    reason: str


def admit(authorization: bytes | None) -> Denied | None:
    """Authentication, then authorisation: both stand before the idempotency layer."""
    if authorization is None:
        return None
    user, token = _bearer(authorization)
    if not user or user.startswith("revoked"):
        return Denied(401, "these credentials are not valid")
    if token == "revoked":
        return Denied(403, "this user has lost the permission")
    return None


def identify(authorization: bytes) -> str:
    """The stable id of who was admitted."""
    return _bearer(authorization)[0]


def signed_in(request: Request) -> str | None:
    """The scope of a route that is only for people we know."""
    authorization = request.header(b"authorization")
    return _bearer(authorization)[0] or None if authorization else None


# All other clients share one scope, where keys must be too long to be guessed.
signed_in_or_public = scopes.first_of(signed_in, scopes.public())


def _bearer(authorization: bytes) -> tuple[str, str]:
    if not authorization.lower().startswith(_SCHEME):
        return "", ""
    user, _, token = authorization[len(_SCHEME) :].decode("latin-1").strip().partition(".")
    return user, token
