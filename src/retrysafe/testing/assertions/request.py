"""The request under test: made once for each key, encoded once, and changed where another one is needed.

A retry sends the same bytes.  So bodies are encoded here and not by the client, which may encode them anew
each time, and every kind of client is given the same four values.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict, cast
from urllib.parse import urlencode

from retrysafe._core.headers import is_name

BODIES: tuple[Literal["json", "data", "content"], ...] = ("json", "data", "content")
"""The three ways to say what the body is."""

Pairs = Mapping[str, object] | Sequence[tuple[str, object]]


class Changed(TypedDict, total=False):
    """What another request with the same key has instead."""

    path: str
    json: object
    data: Pairs | bytes | str
    content: bytes | str
    params: Pairs


class Request(NamedTuple):
    """One request as it is sent."""

    method: str
    target: str
    """Path and query; or a whole URL, where the client takes one."""
    headers: Mapping[str, str]
    """With the key among them."""
    body: bytes
    key_header: str
    key: str

    def with_headers(self, headers: Mapping[str, str]) -> "Request":
        """The same with these headers, instead of those of the same name."""
        return self._replace(headers=merged(self.headers, headers))

    def same_as(self, other: "Request") -> bool:
        """Whether a server could take one for a retry of the other."""
        return (self.method, self.target, self.body) == (other.method, other.target, other.body)


class Body(NamedTuple):
    """A body, and how it was given."""

    kind: Literal["json", "data", "content", "none"] = "none"
    value: object = None

    @property
    def is_form(self) -> bool:
        return self.kind == "data" and not isinstance(self.value, bytes | str)

    def encode(self) -> tuple[bytes, str | None]:
        """The bytes, and their media type where it is known."""
        if self.kind == "json":
            try:
                return json.dumps(self.value).encode(), "application/json"
            except TypeError as error:
                error.add_note("Encode what json.dumps does not know yourself, and pass content=")
                raise
        if self.is_form:
            return urlencode(_pairs(self.value)).encode(), "application/x-www-form-urlencoded"
        return _as_bytes(self.value), None

    def another(self) -> "Body | None":
        """The same with one value changed; `None` where there is nothing to change."""
        if self.kind == "json":
            return Body("json", another(self.value))
        if self.is_form:
            pairs = _pairs(self.value)
            values = cast("list[object]", another([value for _, value in pairs]))
            names = [name for name, _ in pairs]
            return Body("data", list(zip(names, values, strict=True))) if pairs else None
        if not (text := _as_bytes(self.value)):
            return None
        try:
            return Body("content", json.dumps(another(json.loads(text))))
        except ValueError:
            raise ValueError(
                "the body is not JSON, so that another one of its kind cannot be made: pass "
                f'changed={{"{self.kind}": ...}} with one that the application accepts, or changed=False'
            ) from None


class Parts(NamedTuple):
    """What a request is made of, without its key."""

    method: str
    path: str
    body: Body
    params: Pairs
    headers: Mapping[str, str]

    def encode(self, key_header: str, key: str) -> Request:
        """The request with this key."""
        body, media_type = self.body.encode()
        headers = dict(self.headers)
        if media_type is not None and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = media_type
        headers[key_header] = key
        query = urlencode(_pairs(self.params))
        target = f"{self.path}{'&' if '?' in self.path else '?'}{query}" if query else self.path
        return Request(self.method, target, headers, body, key_header, key)

    def changed(self, instead: Changed | Literal[True]) -> "Parts":
        """Another request: with what is given, or with one value of the body changed."""
        if instead is True:
            if (body := self.body.another()) is not None:
                return self._replace(body=body)
            # The query is compared like the body, and applications ignore parameters that they do not know.
            return self._replace(params=[*_pairs(self.params), ("changed", "1")])
        return Parts(
            self.method,
            instead.get("path", self.path),
            _one_body(instead) if any(kind in instead for kind in BODIES) else self.body,
            instead.get("params", self.params),
            self.headers,
        )


class Template(NamedTuple):
    """What the caller gave: values, and functions that make one for each key."""

    method: str
    given: Mapping[str, object]

    def values(self) -> list[object]:
        """The values, or what the functions return this time; coroutines are yet to be awaited."""
        return [value() if callable(value) else value for value in self.given.values()]

    def parts(self, values: Sequence[object]) -> Parts:
        """A request of these values."""
        said = dict(zip(self.given, values, strict=True))
        path = said["path"]
        if not isinstance(path, str):
            raise TypeError(f"path is {path!r}: expected text, such as '/pay', or a function that returns it")
        return Parts(
            self.method,
            path,
            _one_body(said),
            cast("Pairs", said.get("params") or ()),
            checked_headers(said.get("headers")),
        )


def _one_body(given: Mapping[str, object]) -> Body:
    bodies = [Body(kind, given[kind]) for kind in BODIES if given.get(kind) is not None]
    if len(bodies) > 1:
        several = " and ".join(f"{body.kind}=" for body in bodies)
        raise TypeError(f"{several} were given: a request has one body")
    return bodies[0] if bodies else Body()


def checked_headers(headers: object) -> Mapping[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers is {type(headers).__name__}: expected a mapping of names to values")
    found = cast("Mapping[object, object]", headers)
    for name, value in found.items():
        if not isinstance(name, str) or not is_name(name.encode()) or not isinstance(value, str):
            raise TypeError(f"headers has {name!r}: expected names and values of headers, as text")
    return cast("Mapping[str, str]", found)


def merged(headers: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    """Headers, and others instead of those of the same name in whichever case."""
    replaced = {name.lower() for name in others}
    return {name: value for name, value in headers.items() if name.lower() not in replaced} | dict(others)


def _pairs(form: object) -> list[tuple[str, str]]:
    """A form or a query as pairs; a list of values is several pairs."""
    if isinstance(form, str | bytes):
        raise TypeError(f"params is {form!r}: expected a mapping or pairs; text may stand in the path")
    if isinstance(form, Mapping):
        form = list(cast("Mapping[object, object]", form).items())
    found: list[tuple[str, str]] = []
    for name, value in cast("Sequence[tuple[object, object]]", form):
        several = isinstance(value, list | tuple)
        values = cast("Sequence[object]", value) if several else [value]
        found.extend((str(name), str(one)) for one in values)
    return found


def _as_bytes(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    raise TypeError(f"content is {type(body).__name__}: expected bytes or text, which can be sent again")


# --- another body of the same kind


def another(value: object) -> object:
    """The same with one leaf changed: the first number, else the first text, else the first truth value.

    A number first, because most other numbers are valid, too; of a text only the last letter or digit, so
    that dates, UUIDs and decimals stay what they are.
    """
    for change in (_other_number, _other_text, _other_truth):
        if (found := _first_changed(value, change)) is not None:
            return found.value
    match value:
        case dict():
            return {**cast("dict[str, object]", value), "changed": 1}
        case list():
            return [*cast("list[object]", value), 1]
        case _:
            return 1


class _Found(NamedTuple):
    value: object


def _first_changed(value: object, change: Callable[[object], object]) -> _Found | None:
    """The value with the first of its leaves changed that `change` knows another one for."""
    items: list[tuple[object, object]]
    match value:
        case dict():
            items = list(cast("dict[object, object]", value).items())
        case list() | tuple():
            items = list(enumerate(cast("Sequence[object]", value)))
        case _:
            other = change(value)
            return None if other is None else _Found(other)
    for at, (_, one) in enumerate(items):
        if (found := _first_changed(one, change)) is not None:
            items[at] = (items[at][0], found.value)
            return _Found(dict(items) if isinstance(value, dict) else [one for _, one in items])
    return None


def _other_number(value: object) -> object:
    return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else None


def _other_truth(value: object) -> object:
    return not value if isinstance(value, bool) else None


# 9 and f go down, so that digits stay digits and hexadecimal stays hexadecimal.
_NEXT = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "1234567898bcdefehijklmnopqrstuvwxyzyBCDEFEHIJKLMNOPQRSTUVWXYZY",
)


def _other_text(value: object) -> object:
    if not isinstance(value, str):
        return None
    for at in range(len(value) - 1, -1, -1):
        if (other := value[at].translate(_NEXT)) != value[at]:
            return f"{value[:at]}{other}{value[at + 1 :]}"
    return f"{value}x"
