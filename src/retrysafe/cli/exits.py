"""How a command can end: the numbers that scripts see, and the exception that carries one of them."""

from enum import IntEnum


class Exit(IntEnum):
    """What the process says with its end."""

    FINE = 0
    FOUND = 1
    """Something was found or failed: a problem, no such record, not as it was seen, not agreed to."""
    USAGE = 2
    """It was asked wrongly, and nothing was done."""
    STORE = 3
    """The store cannot be used: not reached, locked, tables of another version, a damaged record."""
    INTERRUPTED = 130
    """128 + SIGINT, as shells have it."""
    PIPE_CLOSED = 141
    """128 + SIGPIPE: whoever read our output has read enough.  `head` does it to every other tool, too."""


class Failure(Exception):
    """Ends a command with a sentence that says what is wrong, and perhaps one that says what to do."""

    def __init__(self, message: str, advice: str = "", exit: Exit = Exit.FOUND) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.exit = exit


class PipeClosed(Exception):
    """Nobody reads what we write any more."""
