"""What an answer means to the client who gets it, in each mode."""

from typing import Literal

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import Heard
from tools.crash.modes import Mode

SETTLED: frozenset[Heard] = frozenset({"first", "replay"})
"""Answers that are meant to last."""


def marks(id: str) -> list[tuple[str, str]]:
    """Header fields of an order, one of them twice: a replay has them as the first answer had."""
    return [("Order-Id", id), ("Order-Part", "2"), ("Order-Part", "1")]


def marks_in(answer: Reply) -> list[tuple[str, str]]:
    return [field for field in answer.fields if field[0].lower().startswith("order-")]


def hear(mode: Mode, answer: Reply) -> Heard | Literal["wrong"]:
    """In the words of a history; or something that this service never says."""
    lasting = answer.status == 201 or (mode == "hold" and answer.status == 500)
    if answer.replayed:
        return "replay" if lasting else "wrong"
    if lasting:
        return "open" if answer.header("Idempotency-Stored") == "false" else "first"
    match answer.status, answer.code:
        case 409, "in-flight":
            return "in-flight"
        case 409, "outcome-unknown" if mode != "tx":
            return "unknown"
        case 422, "key-reused":
            return "mismatch"
        case (503, "not-done" | "store-unavailable") | (500, "handler-failed" | None) | (429, None):
            return "open"
        case _:
            return "wrong"


def last_word(mode: Mode, heard: Heard) -> bool:
    """Whether a client has nothing more to ask for."""
    return heard in SETTLED or (mode == "hold" and heard == "unknown")


def may_still_act(answer: Reply) -> bool:
    """Whether what was sent to the store may arrive there after the client has been told."""
    return answer.code == "store-unavailable" or answer.header("Idempotency-Stored") == "false"
