"""Paths with parameters, and whether what covers paths covers them.

A middleware covers paths as requests have them, and a framework's routes have parameters.  So paths are made
up for a route, and the middleware's own rules are asked about each.
"""

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final

BRACES: Final = re.compile(r"\{(?P<name>\w+)(?::(?P<kind>\w+))?\}")
"""Starlette's parameters: `{id}`, `{id:int}`."""

ANGLES: Final = re.compile(r"<(?:(?P<kind>\w+)(?:\([^)]*\))?:)?(?P<name>\w+)>")
"""Werkzeug's: `<id>`, `<int:id>`, `<any(a, b):id>`."""

# Two values at least: what covers one and not the other covers some of the paths.  The kinds are those of
# both frameworks, and all others are like text.
_UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "int": ("[0-9]+", ("1", "20")),
    "float": (r"[0-9]+(?:\.[0-9]+)?", ("1.5", "20.0")),
    "uuid": ("[0-9a-fA-F-]{36}", (_UUID, "0" + _UUID[1:])),
    "path": (".*", ("a", "b/c")),
}
_TEXT = ("[^/]+", ("a", "1", _UUID))


class Template:
    """A path as a framework writes it, or a prefix such as `/legacy/*` where its routes cannot be read."""

    def __init__(self, path: str, parameters: re.Pattern[str] = BRACES, *, is_prefix: bool = False) -> None:
        self._parts: list[str | tuple[str, tuple[str, ...]]] = []
        """Literal text, and in between the pattern and the samples of a parameter."""
        end = 0
        is_prefix = is_prefix and path.endswith("*")
        stem = path[:-1] if is_prefix else path
        for found in parameters.finditer(stem):
            self._parts += [stem[end : found.start()], _KINDS.get(found["kind"] or "", _TEXT)]
            end = found.end()
        self._parts.append(stem[end:])
        if is_prefix:
            self._parts.append(_KINDS["path"])

    @cached_property
    def samples(self) -> list[str]:
        """Paths that requests to it may have; the one that there is, if it has no parameters."""
        rows = max([1, *(len(part[1]) for part in self._parts if not isinstance(part, str))])
        return list(dict.fromkeys(self._filled(row) for row in range(rows)))

    def samples_like(self, patterns: Iterable[str]) -> list[str]:
        """The same, with those that are among these paths or prefixes (`/orders/*`), if it can have them."""
        if not self._varies:
            return self.samples
        found = dict.fromkeys(self.samples)
        for pattern in patterns:
            # Most patterns are about other routes.
            if pattern.startswith(self._head):
                candidates = self._below(pattern[:-1]) if pattern.endswith("*") else [pattern]
                found.update(dict.fromkeys(path for path in candidates if self._regex.fullmatch(path)))
        return list(found)

    def _below(self, stem: str) -> list[str]:
        """Paths that begin with this and end as its own do; not all of them are its own."""
        segments = self.samples[0].split("/")[1:]
        tails = ["", *("/".join(segments[start:]) for start in range(len(segments)))]
        return [f"{stem}{link}{tail}" for tail in tails for link in ("", "1", "/", "1/")]

    @property
    def _head(self) -> str:
        """The text before its first parameter."""
        head = self._parts[0]
        assert isinstance(head, str), "text comes first, if only an empty one"
        return head

    @property
    def _varies(self) -> bool:
        return len(self._parts) > 1

    def _filled(self, row: int) -> str:
        return "".join(part if isinstance(part, str) else part[1][row % len(part[1])] for part in self._parts)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(
            "".join(re.escape(part) if isinstance(part, str) else part[0] for part in self._parts)
        )
