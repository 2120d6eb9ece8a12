"""The statements of a dialect, by name, from the `.sql` files in its folder.

A file begins with a comment that says what is in it.  The line `-- name: reserve` begins a statement;
comments below it say what it does, its arguments and columns, and why it is atomic.  A name in braces, as in
`{expired}`, stands for the text of that statement: what must mean the same everywhere is written once, in
`fragments.sql`.  Fragments may be made of fragments.

A file that breaks these rules is refused when the dialect is loaded, and not when a statement is missed.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_LIKE_A_HEADING = re.compile(r"\s*--\s*name\b", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*")
_FRAGMENT = re.compile(r"\{(\w+)\}")


@cache
def load(dialect: str) -> Mapping[str, str]:
    """Every statement of a dialect, without comments, with its fragments filled in."""
    return fill(_sources(dialect))


def source(dialect: str, name: str) -> str:
    """A statement as it is written, with its comments: for people."""
    return _sources(dialect)[name]


def _sources(dialect: str) -> dict[str, str]:
    folder = files("retrysafe.stores.sql") / dialect
    return parse(
        {
            f"{dialect}/{file.name}": file.read_text(encoding="utf-8")
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(".sql")
        }
    )


def parse(texts: Mapping[str, str]) -> dict[str, str]:
    """The statements in these files, as they are written, by name."""
    found: dict[str, str] = {}
    places: dict[str, str] = {}
    for file, text in texts.items():
        name, lines = "", list[str]()
        for number, line in enumerate([*text.splitlines(), None], 1):
            heading = line is not None and _HEADING.fullmatch(line)
            if line is not None and not heading:
                if _LIKE_A_HEADING.match(line):
                    raise ValueError(f"{file}:{number}: {line!r} is not a heading: write `-- name: a_name`")
                lines.append(line)
                continue
            if name:
                found[name] = _statement("\n".join(lines), places[name], name)
            else:
                _check_file_comment("\n".join(lines), file)
            if heading:
                name, lines = heading[1], []
                if name in places:
                    raise ValueError(f"{file}:{number}: {name} was defined before, at {places[name]}")
                places[name] = f"{file}:{number}"
    return found


def _check_file_comment(text: str, file: str) -> None:
    rest = _COMMENT.sub("", text).strip()
    if rest:
        raise ValueError(
            f"{file}: {rest.splitlines()[0]!r} is above the first heading: write `-- name: a_name` before it"
        )
    if not text.strip():
        raise ValueError(f"{file}: the comment that says what is in the file is missing: begin with it")


def _statement(text: str, place: str, name: str) -> str:
    if not _COMMENT.sub("", text).strip():
        raise ValueError(f"{place}: {name} has no SQL: write it below its comment, or remove the heading")
    return text.strip() + "\n"


def fill(sources: Mapping[str, str]) -> dict[str, str]:
    """These statements without comments, and with the text of each fragment in the place of its name."""
    texts = {name: _COMMENT.sub("", source).strip() for name, source in sources.items()}

    def filled(name: str, users: tuple[str, ...]) -> str:
        if name not in texts:
            raise ValueError(f"{users[-1]} uses {{{name}}}: no statement or fragment has this name")
        if name in users:
            raise ValueError(f"{name} contains itself: {' uses '.join([*users, name])}")
        return _FRAGMENT.sub(lambda use: filled(use[1], (*users, name)), texts[name])

    return {name: filled(name, ()) for name in texts}
