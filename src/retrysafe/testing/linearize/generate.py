"""Random histories that are linearizable because they were made that way: the specification is let run.

There is one key, and its state changes at single moments, each at a time of its own.  Operations begin, act
and end in random order; answers are lost, owners leave, are overtaken, or come back when nobody expects them
any more.
"""

from random import Random
from typing import Final

from retrysafe.testing.linearize.decide import Mode
from retrysafe.testing.linearize.history import Heard, History, Operation

_LOST: Final = 0.12
"""How likely an operation is to be cut off before it acts."""
_ASKED: Final = ("pay", "pay", "pay", "pay", "refund", "cancel")

_NOBODY = -1


class _Key:
    """The automaton, and who is still at it."""

    def __init__(self, random: Random, mode: Mode, most: int) -> None:
        self.chance = random.random
        self.mode = mode
        self.left = most
        # With one thing that is asked for, or with several.
        self.various = random.random() < 0.4
        self.now = 0
        self.owner = _NOBODY
        self.final = False
        self.began: list[int] = []
        self.asked: list[str] = []
        self.heard: list[tuple[int | None, Heard, bytes] | None] = []
        """When it ended and what it heard, as soon as that is certain."""
        self.active: list[int] = []
        self.untold: list[tuple[int, Heard, bytes]] = []
        """Answers that are on their way."""

    def run(self) -> History:
        chance = self.chance
        while self.left or self.active or self.untold:
            self.now += 1
            if self.untold and (chance() < 0.5 or not self.active):
                me, heard, answer = self.untold.pop(int(chance() * len(self.untold)))
                self.heard[me] = (self.now, heard, answer)
            elif self.left and (not self.active or chance() < 0.4):
                self.left -= 1
                self.active.append(len(self.began))
                self.began.append(self.now)
                self.asked.append(_ASKED[int(chance() * 6)] if self.various else "pay")
                self.heard.append(None)
            else:
                self.act(self.active[int(chance() * len(self.active))])
        history: History = []
        for began, asked, told in zip(self.began, self.asked, self.heard, strict=True):
            assert told is not None
            ended, heard, answer = told
            history.append(Operation(began, ended, asked, heard, answer))
        return history

    def act(self, me: int) -> None:
        chance, owner = self.chance, self.owner
        if self.heard[me] is None and chance() < _LOST:
            self.heard[me] = (None, "nothing", b"")  # it may go on, but nobody is told any more
            if chance() < 0.5:
                self.active.remove(me)
        elif owner == me and not self.final:
            self.have(me)
        elif owner == _NOBODY:
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
            self.owner = _NOBODY
            self.end(me, "open")
        elif luck < 0.75:
            self.end(me, "open")  # and leaves the key as it is

    def see(self, me: int, same: bool) -> None:
        chance, owner = self.chance, self.owner
        if not self.final and owner not in self.active and chance() < 0.3:
            self.owner = _NOBODY  # the release of one who is not there any more
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

    def end(self, me: int, heard: Heard) -> None:
        """It does nothing more.  If anybody listens, the answer may take a while."""
        self.active.remove(me)
        if self.heard[me] is None:
            self.untold.append(
                (me, heard, b"answer %d" % self.owner if heard in ("first", "replay") else b"")
            )


def good(random: Random, mode: Mode, most: int = 6) -> History:
    """A linearizable history of up to so many operations."""
    return _Key(random, mode, 1 + int(random.random() * most)).run()
