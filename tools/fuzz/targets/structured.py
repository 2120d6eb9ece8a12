"""Structured fields: http_sf, which reads unusual keys, answers hostile bytes with a value or its own error.

`keys.py` would survive anything that it raises.  But what it raises by accident, it may also accept by
accident.
"""

from http_sf import StructuredFieldError, parse, ser

from tools.fuzz.targets import Broken


def check(data: bytes) -> None:
    try:
        item = parse(data, tltype="item")
    except StructuredFieldError:
        return
    if not isinstance(item, tuple):
        raise Broken(f"an item is {item!r}")
    # What was read, written and read again is the same.
    written = ser(item)
    again = parse(written.encode(), tltype="item")
    if again != item:
        raise Broken(f"{data!r} was read as {item!r}, and written as {written!r}, which is {again!r}")
