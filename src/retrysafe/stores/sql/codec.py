"""Between records and rows: what is written can be read by operators, what is read is not trusted.

Headers are JSON text, an array of `[name, value]` pairs, as Latin-1 because field values are octets
(RFC 9110 section 5.5).  The scope is JSON text too.  Identity, token, fingerprint and body are bytes.

A row with an invalid value, and every row of a version that this release does not know, is an
`UnreadableRecord`.  Its message names the column and the first digits of the id, never a value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from json import JSONEncoder, loads
from math import inf, isfinite
from typing import Any, cast, get_args

from retrysafe._core.headers import are_fit
from retrysafe._core.model import (
    Claim,
    Counted,
    Deliveries,
    Door,
    Final,
    Headers,
    Mode,
    Parts,
    Record,
    Response,
    RetentionFrom,
    State,
    merge_details,
)
from retrysafe.errors import UnreadableRecord

VERSION = 1
"""Of the meaning of a row, and written in each: a release reads only what it knows."""

_LONGEST = 300
"""Characters of a route: longer ones are cut, because they are part of a key of the table, and PostgreSQL
refuses one of more than 2,700 bytes."""

_NULL = type(None)

# The columns of the fragment `columns`, in its order, then those of the response; and what each may hold.
_TYPES: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "id": (bytes,),
    "token": (bytes,),
    "fingerprint": (bytes,),
    "state": (str,),
    "mode": (str,),
    "attempt": (int,),
    "lease_until": (float, _NULL),
    "checkpointed": (int,),
    "door": (str,),
    "scope": (str,),
    "key": (str, _NULL),
    "action": (str,),
    "target": (str,),
    "request_id": (str,),
    "correlation_id": (str, _NULL),
    "created_at": (float,),
    "updated_at": (float,),
    "completed_at": (float, _NULL),
    "expires_at": (float,),
    "held_until": (float,),
    "details": (str,),
    "retention_from": (str,),
    "deliveries": (int,),
    "seen_at": (float, _NULL),
    "delivery_times": (str, _NULL),
    "status": (int, _NULL),
    "headers": (str, _NULL),
    "body": (bytes, _NULL),
    "omitted": (int,),
}

_WORDS: dict[str, tuple[object, ...]] = {
    "state": get_args(State),
    "mode": get_args(Mode),
    "door": get_args(Door),
    "checkpointed": (0, 1),
    "omitted": (0, 1),
    "retention_from": get_args(RetentionFrom),
}

_COMBINATIONS = frozenset(product(*_WORDS.values()))

_TIMES = tuple(column for column, kinds in _TYPES.items() if float in kinds)

json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def bid(claim: Claim) -> dict[str, object]:
    """The arguments of `reserve` and `take_over`."""
    payload, due_in = (None, None) if claim.inbox is None else claim.inbox[:2]
    return {
        "id": claim.id,
        "token": claim.token,
        "fingerprint": claim.fingerprint,
        "mode": claim.mode,
        "lease": claim.lease,
        "retention": claim.retention,
        "hold": claim.hold,
        "door": claim.door,
        "scope": parts_text(claim.scope),
        "key": claim.key and storable(claim.key),
        "action": storable(claim.action),
        "target": storable(claim.target),
        "request_id": storable(claim.request_id),
        "correlation_id": claim.correlation_id and storable(claim.correlation_id),
        "details": parts_text(claim.details),
        "retention_from": claim.retention_from,
        "payload": payload,
        "due_in": due_in,
        "only_stored": int(claim.inbox is not None and claim.inbox.is_only_stored),
    }


def fence(claim: Claim) -> dict[str, object]:
    """What every later write is conditional on."""
    return {"id": claim.id, "token": claim.token}


def deliveries(asked: Mapping[bytes, Deliveries]) -> str:
    """How often records were asked for, as one JSON text."""
    return json([(id.hex(), number, ago) for id, (number, ago) in sorted(asked.items())])


def calls(ended: Mapping[Counted, int]) -> str:
    """How calls ended, as one JSON text: [[door, route, source, verdict, number], ...]."""
    return json([(*place, number) for place, number in counted(ended)])


def counted(ended: Mapping[Counted, int]) -> list[tuple[tuple[str, ...], int]]:
    """How many calls ended how: door, route, source and verdict, and the number."""
    numbers: Counter[tuple[str, ...]] = Counter()
    for (verdict, door, route, source), number in ended.items():
        numbers[tuple(storable(part)[:_LONGEST] for part in (door, route, source, verdict))] += number
    return sorted(numbers.items())


def batch(claims: Sequence[Claim]) -> str:
    """Many claims as one JSON text, which every driver can send; bytes in hexadecimal."""
    return json([(c.id.hex(), c.token.hex(), c.lease, int(c.announced)) for c in claims])


def head(response: Response) -> dict[str, object]:
    return {"status": response.status, "headers": _headers_text(response.headers)}


@lru_cache(maxsize=256)
def _headers_text(headers: Headers) -> str:
    return json([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers])


@lru_cache(maxsize=1024)
def parts_text(parts: Parts) -> str:
    """Made storable before it is JSON: its escapes are text then, and PostgreSQL's functions can read it."""
    return json([(storable(name), storable(value)) for name, value in parts])


def outcome(claim: Claim, final: Final) -> dict[str, object]:
    """The arguments of the statements that finish."""
    arguments = resolution(final)
    arguments["id"] = claim.id
    arguments["token"] = claim.token
    arguments["details"] = parts_text(merge_details(claim.details, final.details))
    arguments["retention"] = claim.retention
    arguments["retention_from"] = claim.retention_from
    arguments["announced"] = int(claim.announced)
    arguments["due_in"] = final.due_in
    return arguments


