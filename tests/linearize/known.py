"""Histories that were judged by hand, each named after what it shows.

Written as lines: began and ended ("…" is never), what it asked for, what it received, the response.
"""

from typing import Final, cast

from retrysafe.testing.linearize import History, Mode, Operation, ResponseKind

_KINDS: Final = "first replay in-flight mismatch unknown open nothing".split()


def history(text: str) -> History:
    """From lines like `3-7 pay replay 201`; a `…` instead of an end is never."""
    operations: History = []
    for line in text.strip().splitlines():
        span, asked, received, *response = line.split()
        began, ended = span.split("-")
        assert received in _KINDS
        end = None if ended == "…" else float(ended)
        operations.append(
            Operation(float(began), end, asked, cast("ResponseKind", received), "".join(response).encode())
        )
    return operations


ALL: Final[tuple[Mode, ...]] = ("tx", "hold", "retry")
TAKE_OVER: Final[tuple[Mode, ...]] = ("tx", "retry")

GOOD: Final[list[tuple[str, tuple[Mode, ...], str]]] = [
    ("no operation", ALL, ""),
    ("one alone", ALL, "0-1 pay first 201"),
    ("a retry is a replay", ALL, "0-1 pay first 201\n2-3 pay replay 201"),
    (
        "replays of replays",
        ALL,
        "0-1 pay first 201\n2-3 pay replay 201\n4-5 pay replay 201\n4-6 pay replay 201",
    ),
    ("a duplicate while it runs", ALL, "0-5 pay first 201\n1-2 pay in-flight"),
    (
        "a replay before the first has received, while its response is on its way",
        ALL,
        "0-9 pay first 201\n1-2 pay replay 201",
    ),
    (
        "in flight and then replayed, and the first one receives it last",
        ALL,
        "0-9 pay first 201\n1-2 pay in-flight\n3-4 pay replay 201",
    ),
    ("refused for something else while it runs", ALL, "0-5 pay first 201\n1-2 refund mismatch"),
    (
        "refused for something else afterwards",
        ALL,
        "0-1 pay first 201\n2-3 refund mismatch\n4-5 pay replay 201",
    ),
    ("the response was lost and the retry replays", ALL, "0-… pay nothing\n2-3 pay replay 201"),
    ("the request was lost and the retry is the first", ALL, "0-… pay nothing\n2-3 pay first 201"),
    (
        "one that was cut off completes after all others",
        ALL,
        "0-… pay nothing\n2-3 pay in-flight\n4-5 pay in-flight\n9-10 pay replay 201",
    ),
    (
        "a cut off one that never did anything",
        ALL,
        "0-1 pay first 201\n2-… refund nothing\n3-4 pay replay 201",
    ),
    ("a crashed one blocks for ever", ALL, "0-… pay nothing\n5-6 pay in-flight\n900-901 pay in-flight"),
    ("released, and then it is another's", ALL, "0-1 pay open\n2-3 refund first 201\n4-5 pay mismatch"),
    ("a 503 that was executed", ALL, "0-3 pay open\n4-5 pay replay 201"),
    ("a 503 that left the key", ALL, "0-3 pay open\n4-5 pay in-flight\n6-7 pay first 201"),
    (
        "a 503 whose bid arrives when its client is gone",
        ALL,
        "0-… pay open\n1-2 refund open\n5-6 refund mismatch",
    ),
    (
        "held, and its outcome is unknown",
        ("hold", "retry"),
        "0-… pay nothing\n5-6 pay unknown\n7-8 pay unknown",
    ),
    (
        "held, and the frozen owner comes back with its response",
        ("hold", "retry"),
        "0-9 pay first 201\n2-3 pay unknown\n4-5 pay in-flight\n10-11 pay replay 201",
    ),
    (
        "held, and released by the owner when it is back",
        ("hold", "retry"),
        "0-… pay nothing\n2-3 pay unknown\n4-5 pay first 201",
    ),
    (
        "a frozen owner is taken over and sends the other's response",
        TAKE_OVER,
        "0-9 pay replay 201\n1-2 pay in-flight\n3-4 pay first 201",
    ),
    (
        "a frozen owner is taken over and sees which one is running",
        TAKE_OVER,
        "0-6 pay in-flight\n1-2 pay in-flight\n4-9 pay first 201",
    ),
    (
        "two frozen owners, one after the other",
        TAKE_OVER,
        "0-5 pay in-flight\n1-2 pay in-flight\n4-9 pay replay 201\n6-7 pay in-flight\n8-10 pay first 201",
    ),
    ("that they touch may mean that they overlap", ALL, "0-3 pay first 201\n3-4 pay in-flight"),
    (
        "three different requests share a key by turns",
        ALL,
        "0-… pay nothing\n0-… refund nothing\n"
        "1-2 pay mismatch\n3-4 refund mismatch\n5-6 cancel mismatch\n7-8 pay in-flight",
    ),
    (
        "all refused each other, since a lost one had the key",
        ALL,
        "0-… cancel nothing\n1-2 pay mismatch\n1-3 refund mismatch",
    ),
]

