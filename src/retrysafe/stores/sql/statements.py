"""The `.sql` files of a dialect, by name.

Each file is one statement and opens with its arguments and columns, and why it is atomic.  A name in braces,
as in `{expired}`, stands for the text of that file: what must mean the same everywhere is written once.
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
    folder = files("retrysafe.stores.sql") / dialect / "statements"
    texts = {
        file.name.removesuffix(".sql"): _COMMENT.sub("", file.read_text(encoding="utf-8")).strip()
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
    return {name: _FRAGMENT.sub(lambda use: texts[use[1]], text) for name, text in texts.items()}
