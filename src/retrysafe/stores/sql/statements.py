"""The `.sql` files of a dialect, by name.

Each file is one statement and opens with its arguments and columns, and why it is atomic.  A name in braces,
as in `{expired}`, stands for the text of that file: what must mean the same everywhere is written once.
Fragments may be made of fragments.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_COMMENT = re.compile(r"--[^\n]*\n")
_FRAGMENT = re.compile(r"\{(\w+)\}")


@cache
def load(dialect: str) -> Mapping[str, str]:
    """Every statement of a dialect, without comments, with its fragments filled in."""
    texts = {name: _COMMENT.sub("", source).strip() for name, source in _sources(dialect).items()}

    def fill(text: str) -> str:
        return _FRAGMENT.sub(lambda use: fill(texts[use[1]]), text)

    return {name: fill(text) for name, text in texts.items()}


def source(dialect: str, name: str) -> str:
    """A statement as it is written, with its comments: for people."""
    return _sources(dialect)[name]


def _sources(dialect: str) -> dict[str, str]:
    folder = files("retrysafe.stores.sql") / dialect / "statements"
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
