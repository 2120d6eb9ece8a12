"""What a driver gives, as operations expect it.

A record comes as its id, one JSON text and its body: see the fragment `document`.  Here it becomes the
columns that `codec.decode` reads.  What cannot be taken apart is given to it all the same, and refused
there.
"""

from collections.abc import Callable, Mapping, Sequence
from json import loads
from typing import Any

from retrysafe.stores.queue import Row, Rows

_OF_DOCUMENT = 28
"""Columns of a record without its id and its body."""

_TIMES = (6, 15, 16, 17, 18, 19, 23)
"""Their places in the document.  JSON has no numbers that are not integers where the fraction is zero."""

_NOTHING: Row = (None,) * (_OF_DOCUMENT + 2)


def columns(id: object, document: Any, body: object) -> list[object]:  # noqa: ANN401 - text, or bytes from some drivers
    """The columns of a record, in the order of `codec.decode`."""
    try:
        found: list[Any] = loads(document)
        for place in _TIMES:
            if found[place] is not None:
                found[place] = float(found[place])
        version, token, fingerprint, *rest = found
        *rest, status, headers, omitted = rest
        return [version, id, _bytes(token), _bytes(fingerprint), *rest, status, headers, body, omitted]
    except (TypeError, ValueError, IndexError):
        return [None, id, *_NOTHING[2:]]


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def _look(row: Row) -> Row:
    id, document, body, now = row
    return [*columns(id, document, body), now]


def _purged(row: Row) -> Row:
    id, state, document = row
    return [state] if document is None else [state, *columns(id, document, None)]


def _listed(row: Row) -> Row:
    id, document, body, *rest = row
    return [*columns(id, document, body), *rest]


def _due(row: Row) -> Row:
    payload, id, document, body = row
    return [payload, *columns(id, document, body)]


_READERS: Mapping[str, Callable[[Row], Row]] = {
    "look": _look,
    "purge": _purged,
    "list_records": _listed,
    "list_records_by_id": _listed,
    "list_records_by_request_id": _listed,
    "list_records_by_subject": _listed,
    "list_records_by_scope": _listed,
    "export_records": _listed,
    "due": _due,
}


def read(name: str, rows: Rows) -> Rows:
    """The rows of a statement."""
    reader = _READERS.get(name)
    return rows if reader is None else [reader(row) for row in rows]


def reserved(row: Row) -> tuple[bytes, Sequence[Row] | None]:
    """A row of `reserve`: the id, and what the operation is given; `None` for a record that has expired."""
    id, attempt, has_expired, document, body, now = row
    assert isinstance(id, bytes)
    if attempt is not None:
        return id, [(attempt,)]
    if has_expired:
        return id, None
    return id, [(None, *columns(id, document, body), now)]
