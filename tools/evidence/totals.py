"""Adds up what the jobs of a part counted."""

from collections.abc import Iterable, Mapping
from typing import Any

MOST = ("slowest", "most", "largest", "longest", "deepest")
"""Numbers whose names begin so are no sums: the greatest counts."""


def total(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Tables are added row by row, at any depth; what is not a number stays as the last one had it."""
    found: dict[str, Any] = {}
    for one in counts:
        for name, value in one.items():
            before = found.get(name)
            if isinstance(value, Mapping):
                found[name] = total([before, value] if isinstance(before, Mapping) else [value])
            elif before is None or not _is_number(value):
                found[name] = value
            else:
                found[name] = max(before, value) if name.startswith(MOST) else before + value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
