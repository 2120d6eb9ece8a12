"""The fields of a request's JSON; 400 where one is missing, or is something else."""

from typing import Any, cast

from flask import abort, request


def text(name: str, otherwise: str | None = None) -> str:
    value = _document().get(name, otherwise)
    return value if isinstance(value, str) else abort(400, f"{name}: expected text, got {value!r}")


def number(name: str, least: int = 1) -> int:
    value = _document().get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        abort(400, f"{name}: expected a whole number of at least {least}, got {value!r}")
    return value


def flag(name: str) -> bool:
    value = _document().get(name, False)
    return value if isinstance(value, bool) else abort(400, f"{name}: expected true or false, got {value!r}")


def quantities(name: str) -> dict[str, int]:
    """How many of which products."""
    value = _document().get(name)
    found = cast("dict[str, object]", value if isinstance(value, dict) else {})
    counted = {product: count for product, count in found.items() if type(count) is int and count > 0}
    if not found or counted.keys() != found.keys():
        abort(400, f"{name}: expected products and how many of each, got {value!r}")
    return counted


def _document() -> dict[str, Any]:
    found = request.get_json()
    if not isinstance(found, dict):
        abort(400, "expected a JSON object")
    return cast("dict[str, Any]", found)