def resolution(final: Final) -> dict[str, object]:
    """The arguments that are the outcome itself, a handler's or an operator's."""
    arguments = head(final.response)
    arguments["state"] = final.state
    arguments["body"] = final.response.body
    arguments["omitted"] = int(final.omitted)
    return arguments


def decode(row: Sequence[Any]) -> Record:
    """The record of a row: the columns of the fragment `columns`, then those of the response."""
    (version, id, token, fingerprint, state, mode, attempt, lease_until, checkpointed) = row[:9]
    (door, scope, key, action, target, request_id, correlation_id) = row[9:16]
    (created_at, updated_at, completed_at, expires_at, held_until) = row[16:21]
    (details, retention_from, deliveries, seen_at, delivery_times) = row[21:26]
    (status, headers, body, omitted) = row[26:]
    try:
        if version != VERSION:
            raise ValueError(f"version is not {VERSION}, the one that this release reads")
        _check_types(tuple(map(type, row)))
        times = created_at + updated_at + expires_at + held_until + (lease_until or 0.0)
        times += (completed_at or 0.0) + (seen_at or 0.0)
        words = state, mode, door, checkpointed, omitted, retention_from
        if words not in _COMBINATIONS or attempt < 1 or deliveries < 1 or not isfinite(times):
            _check_values(dict(zip(_TYPES, row, strict=True)))
        answered = checkpointed or state != "in_progress"
        return Record(
            id,
            token,
            fingerprint,
            state,
            mode,
            attempt,
            lease_until,
            checkpointed == 1,
            door,
            _scope_of(scope),
            key,
            action,
            target,
            request_id,
            correlation_id,
            created_at,
            updated_at,
            completed_at,
            expires_at,
            held_until,
            _response(state, status, headers, body) if answered else None,
            omitted == 1,
            _details(details) if details != "[]" else (),
            deliveries,
            seen_at,
            _delivery_times(delivery_times) if delivery_times else (),
            retention_from,
        )
    except ValueError as damage:
        name = id.hex()[:8] if isinstance(id, bytes) else "without an id"
        raise UnreadableRecord(
            f"record {name} cannot be read: {damage}. It is left unchanged; requests with its key get 503 "
            "until it expires or an operator deletes its row"
        ) from None


@lru_cache(maxsize=64)
def _check_types(types: tuple[type, ...]) -> None:
    """Each column holds what it may.  Rows come in few combinations of types, and each is looked at once."""
    for (column, allowed), found in zip(_TYPES.items(), types, strict=True):
        if found not in allowed:
            raise ValueError(f"{column} is not {' or '.join(kind.__name__ for kind in allowed)}")


def _check_values(columns: Mapping[str, object]) -> None:
    """Say what is wrong, if something is."""
    for column, known in _WORDS.items():
        if columns[column] not in known:
            raise ValueError(f"{column} is not one of {', '.join(map(str, known))}")
    for column in ("attempt", "deliveries"):
        if cast(int, columns[column]) < 1:
            raise ValueError(f"{column} is less than 1")
    for column in _TIMES:
        if not isfinite(cast(float, columns[column] or 0.0)):
            raise ValueError(f"{column} is not a valid time")


def _response(state: State, status: int | None, headers: str | None, body: bytes | None) -> Response:
    if status is None or not 200 <= status <= 599:
        raise ValueError("status is not the status of a final response")
    if headers is None:
        raise ValueError("headers is missing")
    if body is None and state != "in_progress":
        raise ValueError("body is missing")
    return Response(status, _headers(headers), body or b"")


@lru_cache(maxsize=256)
def _headers(text: str) -> Headers:
    # The responses of a service mostly have the same few headers.
    try:
        pairs = tuple(
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in _pairs("headers", text)
        )
    except UnicodeEncodeError:
        raise ValueError("headers has characters outside of Latin-1") from None
    if not are_fit(pairs):
        raise ValueError("headers has a name or a value that cannot be replayed")
    return pairs


def _pairs(column: str, text: str) -> Parts:
    try:
        pairs: object = loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{column} is not JSON text") from None
    if type(pairs) is not list or not all(map(_is_pair, cast(list[object], pairs))):
        raise ValueError(f"{column} is not a JSON array of pairs of texts")
    return tuple((name, value) for name, value in cast(list[list[str]], pairs))


def _is_pair(value: object) -> bool:
    if type(value) is not list:
        return False
    texts = cast(list[object], value)
    return len(texts) == 2 and type(texts[0]) is str and type(texts[1]) is str


def _details(text: str) -> Parts:
    return _pairs("details", text)


def _delivery_times(text: str) -> tuple[float, ...]:
    try:
        times = tuple(map(float, text.split()))
    except ValueError:
        times = (inf,)
    if not all(map(isfinite, times)):
        raise ValueError("delivery_times is not a list of times")
    return times


@lru_cache(maxsize=1024)
def _scope_of(text: str) -> Parts:
    return _pairs("scope", text)


def scope(text: object) -> Parts:
    """The parts of a scope.  A `ValueError` says what is wrong with it."""
    if not isinstance(text, str):
        raise ValueError("scope is not text")
    return _pairs("scope", text)


def storable(text: str) -> str:
    """Text that every database can carry: a lone surrogate, as WSGI may hand in, becomes its escape, and so
    does NUL, which PostgreSQL refuses.

    These columns are for people and identity is a digest, so nothing is confused by it.
    """
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
