"""Refusals: whatever their detail says and however long they ask to wait, they can be sent and read."""

import json
from struct import unpack
from typing import get_args

from retrysafe._core import problems
from tools.fuzz.targets import Broken

_CODES = get_args(problems.Code)


def check(data: bytes) -> None:
    if len(data) < 10:
        return
    code = _CODES[data[0] % len(_CODES)]
    after = unpack(">d", data[2:10])[0]
    detail = data[10:].decode("utf-8", "surrogateescape")
    previous = problems.Previous(data[1], code, None) if data[1] & 1 else None
    problem = problems.Problem(code, detail, after, previous, undone=data[1] & 2 == 2)
    response = problems.render(problem, "https://example.org/spec")
    document = json.loads(response.body)
    if document["detail"] != detail or document["code"] != code or document["status"] != response.status:
        raise Broken(f"{problem!r} became {document!r}")
    fields = dict(response.headers)
    if len(fields) != len(response.headers) or int(fields[b"content-length"]) != len(response.body):
        raise Broken(f"{problem!r} is sent with {response.headers!r}")
    for name, value in response.headers:
        if not value.isascii() or not value.decode().isprintable() or name != name.lower():
            raise Broken(f"{problem!r} is sent with {name!r}: {value!r}")
    if b"retry-after" in fields:
        seconds, milliseconds = int(fields[b"retry-after"]), int(fields[b"retry-after-ms"])
        if not 1 <= seconds <= 86400 or not 1 <= milliseconds <= seconds * 1000:
            raise Broken(f"{problem!r} asks to wait {seconds} s and {milliseconds} ms")
