"""What is true of a key, tracked beside the store and never read from it.

A key goes through *windows*.  A window opens when a request reserves the key while no other holds it, and is
over when the key is released, or when its record expires.
"""

from typing import Literal, NamedTuple

from retrysafe._core.model import Response
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION

Standing = Literal["absent", "running", "final"]


class Outcome(NamedTuple):
    """An outcome that the store reported as stored."""

    token: bytes
    state: str
    response: Response
    omitted: bool
    asked: int
    window: int


class Execution:
    """One run of a handler."""

    __slots__ = ("asked", "broke", "effect", "number", "response", "token", "window")

    def __init__(self, number: int, window: int, token: bytes, asked: int, response: Response) -> None:
        self.number = number
        """Among those of its key, from 1 on."""
        self.window = window
        self.token = token
        self.asked = asked
        self.response = response
        """Unlike any other execution's."""
        self.effect = False
        """Whether it may have had its effect.  In a transaction: whether that was committed."""
        self.broke = False
        """Its response ended in the middle."""


class KeyState:
    """One identity: which request holds it, since when, and its outcome."""

    __slots__ = (
        "allowed", "asked", "attempt", "checkpointed", "committed", "created", "definitive", "executions",
        "expires", "held_until", "identity", "original", "outcome", "outcomes", "ran", "standing", "token",
        "until", "window",
    )  # fmt: skip

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.window = 0
        self.standing: Standing = "absent"
        self.token = b""
        self.asked = 0
        self.attempt = 0
        self.until: float | None = 0.0
        """When the holder's lease ends.  `None`: the store has lost it."""
        self.held_until = 0.0
        self.original = ""
        """The id of the request that opened the window."""
        self.created = 0.0
        self.expires = 0.0
        self.checkpointed = False
        self.outcome: Outcome | None = None
        self.outcomes: dict[bytes, Outcome] = {}
        """By the token under which they were stored, in all windows."""
        self.definitive: Response | None = None
        """The response that clients received in this window as final."""
        self.executions: list[Execution] = []
        self.ran = [0]
        """How many executions began, by window."""
        self.allowed = [0]
        """How many may, by window."""
        self.committed = [0]
        """How many had their effect committed, by window; only in transactions."""

    def lapsed(self, now: float) -> bool:
        """The holder's lease has ended.  A missing one counts as alive for as long as the record."""
        return (self.expires if self.until is None else self.until) <= now

    def expired(self, now: float) -> bool:
        """No request holds the key, or its record is past its time."""
        if self.standing == "absent":
            return True
        if self.expires > now:
            return False
        return self.standing == "final" or (self.held_until <= now and self.lapsed(now))

    def open(self, request_id: str, now: float) -> None:
        """Open a window."""
        self.window += 1
        self.original = request_id
        self.attempt = 0
        self.created = now
        self.expires = now + RETENTION
        self.definitive = None
        self.ran.append(0)
        self.allowed.append(1)
        self.committed.append(0)

    def give(self, token: bytes, asked: int, hold: float, now: float) -> None:
        """The request with this token holds the key from now on."""
        self.standing = "running"
        self.token = token
        self.asked = asked
        self.attempt += 1
        self.until = now + LEASE
        self.held_until = now + hold
        self.checkpointed = False
        self.outcome = None

    def checkpoint(self, now: float) -> None:
        self.checkpointed = True
        self.held_until = max(self.held_until, now + HOLD)

    def store(self, outcome: Outcome, now: float) -> None:
        self.standing = "final"
        self.token = outcome.token
        self.outcome = self.outcomes[outcome.token] = outcome
        if self.expires <= now:
            self.expires = now + RETENTION

    def close(self) -> None:
        """End the window before its time."""
        self.standing = "absent"
        self.definitive = None

    def snapshot(self) -> object:
        """What a search compares it by.

        What is left out (what was allowed and stored, and until when) follows from these and from the times.
        """
        return (
            self.window,
            self.standing,
            self.token,
            self.asked,
            self.attempt,
            self.until,
            self.checkpointed,
            self.definitive,
            self.outcome,
            tuple([(one.token, one.effect) for one in self.executions]),
            tuple(self.ran),
            tuple(self.committed),
        )
