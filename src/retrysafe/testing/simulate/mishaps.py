"""What nobody is prepared for: a store that raises what its contract does not know."""

import contextlib
import traceback
from pathlib import Path
from types import FrameType

from retrysafe.errors import StoreError
from retrysafe.testing.simulate.promises import Violation

_HERE = Path(__file__).parent


class Mishap(Violation):
    """Something was raised that a store does not raise, or not when all is quiet."""

    def __init__(self, error: Exception) -> None:
        wrong = (
            "when all was quiet"
            if isinstance(error, StoreError)
            else "and only a StoreError may leave a store"
        )
        AssertionError.__init__(self, f"{_raised(error)}, {wrong}")
        self.promise = "contract"
        self.__cause__ = error


def as_violation(error: Exception) -> Violation:
    return error if isinstance(error, Violation) else Mishap(error)


def alike(one: Violation, other: Violation | None) -> bool:
    """Whether they are two sights of one thing: the same promise; and the same exception, if it is that."""
    return (
        other is not None
        and one.promise == other.promise
        and (one.promise != "contract" or type(one.__cause__) is type(other.__cause__))
    )


def _raised(error: Exception) -> str:
    """What was called, what it raised, and where that happened."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, _ in frames:
        if not _is_ours(frame):
            innermost, line = frames[-1]
            where = f"{innermost.f_code.co_filename}, line {line}"
            return f"{frame.f_code.co_qualname}() raised {said} ({where})"
    return f"this was raised: {said}"


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file == contextlib.__file__ or Path(file).is_relative_to(_HERE)
