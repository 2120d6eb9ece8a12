"""The promises, each checked where it could be broken, on the ground truth of `keystate.py`.

They are checked on what the store replied, what handlers did and what clients received.
Numbers are those of the table of invariants in the documentation (`docs/evidence.md`).
"""

import contextlib
import traceback
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

from retrysafe.errors import StoreError
from retrysafe.testing.simulate.setting import Setting

_HERE = Path(__file__).parent

PROMISES = {
    "I1": "one outcome, which stays until it expires",
    "I2": "a key is given to no other request while its lease is alive",
    "I3": "a request that does not hold the key changes nothing and is refused; one that holds it is not",
    "I4": "a replay is the stored response: status, headers in order and number, body",
    "I5": "all definitive responses are the same, and are stored before they are sent",
    "I6": "once a client has the response, no later request runs or has to wait",
    "I7": "the same key with another request neither runs nor sees nor changes anything",
    "I8": "no request uses the key of another principal",
    "I9": "a stored response is sent only to those who may see it now",
    "I10": "a purge removes what has expired, and nothing else",
    "I11": "when faults stop, every key has a response, is claimable or is known as unknown",
    "I12": "nothing runs unconfirmed, unless that was chosen and is marked",
    "I13": "under hold a handler starts at most once",
    "I14": "in transactions, effects are committed as often as outcomes are stored: once or never",
    "I15": "under retry there are no more executions than one and one for each lost lease",
    "I16": "the same call with the same token has the same reply",
    "I18": "a request whose response has begun to leave is never run again",
    "I22": "workers' clocks do not matter",
    "I23": "an event is acknowledged only once it is stored or handled, and is never lost then",
}
"""I22 has no check of its own: workers' clocks are wrong in every world, and nothing else may break."""

Promise = Literal[
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15", "I16",
    "I18", "I23", "contract",
]  # fmt: skip
"""Which one was broken; "contract" is the rule of `retrysafe.stores.contract` on exceptions."""


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: Promise, text: str) -> None:
        super().__init__(f"{promise}, {PROMISES[promise]}: {text}")
        self.promise: Promise = promise


def broken(promise: Promise, text: str) -> NoReturn:
    raise Violation(promise, text)


def at_most(setting: Setting) -> Promise:
    """The promise about how often something happens."""
    if setting.mode == "tx":
        return "I14"
    return "I13" if setting.abandoned == "hold" else "I15"


class ContractViolation(Violation):
    """The store raised what a store may not raise, or not after faults have stopped."""

    def __init__(self, error: Exception) -> None:
        wrong = (
            "after faults had stopped"
            if isinstance(error, StoreError)
            else "and only a StoreError may leave a store"
        )
        AssertionError.__init__(self, f"{_raised(error)}, {wrong}")
        self.promise = "contract"
        self.__cause__ = error


def as_violation(error: Exception) -> Violation:
    return error if isinstance(error, Violation) else ContractViolation(error)


def alike(one: Violation, other: Violation | None) -> bool:
    """Whether they break the same promise; and by the same exception, if it is the contract."""
    return (
        other is not None
        and one.promise == other.promise
        and (one.promise != "contract" or type(one.__cause__) is type(other.__cause__))
    )


def _raised(error: Exception) -> str:
    """What was called, what it raised, and where."""
    raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, _ in frames:
        if not _is_ours(frame):
            innermost, line = frames[-1]
            where = f"{innermost.f_code.co_filename}, line {line}"
            return f"{frame.f_code.co_qualname}() raised {raised} ({where})"
    return f"this was raised: {raised}"


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file == contextlib.__file__ or Path(file).is_relative_to(_HERE)
