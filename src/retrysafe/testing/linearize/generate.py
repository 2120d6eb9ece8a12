"""Random histories that are linearizable because they were made that way: the specification is executed.

There is one key, and its state changes at single moments, each at a time of its own.  Operations begin, act
and end in random order; responses are lost, owners leave, are taken over, or come back after
their client stopped waiting.
"""

from random import Random
from typing import Final

from retrysafe.testing.linearize.decide import Mode
from retrysafe.testing.linearize.history import History, Operation, ResponseKind

_LOST: Final = 0.12
"""How likely an operation is to be cut off before it acts."""
_ASKED: Final = ("pay", "pay", "pay", "pay", "refund", "cancel")

_NO_OWNER = -1


class _Key:
    """The automaton, and the operations that are under way."""

    def __init__(self, random: Random, mode: Mode, most: int) -> None:
        self.chance = random.random
        self.mode = mode
        self.left = most
        # Whether operations ask for different things.
        self.various = random.random() < 0.4
        self.now = 0
        self.owner = _NO_OWNER
        self.final = False
        self.began: list[int] = []
        self.asked: list[str] = []
        self.received: list[tuple[int | None, ResponseKind, bytes] | None] = []
        """When it ended and what it received, as soon as that is certain."""
        self.active: list[int] = []
        self.in_transit: list[tuple[int, ResponseKind, bytes]] = []
        """Responses that are on their way."""

    def run(self) -> History:
        chance = self.chance
        while self.left or self.active or self.in_transit:
            self.now += 1
            if self.in_transit and (chance() < 0.5 or not self.active):
                me, received, response = self.in_transit.pop(int(chance() * len(self.in_transit)))
                self.received[me] = (self.now, received, response)
            elif self.left and (not self.active or chance() < 0.4):
                self.left -= 1
                self.active.append(len(self.began))
                self.began.append(self.now)
                self.asked.append(_ASKED[int(chance() * 6)] if self.various else "pay")
                self.received.append(None)
            else:
                self.act(self.active[int(chance() * len(self.active))])
        history: History = []
        for began, asked, end in zip(self.began, self.asked, self.received, strict=True):
            assert end is not None
            ended, received, response = end
            history.append(Operation(began, ended, asked, received, response))
        return history

    def act(self, me: int) -> None:
        chance, owner = self.chance, self.owner
        if self.received[me] is None and chance() < _LOST:
            self.received[me] = (None, "nothing", b"")  # it may go on, but its client receives nothing
            if chance() < 0.5:
                self.active.remove(me)
        elif owner == me and not self.final:
            self.have(me)
        elif owner == _NO_OWNER:
            if chance() < 0.1:
                self.end(me, "open")
            else:
                self.owner = me
        else:
            self.see(me, self.asked[owner] == self.asked[me])

    def have(self, me: int) -> None:
        luck = self.chance()
        if luck < 0.5:
            self.final = True
            # The acknowledgement of its completion may be lost.
            self.end(me, "open" if luck < 0.04 else "first")
        elif luck < 0.65:
            self.owner = _NO_OWNER
            self.end(me, "open")
        elif luck < 0.75:
            self.end(me, "open")  # and leaves the key as it is

    def see(self, me: int, same: bool) -> None:
        chance, owner = self.chance, self.owner
        if not self.final and owner not in self.active and chance() < 0.3:
            self.owner = _NO_OWNER  # the release of an owner that has left
        elif chance() < 0.05:
            self.end(me, "open")
        elif not same:
            self.end(me, "mismatch")
        elif self.final:
            self.end(me, "replay")
        elif self.mode != "hold" and chance() < 0.35:
            self.owner = me
        elif self.mode != "tx" and chance() < (0.1 if owner in self.active else 0.5):
            self.end(me, "unknown")
        elif chance() < 0.8:
            self.end(me, "in-flight")

    def end(self, me: int, received: ResponseKind) -> None:
        """It does nothing more.  If its client waits, the response may take a while."""
        self.active.remove(me)
        if self.received[me] is None:
            self.in_transit.append(
                (me, received, b"response %d" % self.owner if received in ("first", "replay") else b"")
            )


def good(random: Random, mode: Mode, most: int = 6) -> History:
    """A linearizable history of up to so many operations."""
    return _Key(random, mode, 1 + int(random.random() * most)).run()
