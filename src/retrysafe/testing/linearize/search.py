"""Whether owners, one after the other, can explain what was received before the key was FINAL.

A sweep over the moments at which operations begin and end, with every situation that is possible at each:
which operation has the key, and which of those that must have seen something have seen it.  Two observations
keep it small.

- For all others only what an owner asked for matters, and an owner that received "open" or "nothing" may
  release the key at any time.  So owners of that kind are one situation for each thing that was asked for.
- Seeing changes nothing, so an operation that can see what it must see does so at once.  That is not so for
  one that could have had the key itself first and lost it, which is why those are left out unless they are
  needed.
"""

from collections.abc import Iterable
from typing import NamedTuple

Owner = tuple[float, float, str]
"""From when to when it may bid, and what it asked for.  If it has the key, it may release it at any time."""
Need = tuple[float, float, str, bool]
"""From when to when it must see an owner that asked for the same as it (False), or something else (True)."""
Witness = tuple[float, float, str, bool | None]
"""A need, or `None` for one that needs to see nothing before the cut but may have had the key, too."""


class Before(NamedTuple):
    """What there is before the key is FINAL."""

    cut: float
    settled: str | None
    """What FINAL is for, if there is one."""
    first_began: float | None
    """When the one began that received "first", and that cannot release the key before the cut."""
    owners: list[Owner]
    needs: list[Need]


_NO_OWNER = -1

# At one time all that begins comes before all that ends: both ends belong to an operation.
_OWNER_BEGINS, _FIRST_BEGINS, _WITNESS_BEGINS, _WITNESS_ENDS, _OWNER_ENDS = range(5)


def explained_without(before: Before, *, take_over: bool) -> bool:
    """If only operations that received "first", "open" or "nothing" had the key."""
    cut, settled, first_began, owners, needs = before
    kinds, seen_from = _kinds(before, needs)
    first = len(kinds)  # the situation in which the first one has the key
    mine = _NO_OWNER if settled is None else kinds.get(settled, _NO_OWNER)

    events = [(began, _OWNER_BEGINS, kinds[asked]) for began, _, asked in owners if began <= cut]
    events += [(ended, _OWNER_ENDS, kinds[asked]) for _, ended, asked in owners if ended < cut]
    for index, (began, deadline, _, _) in enumerate(needs):
        events.append((began, _WITNESS_BEGINS, 1 << index))
        events.append((deadline, _WITNESS_ENDS, 1 << index))
    if first_began is not None:
        events.append((first_began, _FIRST_BEGINS, 0))
    events.sort()

    active = [0] * len(kinds)
    first_active = False
    pending = 0
    situations = {(_NO_OWNER, 0)}
    for _, what, which in events:
        if what == _OWNER_ENDS:
            active[which] -= 1
            continue
        if what == _WITNESS_ENDS:
            pending &= ~which
            situations = {(holder, seen & ~which) for holder, seen in situations if seen & which}
            if not situations:
                return False
            continue
        if what == _OWNER_BEGINS:
            active[which] += 1
            if active[which] > 1:
                continue
        elif what == _WITNESS_BEGINS:
            pending |= which
        else:
            first_active = True
        bidding = [kind for kind, count in enumerate(active) if count]
        round_trip = 0
        for kind in bidding:
            round_trip |= seen_from[kind]
        now: set[tuple[int, int]] = set()
        for holder, seen in situations:
            if holder == first:
                now.add((first, seen | seen_from[mine] & pending))
                if not (take_over and active[mine]):
                    continue  # it is neither released nor taken over
            elif holder != _NO_OWNER:
                seen |= seen_from[holder] & pending
                now.add((holder, seen))
            elif not bidding:
                now.add((_NO_OWNER, seen))
            seen |= round_trip & pending
            for kind in bidding:
                now.add((kind, seen))
            if first_active:
                now.add((first, seen | seen_from[mine] & pending))
        situations = now
    return True


def explained_with_losers(before: Before, witnesses: list[Witness]) -> bool:
    """If also those that received something else may have had the key, and lost it to a take-over."""
    return _Losers(before, witnesses).explained()


