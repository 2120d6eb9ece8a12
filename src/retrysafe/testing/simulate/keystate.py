"""What is true of a key, kept beside the store and never read from it.

An account follows one identity through its *windows*.  A window opens when the key is given to somebody while
nobody has it, and is over when it is let go of, or when its time is up.
"""

from typing import Literal, NamedTuple

from retrysafe._core.model import Response
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION

Standing = Literal["absent", "running", "final"]


class Outcome(NamedTuple):
    """What the store said that it kept."""

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
        """What it answers; unlike any other execution's."""
        self.effect = False
        """Whether it may have had its effect.  In a transaction: whether that was committed."""
        self.broke = False
        """Its answer ended in the middle."""


class Account:
    """One identity: who holds it, since when, and what became of it."""

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
        """By the token under which they were kept, of all windows."""
        self.definitive: Response | None = None
        """What clients were told in this window, and meant to last."""
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
        """Nobody has the key, or what is known about it is past its time."""
        if self.standing == "absent":
            return True
        if self.expires > now:
            return False
        return self.standing == "final" or (self.held_until <= now and self.lapsed(now))

    def open(self, request_id: str, now: float) -> None:
        """A window opens."""
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
        """Somebody holds the key from now on."""
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

    def keep(self, outcome: Outcome, now: float) -> None:
        self.standing = "final"
        self.token = outcome.token
        self.outcome = self.outcomes[outcome.token] = outcome
        if self.expires <= now:
            self.expires = now + RETENTION

    def close(self) -> None:
        """The window is over before its time."""
        self.standing = "absent"
        self.definitive = None

    def state(self) -> object:
        """What tells it from others of its world: how things came to stand as they do, and since when.

        What is left out (what was allowed and kept, and until when) follows from these and from the times.
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
