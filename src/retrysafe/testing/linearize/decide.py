"""Whether a history is linearizable: what follows from FINAL alone is settled here, the rest is searched for.

FINAL is for ever, so it cuts the history in two.  The cut can be made as late as the answers allow, without
loss: a schedule that completes earlier stays one if its owner only takes longer, since all that can be heard
after FINAL is replays, which still come after the later cut, and mismatches, which hear the same from an
owner that is running.  After the cut nothing is left to explain; before it there are only owners, one after
the other.
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
        raise ValueError(f"the mode is {mode!r}, and must be one of {', '.join(MODES)}")
    possible = True
    first: tuple[float, float] | None = None
    final: tuple[str, bytes] | None = None
    replayed_by = inf
    owners: list[Owner] = []
    needs: list[Need] = []
    for operation in history:
        began, ended, asked, heard, answer = operation
        if heard == "nothing" or ended is None:
            if heard != "nothing" and heard != "open":
                raise ValueError(f"{operation} heard something, so it has an end")
            owners.append((began, inf, asked))
            continue
        if not began <= ended:
            raise ValueError(f"{operation} ends before it begins")
        if heard == "in-flight":
            needs.append((began, ended, asked, False))
        elif heard == "replay":
            if final is None:
                final = (asked, answer)
            elif final != (asked, answer):
                possible = False
            if ended < replayed_by:
                replayed_by = ended
        elif heard == "first":
            if first is not None or (final is not None and final != (asked, answer)):
                possible = False
            first, final = (began, ended), (asked, answer)
        elif heard == "open":
            owners.append((began, ended, asked))
        elif heard == "mismatch":
            needs.append((began, ended, asked, True))
        elif heard == "unknown":
            possible = possible and mode != "tx"
            needs.append((began, ended, asked, False))
        else:
            raise ValueError(f"{operation} heard {heard!r}: expected one of the values of Heard")
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
        # Whoever made it was not heard of.  The later it can have ended, the better, as above: an earlier
        # maker could have left it to this one.
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
        # Everybody asked for the same.  From the first owner's beginning on, somebody can be running all the
        # time, each leaving the key to the next; before it, nobody but those who lost it to a take-over.
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
    elif explained_without(before, overtaking=mode != "hold"):
        return True
    elif mode == "hold":
        return False
    return explained_with_losers(before, _witnesses(history, cut, settled))


def _witnesses(history: Sequence[Operation], cut: float, settled: str | None) -> list[Witness]:
    """Whoever heard something from others: before the cut, all of them may have had the key themselves."""
    found: list[Witness] = []
    for began, ended, asked, heard, _ in history:
        if ended is None or began > cut or heard in ("first", "open", "nothing"):
            continue
        need: bool | None = heard == "mismatch"
        if heard == "replay" or (need and settled is not None and asked != settled and ended >= cut):
            need = None
        found.append((began, min(ended, cut), asked, need))
    return found
