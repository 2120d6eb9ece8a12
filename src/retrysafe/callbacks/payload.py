"""What was delivered: read as the type that a handler takes, compared with what came before, and stored.

A stored payload is the headers that its sender says are worth it, as one line of JSON, and then the body as
it was received.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args, get_origin
from uuid import UUID

from retrysafe._core.problems import Problem
from retrysafe.callbacks.webhooks import Headers, PayloadInvalid
from retrysafe.errors import ConfigurationError, UnreadableRecord
from retrysafe.operations.values import NotComparable, codec, fingerprint_value


@dataclass(frozen=True, slots=True)
class Payload:
    """A delivery as it came: for handlers that take it so, and for those of several types."""

    body: bytes
    headers: Headers = field(default_factory=dict[str, str])
    """Of a stored one, those that its sender says are worth storing.  Names are in lower case."""

    def json(self) -> object:
        """The body, which is JSON; raises `PayloadInvalid` if it is not."""
        return _loaded(self.body)

    def __repr__(self) -> str:
        return f"<Payload of {len(self.body)} bytes>"


def pack(payload: Payload) -> bytes:
    """A payload as it is stored."""
    return json.dumps(list(payload.headers.items())).encode() + b"\n" + payload.body


def unpack(stored: bytes) -> Payload:
    """The same, read; raises `PayloadInvalid` if it was damaged in the store."""
    line, separator, body = stored.partition(b"\n")
    headers: dict[str, str] = {}
    try:
        pairs: object = json.loads(line)
    except (ValueError, RecursionError):
        pairs = None
    if not separator or not isinstance(pairs, list):
        raise PayloadInvalid("the stored payload is damaged")
    for pair in cast("list[object]", pairs):
        match pair:
            case [str(name), str(value)]:
                headers[name] = value
            case _:
                raise PayloadInvalid("the stored payload is damaged")
    return Payload(body, headers)


def invalid_payload(invalid: PayloadInvalid) -> Problem:
    return Problem("payload-invalid", f"The payload is not valid: {invalid.reason}")


def _loaded(body: bytes) -> object:
    try:
        found: object = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise PayloadInvalid(f"the body is not JSON: {reason}") from None
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")  # RFC 8259, section 6


class Parser:
    """Reads payloads as events of one type."""

    def __init__(self, kind: object, where: str) -> None:
        self.kind = kind
        self._parse = _parser(kind, where)

    def __call__(self, payload: Payload) -> Any:  # noqa: ANN401 - an event of that type
        """Raises `PayloadInvalid`; where pydantic refused it, that is the cause."""
        return self._parse(payload)


def _parser(kind: object, where: str) -> Callable[[Payload], object]:
    if kind is Payload:
        return lambda payload: payload
    if kind is bytes:
        return lambda payload: payload.body
    if kind is object or kind is Any:
        return Payload.json
    if _has_model(kind):
        return _model_parser(kind)
    if kind is dict or (get_origin(kind) is dict and get_args(kind)[1] in (object, Any)):
        return _loaded_object
    try:
        read_event = codec(kind, name=where).decode
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{where}: an event cannot be read as {kind}: take a model of pydantic's, a dataclass, a "
            f"TypedDict, a dict[str, object], or a Payload ({error})"
        ) from None

    def parse(payload: Payload) -> object:
        _loaded(payload.body)  # says what is wrong with what is not JSON
        try:
            return read_event(payload.body)
        except UnreadableRecord as error:
            raise PayloadInvalid(str(error)) from None

    return parse


def _loaded_object(payload: Payload) -> object:
    found = payload.json()
    if not isinstance(found, dict):
        raise PayloadInvalid(f"the body is a JSON {type(found).__name__}: expected an object")
    return cast("dict[str, object]", found)


def _model_parser(kind: object) -> Callable[[Payload], object]:
    from pydantic import TypeAdapter, ValidationError  # an extra

    adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", kind))

    def parse(payload: Payload) -> object:
        try:
            return adapter.validate_json(payload.body)
        except ValidationError as error:
            raise PayloadInvalid(_first_error(error)) from error
        except RecursionError:
            raise PayloadInvalid("the body is nested too deep") from None

    return parse


def _first_error(error: Any) -> str:  # noqa: ANN401 - pydantic's
    found = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in found[0]["loc"])
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{place or 'the body'}: {found[0]['msg']}{more}"


def _has_model(kind: object) -> bool:
    return hasattr(kind, "__pydantic_validator__") or any(_has_model(part) for part in get_args(kind))


def is_model(event: object) -> bool:
    """Whether it is an instance of a model of pydantic's."""
    return hasattr(type(event), "__pydantic_validator__") and hasattr(event, "model_dump")


