"""Questions to the operator: on stderr, so that stdout stays data, and only on a terminal."""

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


def is_interactive() -> bool:
    """Whether a question can be shown, and a reply typed."""
    return output.on_terminal(sys.stdin) and output.on_terminal(sys.stderr)


def require_terminal() -> None:
    if not is_interactive():
        raise Failure(
            "this command asks for confirmation, and there is no terminal",
            "Add --yes to confirm it in advance. Nothing was changed.",
            Exit.USAGE,
        )


def confirm(question: str) -> None:
    """Return if the operator types yes; anything else is a no."""
    reply = _read_line(f"{question} [y/N] ")
    if reply is None or reply.strip().lower() not in ("y", "yes"):
        raise Failure("not confirmed; nothing was changed")


def ask_note(by: str | None, reason: str | None) -> Note:
    """Who and why, for the audit trail; the reason is asked for if it was not given."""
    if reason is None and is_interactive():
        reason = _read_line("Reason, for the audit trail: ")
    if reason is None or not reason.strip():
        raise Failure(
            "a reason is required for the audit trail",
            'Add --reason "…": what you found out, and where. Nothing was changed.',
            Exit.USAGE,
        )
    return check_note(by, reason)


def check_note(by: str | None, reason: str) -> Note:
    reason, by = reason.strip(), current_user() if by is None else by.strip()
    if not by:
        raise Failure(
            "--by is empty",
            "Give the person or job that does this. Nothing was changed.",
            Exit.USAGE,
        )
    for name, text in (("--reason", reason), ("--by", by)):
        if len(text) > LONGEST_REASON:
            raise Failure(
                f"{name} has {len(text)} characters; at most {LONGEST_REASON} are stored",
                "Put the details elsewhere, and refer to them. Nothing was changed.",
                Exit.USAGE,
            )
    return Note(by, reason)


def current_user() -> str:
    """The user and the machine; behind sudo, the user who became root."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container whose user has a number and no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def _read_line(question: str) -> str | None:
    """A line from the terminal; `None` at the end of input."""
    sys.stderr.write(clean(question))
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        raise Failure("the reply is not valid text", "Nothing was changed.", Exit.USAGE) from None
    if not line:
        output.notice("")  # end the line of the question
        return None
    return line
