"""Histories in a file: one JSON object on each line.

    {"name": "seed 7", "mode": "hold", "operations": [
        {"began": 1, "ended": 4, "asked": "pay", "received": "first", "response": "201 paid"}, …]}

`name`, `mode` and `response` may be left out.  `ended` is null for an operation without a response.  Bytes
of a response are the characters of the same numbers (ISO 8859-1), so that text stays readable and nothing is
lost.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple, cast, get_args

from retrysafe.testing.linearize.decide import MODES, Mode
from retrysafe.testing.linearize.history import History, Operation, ResponseKind

_KINDS = get_args(ResponseKind)


class Named(NamedTuple):
    name: str
    mode: Mode
    history: History


def dump(history: Sequence[Operation], mode: Mode, name: str = "") -> str:
    """One line, without its end."""
    operations = [
        operation._asdict() | {"response": operation.response.decode("latin-1")} for operation in history
    ]
    return json.dumps({"name": name, "mode": mode, "operations": operations})


def load(line: str, mode: Mode = "hold") -> Named:
    """`ValueError` with what was found and what was expected, if it is not a history."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object with operations, and found {line[:60]!r}")
    value = cast("dict[str, object]", found)
    operations = value.get("operations")
    if not isinstance(operations, list):
        raise ValueError(f"expected a list of operations, and found {operations!r}")
    chosen = value.get("mode", mode)
    if chosen not in MODES:
        raise ValueError(f"expected a mode ({', '.join(MODES)}), and found {chosen!r}")
    history = [_operation(operation) for operation in cast("list[object]", operations)]
    return Named(str(value.get("name", "")), chosen, history)


def _operation(value: object) -> Operation:
    if not isinstance(value, dict):
        raise ValueError(f"expected an operation, and found {value!r}")
    given = cast("dict[str, object]", value)
    if unknown := given.keys() - set(Operation._fields):
        raise ValueError(f"an operation has no {', '.join(sorted(unknown))}")
    began, ended = given.get("began"), given.get("ended")
    asked, received, response = given.get("asked"), given.get("received"), given.get("response", "")
    if not _is_time(began) or not (ended is None or _is_time(ended)):
        raise ValueError(f"expected times, and found {began!r} and {ended!r}")
    if not isinstance(asked, str) or not isinstance(response, str):
        raise ValueError(f"expected texts, and found {asked!r} and {response!r}")
    if received not in _KINDS:
        raise ValueError(f"expected one of {', '.join(_KINDS)}, and found {received!r}")
    return Operation(
        cast("float", began),
        cast("float | None", ended),
        asked,
        cast("ResponseKind", received),
        response.encode("latin-1"),
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