def encode(event: object, where: str) -> Payload:
    """An event that did not come over HTTP, as what is stored of it."""
    if isinstance(event, Payload):
        return event
    if isinstance(event, bytes):
        return Payload(event)
    if is_model(event):
        return Payload(cast("Any", event).model_dump_json(by_alias=True).encode())
    kind = type(event)
    try:
        if isinstance(event, dict | list):
            return Payload(json.dumps(event, allow_nan=False, ensure_ascii=False).encode())
        return Payload(codec(kind, name=where).encode(event))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{where}: the event, a {kind.__name__}, cannot be stored: pass a model of pydantic's, a "
            f"dataclass, a dict of JSON values, or bytes ({error})"
        ) from None


def _is_json(value: object) -> bool:
    """Whether a value came out of JSON, and not out of code that knows what is in it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += cast("dict[object, object]", one).values()
        elif isinstance(one, list):
            waiting += cast("list[object]", one)
        elif not isinstance(one, _JSON):
            return False
    return True


MISSING: Any = object()


def read(event: object, path: tuple[str, ...]) -> object:
    """A part of an event by the names of attributes or keys; `MISSING` if it has none."""
    found = event
    for name in path:
        if found is None:
            return MISSING
        if isinstance(found, Mapping):
            found = cast("Mapping[str, object]", found).get(name, MISSING)
        else:
            found = getattr(found, name, MISSING)
        if found is MISSING:
            return MISSING
    return found


_JSON = (dict, list, str, int, float, bool, type(None))


def may_lack(event: object, path: object) -> bool:
    """Whether it depends on what was sent if there is such a part: then one that is missing is no mistake
    of the code.  A class has its attributes or has not."""
    found = event
    for name in cast("tuple[str, ...]", path) if isinstance(path, tuple) else ():
        if isinstance(found, (Mapping, *_JSON)):
            found = read(cast("object", found), (name,))
            if found is MISSING:
                return True
        elif (found := getattr(found, name, MISSING)) is MISSING:
            return False
    return False


def text(value: object) -> str | None:
    """An id as text; `None` for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return str(value)  # of an enumeration that is one, its value
    return str(value) if isinstance(value, int | UUID) else None


def _dumped(model: Any, where: str) -> object:  # noqa: ANN401 - pydantic's
    from pydantic_core import PydanticSerializationError

    try:
        return model.model_dump(mode="json", exclude_defaults=True)
    except PydanticSerializationError as error:  # a field of a type that has no form in JSON
        raise _not_comparable(error, where) from None
    except (ValueError, RecursionError) as error:
        # Nested too deep, or text that is not Unicode: so was what was sent.
        raise PayloadInvalid(f"it cannot be compared: {error}") from None


def _not_comparable(error: Exception, where: str) -> TypeError:
    return TypeError(
        f"{where}: {error}. Say with compare= which of its fields have to be the same, such as "
        'compare=("run_id", "status")'
    )


def comparable(value: object, where: str) -> bytes:
    """What is compared, in its one spelling: of a model its fields that do not have their default."""
    if isinstance(value, Payload):
        value = value.body
    elif is_model(value):
        # As data, so that a class may be renamed, and a field with a default added, between two deliveries.
        value = _dumped(cast("Any", value), where)
    try:
        return fingerprint_value(value, name="event")
    except NotComparable as error:
        if _is_json(value):
            # Nested too deep: so was what was sent.
            raise PayloadInvalid(f"it cannot be compared: {error}") from None
        raise _not_comparable(error, where) from None
