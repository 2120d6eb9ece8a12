"""What the server refuses with, and what that means for a call.

A refusal by the server has changed nothing, so a call that was refused may always be made again.
"""

from retrysafe.errors import SchemaMismatch, StoreError, StoreReset, StoreUnavailable, UnreadableRecord
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.retry import NotPermitted, Trouble

_PASSING = frozenset({"TRYAGAIN", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "LOADING"})
"""Keys of a slot that is being moved; a script of another application that runs for long; a cluster that is
electing, and a server that is starting: a moment later they may be over it."""

OF_SESSION = frozenset({"READONLY"})
"""This server is a primary no more; another connection may reach the one that is."""

_EXPLAINED = {
    "OOM": "the server has used all of its memory and takes no more records: give it more",
    "READONLY": "this server is a replica: retrysafe needs the primary",
    "NOREPLICAS": "the server has fewer replicas than its own min-replicas-to-write asks for",
    "MISCONF": "the server cannot save to its disk, and therefore accepts no writes",
    "LOADING": "the server is loading its data after a start",
    "MASTERDOWN": "this server is a replica that has lost its primary",
    "CLUSTERDOWN": "the cluster does not serve this slot: a node is missing",
    "TRYAGAIN": "the slot of this key is being moved to another node",
    "BUSY": "a script of another application has been running for too long",
    "NOAUTH": "the server asks for a password: write redis://:password@host",
    "WRONGPASS": "the server refuses this user or password",
    "NOPERM": "this user may not run what retrysafe needs",
}

RESET = (
    "the store is not armed: either it is new, or it has lost its records (flushed, evicted, restarted "
    "without its data, or another database). Requests are refused, because a key that looks new may have "
    "been used. If that is understood, run `retrysafe arm --store …`, once"
)


class RedisTrouble(Trouble):
    """A refusal, or a connection that was lost."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.passing = code in _PASSING
        self.disconnected = not code or code in OF_SESSION

    def as_error(self) -> StoreError:
        return unavailable(self.code, self.reason)


def unavailable(code: str, reason: str) -> StoreUnavailable:
    explained = _EXPLAINED.get(code)
    kind = NotPermitted if code == "NOPERM" else StoreUnavailable
    if explained is None:
        return kind(f"Redis: {reason}")
    return kind(f"Redis: {explained} ({code})")


def trouble_of(refusal: Refusal) -> RedisTrouble | StoreError:
    """What a refusal means."""
    code, text = refusal.code, refusal.text
    if code == "STORERESET":
        return StoreReset(RESET)
    if code == "STOREVERSION":
        return SchemaMismatch(f"the records were made by another release ({text}): use that one")
    if code in ("UNREADABLE", "WRONGTYPE"):
        return UnreadableRecord(
            "the record cannot be read by this release. It is left unchanged; requests with its key get 503 "
            "until it expires or an operator deletes it"
        )
    # The server's words may quote arguments, so of those that are not known only the first are passed on.
    return RedisTrouble(f"{code} {text}"[:120] if code == "ERR" else code, code)


def demoted(refusal: Refusal) -> RedisTrouble:
    """The server has become a replica.  Where its name leads to, another one may be the primary by now."""
    trouble = RedisTrouble(refusal.code, refusal.code)
    trouble.stale = True
    return trouble


def lost(error: BaseException | None = None) -> RedisTrouble:
    """The connection has gone."""
    said = type(error).__name__ if error is not None and not str(error) else str(error or "")
    return RedisTrouble(f"the connection was lost ({said})" if said else "the server closed the connection")
