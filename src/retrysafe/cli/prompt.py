"""Questions to whoever sits there: on stderr, so that stdout stays data; never where nobody could answer."""

import getpass
import os
import socket
import sys

from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import clean
from retrysafe.stores.admin import Note

LONGEST_REASON = 2000
"""Characters: a paragraph with a link, not a log file."""


def somebody_is_there() -> bool:
    """Whether a question would be seen, and could be answered."""
    return output.on_terminal(sys.stdin) and output.on_terminal(sys.stderr)


def refuse_if_nobody_is_there() -> None:
    if not somebody_is_there():
        raise Failure(
            "this asks first, and there is no terminal to ask on",
            "Add --yes once you are sure. Nothing was changed.",
            Exit.USAGE,
        )


def agree(question: str) -> None:
    """Go on only if somebody says so.  Anything but yes is no."""
    answer = _answer(f"{question} [y/N] ")
    if answer is None or answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed")


def note(by: str | None, reason: str | None) -> Note:
    """Who does it and why, asked for if it was not said."""
    if reason is None and somebody_is_there():
        reason = _answer("Reason, for the audit trail: ")
    if reason is None or not reason.strip():
        raise Failure(
            "a reason is needed: somebody will want to know why",
            'Add --reason "…", with what you found out and where. Nothing was changed.',
            Exit.USAGE,
        )
    return checked_note(by, reason)


def checked_note(by: str | None, reason: str) -> Note:
    reason, by = reason.strip(), whoever() if by is None else by.strip()
    if not by:
        raise Failure("--by is empty", "Name whoever does this. Nothing was changed.", Exit.USAGE)
    for name, text in (("--reason", reason), ("--by", by)):
        if len(text) > LONGEST_REASON:
            raise Failure(
                f"{name} has {len(text)} characters, and at most {LONGEST_REASON} are kept",
                "Keep the long story elsewhere, and refer to it. Nothing was changed.",
                Exit.USAGE,
            )
    return Note(by, reason)


def whoever() -> str:
    """The user and the machine; behind sudo, the user who became root."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container whose user has a number and no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def _answer(question: str) -> str | None:
    """A line from the terminal; `None` at the end of input."""
    sys.stderr.write(clean(question))
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        raise Failure("the answer is no text", "Nothing was changed.", Exit.USAGE) from None
    if not line:
        output.say("")  # the cursor still stands behind the question
        return None
    return line