BAD: Final[list[tuple[str, tuple[Mode, ...], str, str]]] = [
    ("two executions", ALL, "0-1 pay first 201\n2-3 pay first 201", "first"),
    ("two executions at the same time", ALL, "0-9 pay first 201\n0-9 pay first 201", "first"),
    ("two responses", ALL, "0-1 pay first 201\n2-3 pay replay 202", "equal"),
    (
        "two replays of different responses, and the first is not known",
        ALL,
        "0-… pay nothing\n1-2 pay replay 201\n1-2 pay replay 202",
        "equal",
    ),
    ("in flight after the response", ALL, "0-1 pay first 201\n2-3 pay in-flight", "settled"),
    (
        "in flight after a replay, while the first has not received yet",
        ALL,
        "0-9 pay first 201\n1-2 pay replay 201\n3-4 pay in-flight",
        "settled",
    ),
    ("unknown after the response", ALL, "0-1 pay first 201\n2-3 pay unknown", ""),
    ("it was free again after the response", ALL, "0-1 pay first 201\n2-3 refund first 200", "first"),
    ("replayed before it was asked for", ALL, "0-1 pay replay 201\n2-3 pay first 201", "before"),
    ("replayed and none executed", ALL, "0-1 pay replay 201", "before"),
    (
        "replayed to one that asked for something else",
        ALL,
        "0-1 pay first 201\n2-3 refund replay 201",
        "asked",
    ),
    (
        "executed for another than the one that was replayed to",
        ALL,
        "0-… refund nothing\n2-3 pay replay 201",
        "before",
    ),
    ("in flight and none running", ALL, "0-1 pay in-flight", "seen"),
    (
        "two see each other in flight, and none is running",
        ALL,
        "0-5 pay in-flight\n0-5 pay in-flight",
        "seen",
    ),
    ("in flight before the other began", ALL, "0-1 pay in-flight\n2-3 pay first 201", ""),
    ("in flight for something else than what is running", ALL, "0-9 refund first 201\n1-2 pay in-flight", ""),
    ("refused alone", ALL, "0-1 pay mismatch", "something else"),
    ("refused for the same request", ALL, "0-1 pay first 201\n2-3 pay mismatch", ""),
    ("refused when the other had not begun", ALL, "0-1 refund mismatch\n2-3 pay first 201", "something else"),
    ("refused by one that was refused", ALL, "0-5 pay mismatch\n0-5 refund mismatch", "something else"),
    ("unknown in a transaction", ("tx",), "0-… pay nothing\n5-6 pay unknown", "transaction"),
    (
        "taken over although it is held",
        ("hold",),
        "0-9 pay replay 201\n1-2 pay in-flight\n3-4 pay first 201",
        "",
    ),
    (
        "a loser that none can have taken over",
        TAKE_OVER,
        "0-3 pay in-flight\n1-2 pay in-flight\n4-9 pay first 201",
        "",
    ),
    (
        "a loser taken over by one that asked for something else",
        TAKE_OVER,
        "0-9 pay mismatch\n1-2 pay in-flight\n3-4 refund first 201",
        "",
    ),
    (
        "released before the other one asked, and never taken again",
        ALL,
        "0-1 pay open\n2-3 refund open\n4-5 pay mismatch\n6-7 refund mismatch",
        "",
    ),
    (
        "completed after the client had a 503",
        ALL,
        "0-1 pay open\n2-3 refund open\n4-5 pay mismatch\n6-7 pay replay 201",
        "",
    ),
    ("a replay that only a 503 to come can have made", ALL, "0-1 pay replay 201\n2-… pay open", "before"),
]
