"""What is true of an event, and the promises about it.

Nothing here reads the store: what it said, what handlers did and what senders were told is noted as it
happens.
"""

from typing import Literal

from retrysafe._core.model import Claim, Final
from retrysafe.testing.simulate.promises import broken

Standing = Literal["absent", "running", "completed", "failed"]


class Handled:
    """One run of a handler."""

    __slots__ = ("declined", "effect", "over", "owner", "succeeded", "token")

    def __init__(self, owner: str, token: bytes) -> None:
        self.owner = owner
        self.token = token
        self.over = False
        self.effect = False
        """Whether it may have had its effect; in a transaction, whether that was committed."""
        self.declined = False
        """It has said that it did nothing."""
        self.succeeded = False


class Event:
    """One event, its record, and what was done because of it."""

    def __init__(self, number: int, *, transactional: bool, holds: bool) -> None:
        self.number = number
        self._transactional = transactional
        self._holds = holds
        self.standing: Standing = "absent"
        self.token = b""
        self.until = 0.0
        self.body = 0
        self.kept = False
        """Whether a sender may have been told that its payload is stored."""
        self.stored = False
        """Whether its payload is stored."""
        self.claimed = False
        """Whether it may have been begun: a store does not know how far its owner came."""
        self.acknowledged = False
        self.runs: list[Handled] = []
        self.allowed = 1
        """How often it may be begun under hold: once, and once for each time that an operator says so."""
        self.attempts = 0
        """As the store counts them: a worker that dies has made one."""
        self.tries = 0
        """Deliveries and interventions, each of which may have it tried once more."""

    def __str__(self) -> str:
        return f"event {self.number}"

    @property
    def begun(self) -> list[Handled]:
        """Runs that may have done something."""
        return [run for run in self.runs if not run.declined]

    # --- what the store said

    def granted(self, owner: str, claim: Claim, body: int, now: float, *, delivered: bool) -> None:
        """The store gave the event's key to this claim, of a delivery or of a worker."""
        if self.standing == "running" and self.token == claim.token:
            return
        if self.standing == "completed":
            broken("I1", f"{owner} was given {self}, which is completed")
        if self.standing == "running" and self.until > now:
            broken("I2", f"{owner} was given {self} while another's lease was alive")
        if self.standing != "absent" and body != self.body:
            broken("I7", f"{owner} has another payload, and was given {self}")
        if self.standing == "absent":
            self.body, self.kept = body, False
        self.standing, self.token, self.until = "running", claim.token, now + claim.lease
        self.attempts += 1
        self.claimed = self.claimed or claim.lease > 0
        self.kept = self.kept or (delivered and claim.inbox is not None and claim.inbox.never_released)
        self.stored = self.stored or (claim.inbox is not None and claim.inbox.payload is not None)

    def renewed(self, token: bytes, until: float, *, renewed: bool) -> None:
        holds = self.token == token and self.standing == "running"
        if renewed and holds:
            self.until = until
        if renewed and self.token != token:
            broken("I3", f"a lease of {self} was renewed for an attempt that does not hold it")

    def finished(self, owner: str, token: bytes, final: Final, run: Handled | None, *, stored: bool) -> None:
        """The store has replied to a write of an outcome."""
        holds = self.token == token and self.standing == "running"
        if not stored:
            if holds:
                broken("I3", f"{owner} holds {self}, and its outcome was refused")
            return
        if not holds:
            if self.token != token or self.standing != final.state:
                broken("I3", f"an outcome of {owner} was stored, which does not hold {self}")
            return
        if final.state == "completed" and (run is None or not run.succeeded):
            broken("I5", f"{self} was stored as handled by {owner}, which did not handle it")
        if final.state == "failed" and run is not None and run.effect and self._transactional:
            broken("I14", f"{self} was stored as failed by {owner}, whose effect is committed")
        self.standing = final.state

    def committed(self, run: Handled) -> None:
        run.effect = True
        if sum(one.effect for one in self.runs) > 1:
            broken("I14", f"{self} has had its effect twice")

    def released(self, token: bytes) -> None:
        """The store has performed a release of this claim's."""
        if self.token != token or self.standing != "running":
            return
        if self.kept:
            broken("I23", f"the payload of {self} was acknowledged, and its record was released")
        begun = any(run.token == token and not run.declined for run in self.runs)
        if begun and not self._transactional:
            broken("I15", f"{self} may have had its effect, and its record was released")
        self.standing = "absent"
        self.stored = self.claimed = False

    def redriven(self, token: bytes) -> None:
        """An operator has said that it is to be handled again."""
        if self.standing == "completed":
            broken("I1", f"{self} is completed, and is to be handled again")
        self.standing, self.token = "failed", token
        self.allowed += 1
        self.tries += 1

    # --- what handlers did

    def begins(self, owner: str, token: bytes, *, granted: bool) -> Handled:
        if not granted:
            broken("I12", f"{owner} handles {self} and was never given it")
        if self.token == token and self.standing != "running":
            broken("I1", f"{owner} handles {self}, which is {self.standing}")
        # One that has lost its lease before it began does not know that yet; nothing of it is committed.
        if self._holds and len(self.begun) >= self.allowed:
            broken("I13", f"{owner} begins {self}, of which it is not known what was done")
        run = Handled(owner, token)
        self.runs.append(run)
        return run

    # --- what senders were told

    def told(self, owner: str, body: int, status: int) -> None:
        if not 200 <= status < 300:
            return
        if self.standing == "absent":
            broken("I23", f"{owner} was acknowledged, and {self} is not stored")
        if body != self.body:
            broken("I7", f"{owner} was acknowledged, and {self} has another payload")
        if self.standing != "completed" and not (self.kept and self.stored):
            broken("I23", f"{owner} was acknowledged, and {self} is {self.standing}")
        self.acknowledged = True
