"""The specification of `retrysafe.testing.linearize` once more, word by word and as slow as that is.

No cut, no kinds of owners, nothing is left out: every operation may make every move that its words allow at
every moment, and every order of moves is tried.
"""

from collections.abc import Iterator, Sequence

from retrysafe.testing.linearize import Mode, Operation

State = tuple[str, int]
"""ABSENT; RUNNING and FINAL with the number of the operation."""
ABSENT: State = ("ABSENT", -1)


def is_linearizable(history: Sequence[Operation], mode: Mode) -> bool:
    moments: list[tuple[float, int, int]] = []
    for number, operation in enumerate(history):
        moments.append((operation.began, 0, number))
        if operation.ended is not None and operation.received != "nothing":
            moments.append((operation.ended, 1, number))
    moments.sort()
    # Who is there, who has seen what it says it saw (or done what it says it did), and the state.
    worlds: set[tuple[frozenset[int], State]] = {(frozenset(), ABSENT)}
    present: set[int] = set()
    for _, ends, number in moments:
        if ends:
            worlds = {
                (done, state) for done, state in worlds if number in done or _says_nothing(history[number])
            }
            present.discard(number)
            continue
        present.add(number)
        todo = list(worlds)
        while todo:
            for world in _moves(history, mode, present, *todo.pop()):
                if world not in worlds:
                    worlds.add(world)
                    todo.append(world)
    return bool(worlds)


def _says_nothing(operation: Operation) -> bool:
    return operation.received in ("open", "nothing")


def _moves(
    history: Sequence[Operation], mode: Mode, present: set[int], done: frozenset[int], state: State
) -> Iterator[tuple[frozenset[int], State]]:
    word, owner = state
    if word == "RUNNING" and _says_nothing(history[owner]):
        yield done, ABSENT  # a release, whether it is still there or not
    for number in present - done:
        me = history[number]
        mine = word == "RUNNING" and owner == number
        if me.received in ("first", "open", "nothing") or mode != "hold":
            if word == "ABSENT":
                yield done, ("RUNNING", number)
            if word == "RUNNING" and mode != "hold" and not mine and history[owner].asked == me.asked:
                yield done, ("RUNNING", number)
        if mine and me.received in ("first", "open", "nothing"):
            yield done | {number}, ("FINAL", number)
        if _says_nothing(me) or me.received == "first" or mine or word == "ABSENT":
            continue
        same = history[owner].asked == me.asked
        match me.received:
            case "replay":
                seen = word == "FINAL" and same and _response(history, owner, me.response)
            case "in-flight":
                seen = word == "RUNNING" and same
            case "unknown":
                seen = word == "RUNNING" and same and mode != "tx"
            case _:
                seen = not same
        if seen:
            yield done | {number}, state


def _response(history: Sequence[Operation], owner: int, response: bytes) -> bool:
    """Whether this can be the owner's response.  If none received it first, it is that of all replays."""
    if history[owner].received == "first":
        return history[owner].response == response
    return all(other.response == response for other in history if other.received == "replay")
