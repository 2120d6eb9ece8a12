"""Records in rows: whatever a row holds, it is a record that makes sense, or `UnreadableRecord`; and what was
written is read as it was.

An input is a list of changes to a good row: a column, a kind of value, and the value.
"""

from collections.abc import Callable
from math import isfinite
from struct import unpack
from typing import get_args

from retrysafe._core.model import Claim, Door, Final, Mode, Record, Response, RetentionFrom, State
from retrysafe.errors import UnreadableRecord
from retrysafe.stores.sql import codec
from tools.fuzz.targets import Broken

_HEADERS = '[["content-type","text/plain"],["link","a"],["link","b"]]'
_GOOD: tuple[object, ...] = (
    1, b"i" * 32, b"t" * 16, b"f" * 33, "completed", "lease", 1, 30.0, 0,
    "request", '[["user","42"]]', "key", "POST", "/orders", "r-1", None,
    1.0, 2.0, 2.0, 90.0, 0.0,
    '[["run","9"]]', "creation", 3, 2.5, "0000000002.000 0000000002.500 ",
    201, _HEADERS, b"body", 0,
)  # fmt: skip
_STATES, _MODES, _DOORS = get_args(State), get_args(Mode), get_args(Door)
_WORDS = (
    *_STATES,
    *_MODES,
    *_DOORS,
    _HEADERS,
    "[]",
    "[[]]",
    "{}",
    "null",
    "[" * 2000,
    '[["a","b",""]]',
    '[["a",1]]',
)

_VALUES: tuple[Callable[[bytes], object], ...] = (
    lambda data: None,
    lambda data: data,
    lambda data: data.decode("latin-1"),
    lambda data: data.decode("utf-8", "surrogateescape"),
    lambda data: int.from_bytes(data[:9], "big", signed=True),
    lambda data: unpack(">d", data[:8].ljust(8, b"\0"))[0],
    lambda data: _WORDS[data[0] % len(_WORDS)] if data else "",
    lambda data: bool(data),
    lambda data: bytearray(data),
    lambda data: f'[["{data.decode("latin-1")}","v"]]',
    lambda data: f'[["link","{data.decode("latin-1")}"]]',
    lambda data: float(len(data)),
    lambda data: 1 if data else 0,
    lambda data: [data],
)


def check(data: bytes) -> None:
    if data[:1] == b"\xff":
        _written_and_read(data[1:])
        return
    row = list(_GOOD)
    for change in data.split(b"\xfe"):
        if len(change) >= 2:
            row[change[0] % len(row)] = _VALUES[change[1] % len(_VALUES)](change[2:])
    try:
        record = codec.decode(row)
    except UnreadableRecord as trouble:
        if len(str(trouble)) > 400:
            raise Broken(f"the message tells too much: {trouble}") from trouble
        return
    _makes_sense(record)
    again = codec.decode(_row(record))
    if again != record:
        raise Broken(f"{tuple(record)!r} was written, and {tuple(again)!r} read")


def _makes_sense(record: Record) -> None:
    times = (record.created_at, record.updated_at, record.expires_at, record.held_until)
    moments = (*times, record.lease_until or 0.0, record.completed_at or 0.0, record.seen_at or 0.0)
    answer = record.response
    if (
        record.state not in _STATES
        or record.mode not in _MODES
        or record.door not in _DOORS
        or record.retention_from not in get_args(RetentionFrom)
        or record.attempt < 1
        or record.deliveries < 1
        or not all(map(isfinite, (*moments, *record.delivery_times)))
        or (answer is None and record.state != "in_progress")
        or not all(type(text) is str for part in (*record.scope, *record.details) for text in part)
    ):
        raise Broken(f"{tuple(record)!r} makes no sense")
    if answer is not None:
        if not 200 <= answer.status <= 599 or type(answer.body) is not bytes:
            raise Broken(f"{answer!r} cannot be sent")
        for name, value in answer.headers:
            if not name or any(character in value for character in b"\r\n\0"):
                raise Broken(f"{name!r}: {value!r} cannot be sent")


def _row(record: Record) -> list[object]:
    """As the statements write it, by the arguments that `codec` gives them."""
    row = [codec.VERSION, *record]
    row[10] = codec.json(record.scope)
    row[8] = int(record.checkpointed)
    answer = record.response
    answered: list[object] = [None, None, None]
    if answer is not None:
        head = codec.head(answer)
        answered = [head["status"], head["headers"], answer.body]
    times = "".join(f"{time!r} " for time in record.delivery_times) or None
    gathered = [codec.json(record.details), record.retention_from, record.deliveries, record.seen_at, times]
    return [*row[:21], *gathered, *answered, int(record.omitted)]


def _written_and_read(data: bytes) -> None:
    """A claim and its end, made of the input, through the arguments of statements into a row and back."""
    fields = data.split(b"\xfe")
    fields += [b""] * (8 - len(fields))
    texts = [field.decode("utf-8", "replace").replace("\0", "") for field in fields]
    scope = ((texts[0], texts[1]), ("user", texts[2]))
    claim = Claim(
        fields[0], fields[1], fields[2], 30.0, 90.0, 0.0, _DOORS[len(data) % 3], scope, texts[3], texts[4],
        texts[5], texts[6], texts[7] or None, _MODES[len(data) % 2],
    )  # fmt: skip
    # A value as `kept` lets it through: visible octets, spaces and tabs.
    value = fields[6].translate(None, bytes([*range(9), *range(10, 32), 127]))
    answer = Response(200 + len(data) % 400, ((b"link", value), (b"link", value[::-1])), fields[7])
    final = Final("failed" if len(data) % 3 else "completed", answer, omitted=len(data) % 5 == 0)
    bid, end = codec.bid(claim), codec.outcome(claim, final)
    record = codec.decode(
        [
            codec.VERSION, bid["id"], bid["token"], bid["fingerprint"], end["state"], bid["mode"], 1, 31.0, 0,
            bid["door"], bid["scope"], bid["key"], bid["action"], bid["target"], bid["request_id"],
            bid["correlation_id"], 1.0, 2.0, 2.0, 91.0, 1.0, end["details"], bid["retention_from"], 2, 2.0,
            "0000000001.500 0000000002.000 ", end["status"], end["headers"], end["body"],
            end["omitted"],
        ]
    )  # fmt: skip
    written = (
        claim.id,
        claim.token,
        claim.fingerprint,
        claim.mode,
        claim.door,
        claim.scope,
        claim.key or None,
    )
    read = (
        record.id,
        record.token,
        record.fingerprint,
        record.mode,
        record.door,
        record.scope,
        record.key or None,
    )
    if read != written or (record.action, record.target) != (claim.action, claim.target):
        raise Broken(f"{written!r} was written, and {read!r} read")
    if (record.state, record.response, record.omitted) != final[:3]:
        raise Broken(f"{tuple(answer)!r} was kept, and {record.response and tuple(record.response)!r} read")