class _Losers:
    """Witnesses may have the key, too: situations beyond `first` are theirs.

    A witness can only lose the key to one that asked for the same, and in the end to one that is not a
    witness, a *final owner*: where there is none, it cannot have had the key.

    Of several that asked for the same and need the same, the one that ends last can have the key for all of
    them, because the others see it then, and itself sees the one that takes it over.  So only that one
    bids, and only that one need wait with seeing in order to bid later.
    """

    def __init__(self, before: Before, witnesses: list[Witness]) -> None:
        cut, settled, first_began, owners, _ = before
        self.kinds, self.seen_from = _kinds(before, witnesses)
        self.first = len(self.kinds)
        self.mine = _NO_OWNER if settled is None else self.kinds.get(settled, _NO_OWNER)
        self.final_owners = {self.kinds[asked] for began, _, asked in owners if began <= cut}
        if first_began is not None:
            self.final_owners.add(self.mine)
        self.of_kind = [self.kinds[asked] for _, _, asked, _ in witnesses]
        self.alike = [(self.kinds[asked], need) for _, _, asked, need in witnesses]
        self.deadlines = [deadline for _, deadline, _, _ in witnesses]
        self.needed = sum(1 << index for index, witness in enumerate(witnesses) if witness[3] is not None)

        kinds = self.kinds
        events = [(began, _OWNER_BEGINS, kinds[asked]) for began, _, asked in owners if began <= cut]
        events += [(ended, _OWNER_ENDS, kinds[asked]) for _, ended, asked in owners if ended < cut]
        for index, (began, deadline, _, need) in enumerate(witnesses):
            if need is not None or self.of_kind[index] in self.final_owners:
                events.append((began, _WITNESS_BEGINS, index))
                events.append((deadline, _WITNESS_ENDS, index))
        if first_began is not None:
            events.append((first_began, _FIRST_BEGINS, 0))
        self.events = sorted(events)
        self.active = [0] * self.first
        self.first_active = False
        self.present: set[int] = set()

    def explained(self) -> bool:
        situations = {(_NO_OWNER, 0)}
        for _, what, which in self.events:
            if what == _OWNER_ENDS:
                self.active[which] -= 1
                continue
            if what == _WITNESS_ENDS:
                self.present.discard(which)
                bit, its_own = 1 << which, self.first + 1 + which
                situations = {
                    (holder, seen & ~bit)
                    for holder, seen in situations
                    if (seen & bit or not self.needed & bit) and holder != its_own
                }
                if not situations:
                    return False
                continue
            if what == _OWNER_BEGINS:
                self.active[which] += 1
            elif what == _WITNESS_BEGINS:
                self.present.add(which)
            else:
                self.first_active = True
            situations = self._reached(situations)
        return True

    def _reached(self, situations: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """All that can follow at this moment."""
        reached = {now for holder, seen in situations for now in self._seeing(holder, seen)}
        todo = list(reached)
        while todo:
            holder, seen = todo.pop()
            for successor in self._successors(holder, seen):
                for now in self._seeing(successor, seen):
                    if now not in reached:
                        reached.add(now)
                        todo.append(now)
        return reached

    def _successors(self, holder: int, seen: int) -> list[int]:
        """Which may have the key next."""
        first, active = self.first, self.active
        if holder == _NO_OWNER:
            found = [kind for kind, count in enumerate(active) if count]
            if self.first_active:
                found.append(first)
            return found + [
                first + 1 + index
                for index in self._bidders(seen, holder)
                if self.of_kind[index] in self.final_owners
            ]
        if holder < first:
            return [_NO_OWNER]
        if holder == first:
            return [self.mine] if active[self.mine] else []
        loser = holder - first - 1
        kind = self.of_kind[loser]
        found = [kind] if active[kind] else []
        if self.first_active and kind == self.mine:
            found.append(first)
        # Handing it to one that ends earlier would gain nothing: one that takes it over then can do so now.
        return found + [
            first + 1 + index
            for index in self._bidders(seen, holder)
            if self.of_kind[index] == kind and self.deadlines[index] > self.deadlines[loser]
        ]

    def _bidders(self, seen: int, holder: int) -> list[int]:
        """Those that can have the key and have not seen what they need.  Of equal ones, the last to end."""
        found: dict[tuple[int, bool | None], int] = {}
        for index in self.present:
            if not seen >> index & 1 and index != holder - self.first - 1:
                alike = self.alike[index]
                if alike not in found or self.deadlines[index] > self.deadlines[found[alike]]:
                    found[alike] = index
        return list(found.values())

    def _seeing(self, holder: int, seen: int) -> list[tuple[int, int]]:
        """Those that see what they need while this one has the key; one of each kind may wait with that."""
        if holder == _NO_OWNER:
            return [(holder, seen)]
        loser = holder - self.first - 1
        kind = self.mine if loser == -1 else self.of_kind[loser] if loser >= 0 else holder
        visible = self.seen_from[kind] & self.needed & ~seen
        waiting: dict[int, int] = {}
        for index in self.present:
            if visible >> index & 1 and index != loser:
                seen |= 1 << index
                own = self.of_kind[index]
                if own in self.final_owners and (
                    own not in waiting or self.deadlines[index] > self.deadlines[waiting[own]]
                ):
                    waiting[own] = index
        found = [(holder, seen)]
        for index in waiting.values():
            found += [(holder, marks & ~(1 << index)) for _, marks in found]
        return found


def _kinds(before: Before, witnesses: Iterable[Witness]) -> tuple[dict[str, int], list[int]]:
    """All that was asked for, by number; and for each, which see what they need while that is running."""
    kinds: dict[str, int] = {}
    for _, _, asked in before.owners:
        kinds.setdefault(asked, len(kinds))
    if before.first_began is not None and before.settled is not None:
        kinds.setdefault(before.settled, len(kinds))
    seen_from = [0] * len(kinds)
    for index, (_, _, asked, need) in enumerate(witnesses):
        if need is not None:
            for running, kind in kinds.items():
                if (running != asked) == need:
                    seen_from[kind] |= 1 << index
    for _, _, asked, _ in witnesses:
        kinds.setdefault(asked, len(kinds))
    seen_from += [0] * (len(kinds) - len(seen_from))
    return kinds, seen_from
