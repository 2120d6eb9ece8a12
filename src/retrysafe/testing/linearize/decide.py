"""Whether a history is linearizable: what follows from FINAL alone is decided here, the rest is searched for.

FINAL is for ever, so it cuts the history in two.  The cut can be made as late as the responses allow, without
loss: a schedule that completes earlier stays one if its owner only takes longer, since all that can be
received after FINAL is replays, which still come after the later cut, and mismatches, which an owner that is
running explains as well.  After the cut nothing is left to explain; before it there are only owners, one
after the other.
"""

from collections.abc import Sequence
from math import inf
from typing import Final, Literal, get_args

from retrysafe.testing.linearize.history import Operation
from retrysafe.testing.linearize.search import (
    Before,
    Need,
    Owner,
    Witness,
    explained_with_losers,
    explained_without,
)

Mode = Literal["tx", "hold", "retry"]
"""What may happen to a key whose owner is gone: see the package's specification."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def is_linearizable(history: Sequence[Operation], mode: Mode = "hold") -> bool:
    """The same as `check`, without the explanation, and so much faster if there is one."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    possible = True
    first: tuple[float, float] | None = None
    final: tuple[str, bytes] | None = None
    replayed_by = inf
    owners: list[Owner] = []
    needs: list[Need] = []
    for operation in history:
        began, ended, asked, received, response = operation
        if received == "nothing" or ended is None:
            if received != "nothing" and received != "open":
                raise ValueError(f"{operation} received a response, so `ended` must be a time")
            owners.append((began, inf, asked))
            continue
        if not began <= ended:
            raise ValueError(f"{operation} ends before it begins")
        if received == "in-flight":
            needs.append((began, ended, asked, False))
        elif received == "replay":
            if final is None:
                final = (asked, response)
            elif final != (asked, response):
                possible = False
            if ended < replayed_by:
                replayed_by = ended
        elif received == "first":
            if first is not None or (final is not None and final != (asked, response)):
                possible = False
            first, final = (began, ended), (asked, response)
        elif received == "open":
            owners.append((began, ended, asked))
        elif received == "mismatch":
            needs.append((began, ended, asked, True))
        elif received == "unknown":
            possible = possible and mode != "tx"
            needs.append((began, ended, asked, False))
        else:
            raise ValueError(f"{operation} received {received!r}: expected one of the values of ResponseKind")
    if not possible:
        return False
    if final is None:
        return not needs or _explained(history, mode, Before(inf, None, None, owners, needs))

    settled = final[0]
    if first is not None:
        cut = min(first[1], replayed_by)
        if cut < first[0]:
            return False
    else:
        # The operation that made it received no response.  The later it can have ended, the better, as above:
        # an earlier one could have left it to this one.
        cut = -inf
        for began, ended, asked in owners:
            if asked == settled and began <= replayed_by:
                cut = max(cut, min(ended, replayed_by))
        if cut == -inf:
            return False
    before: list[Need] = []
    for began, ended, asked, differs in needs:
        if differs and asked != settled and ended >= cut:
            continue  # FINAL explains it
        if began > cut:
            return False
        before.append((began, min(ended, cut), asked, differs))
    return not before or _explained(history, mode, Before(cut, settled, first and first[0], owners, before))


def _explained(history: Sequence[Operation], mode: Mode, before: Before) -> bool:
    cut, settled, first_began, owners, needs = before
    earliest = min((began for began, _, _ in owners), default=inf)
    if first_began is not None and first_began < earliest:
        earliest = first_began
    asked = needs[0][2]
    if (
        all(need[2] == asked for need in needs)
        and all(owner[2] == asked for owner in owners)
        and (first_began is None or settled == asked)
    ):
        # All asked for the same.  From the first owner's beginning on, an owner can be running all the time,
        # each leaving the key to the next; before it, only those that lost it to a take-over.
        explained = True
        for _, deadline, _, differs in needs:
            if differs:
                return False
            if deadline < earliest:
                explained = False
        if explained:
            return True
        if mode == "hold":
            return False
    elif explained_without(before, take_over=mode != "hold"):
        return True
    elif mode == "hold":
        return False
    return explained_with_losers(before, _witnesses(history, cut, settled))


def _witnesses(history: Sequence[Operation], cut: float, settled: str | None) -> list[Witness]:
    """Operations that saw another: before the cut, all of them may have had the key themselves."""
    found: list[Witness] = []
    for began, ended, asked, received, _ in history:
        if ended is None or began > cut or received in ("first", "open", "nothing"):
            continue
        need: bool | None = received == "mismatch"
        if received == "replay" or (need and settled is not None and asked != settled and ended >= cut):
            need = None
        found.append((began, min(ended, cut), asked, need))
    return found
