"""Why a history is impossible: the responses that contradict each other, in words, and the history drawn.

They are found by removing responses one by one: an operation that received nothing, and may do anything,
explains more and needs no explanation.  The responses that cannot be removed are the contradiction.
"""

from collections.abc import Sequence

from retrysafe.testing.linearize.decide import Mode, is_linearizable
from retrysafe.testing.linearize.history import Operation

_SETTLES_NOTHING = ("open", "nothing")


def check(history: Sequence[Operation], *, mode: Mode = "hold") -> str | None:
    """`None` if the history is linearizable, else which of its operations contradict each other, and how."""
    if is_linearizable(history, mode):
        return None
    numbers = contradicting(history, mode)
    core = [history[number] for number in numbers]
    named = " and ".join(f"#{number}" for number in numbers)
    reason = _reason(core, mode)
    why = f'No order of single moments explains these responses (mode "{mode}"): {named}, {reason}.'
    return "\n".join([why, *timeline(history, numbers)])


def contradicting(history: Sequence[Operation], mode: Mode) -> list[int]:
    """A minimal set of operations whose responses cannot all be true, whatever the others did."""
    left = list(history)
    core: list[int] = []
    for number, operation in enumerate(history):
        if operation.received in _SETTLES_NOTHING:
            continue
        left[number] = operation._replace(ended=None, received="nothing", response=b"")
        if is_linearizable(left, mode):
            left[number] = operation
            core.append(number)
    return core


def _reason(core: Sequence[Operation], mode: Mode) -> str:
    received = {operation.received for operation in core}
    definitive = [operation for operation in core if operation.received in ("first", "replay")]
    if "unknown" in received and mode == "tx":
        return "for nothing is unknown in a transaction"
    if sum(operation.received == "first" for operation in core) > 1:
        return "for only one execution's outcome can be the first"
    if len({operation.response for operation in definitive}) > 1:
        return "for all definitive responses must be equal"
    if len({operation.asked for operation in definitive}) > 1:
        return "for a response is only for operations that asked for the same"
    if received <= {"first", "replay"}:
        return "for no operation can have made a response before it was replayed"
    if received <= {"mismatch"}:
        return "for no operation that asked for something else can have had the key"
    if not definitive:
        return "for no operation that could be seen running can have had the key at the time"
    return "for the response was settled by then, or no operation seen running can have had the key before"


def timeline(history: Sequence[Operation], marked: Sequence[int] = ()) -> list[str]:
    """One line for each operation, in the order of their beginnings; each time that occurs is a column."""
    times = sorted({time for began, ended, *_ in history for time in (began, ended) if time is not None})
    column = {time: 2 * index for index, time in enumerate(times)}
    width = 2 * len(times) + 1
    labels = [_label(operation) for operation in history]
    widest = max(map(len, labels), default=0)
    digits = len(str(max(len(history) - 1, 0)))
    lines: list[str] = []
    for number in sorted(range(len(history)), key=lambda number: (history[number].began, number)):
        began, ended, *_ = history[number]
        start = column[began]
        if ended is None:
            bar = "├".ljust(width - start - 1, "─") + "►"
        elif ended == began:
            bar = "│"
        else:
            bar = "├" + "─" * (column[ended] - start - 1) + "┤"
        mark = "►" if number in marked else " "
        lines.append(f"{mark} #{number:<{digits}} {labels[number]:<{widest}}  {' ' * start}{bar}")
    return lines


def _label(operation: Operation) -> str:
    response = f" {operation.response[:20]!r}" if operation.received in ("first", "replay") else ""
    return f"asked {operation.asked[:12]!r} received {operation.received}{response}"
