"""Exit codes, and the exception that ends a command with one of them."""

from enum import IntEnum


class Exit(IntEnum):
    """Documented in docs/cli.md: scripts rely on them."""

    FINE = 0
    FOUND = 1
    """A problem was found, there is no such record, it changed meanwhile, or it was not confirmed."""
    USAGE = 2
    """Wrong usage; nothing was done."""
    STORE = 3
    """The store cannot be used: unreachable, locked, reset, tables of another version, a damaged record."""
    INTERRUPTED = 130
    """128 + SIGINT, as shells report it."""
    PIPE_CLOSED = 141
    """128 + SIGPIPE: the reader closed the pipe, as `head` does."""


class Failure(Exception):
    """Ends a command: one sentence says what is wrong, an optional second one what to do."""

    def __init__(self, message: str, advice: str = "", exit: Exit = Exit.FOUND) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.exit = exit


class PipeClosed(Exception):
    """The reader of stdout has closed the pipe."""
