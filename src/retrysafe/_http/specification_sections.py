"""The specification as people read it: its sections in their order, for every form that has headings.

Sentences name headers and problems; `names_in` finds them, so that each form can set them as code.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, cast

from retrysafe._core.problems import CATALOGUE
from retrysafe._http.specification import Document, Entry, RouteEntry

TITLE = "Retrying safely"


class Code(str):
    """Text that is typed or sent as it is."""

    __slots__ = ()


class Strong(str):
    """Text that is looked for."""

    __slots__ = ()


Text = str | Code | Strong
Cell = Text | tuple[Text, ...]
"""Several texts are below one another."""


class Facts(NamedTuple):
    """Terms, and what is to be said about each."""

    rows: list[tuple[str, Cell]]


class Table(NamedTuple):
    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    anchors: list[str] | None = None
    """Of the rows, where something points to them."""


class Steps(NamedTuple):
    texts: list[str]


class Shell(NamedTuple):
    command: str


Block = str | Facts | Table | Steps | Shell


class Section(NamedTuple):
    title: str
    blocks: list[Block]


def sections(document: Document) -> list[Section]:
    return [
        Section("How it works", [Steps(document["how"]), Shell(document["example"]["command"])]),
        Section("What is promised", [document["guarantee"], document["concurrent"], document["interrupted"]]),
        Section("The key", [_key(document)]),
        Section("Responses", ["A response that is not one of the problems below:", _responses(document)]),
        Section(
            "Problems", [f"These are sent instead of a response. {document['form']}", _problems(document)]
        ),
        Section("Headers of responses", [_named("Headers", ("Header", "Value"), document["headers"])]),
        Section(
            "What is stored",
            [
                *document["stored"].values(),
                _named("States of a key", ("State", "Meaning"), document["states"]),
            ],
        ),
        Section("Routes", [document["coverage"], *_routes(document)]),
    ]


def _key(document: Document) -> Facts:
    key = document["key"]
    some = len({entry["required"] for entry in document["routes"]} | {key["required"]}) > 1
    return Facts(
        [
            ("Header", Code(key["header"])),
            ("Methods", ", ".join(key["methods"])),
            ("Required", "on some routes, see below" if some else "yes" if key["required"] else "no"),
            ("Format", (key["format"], key["public"]) if "public" in key else key["format"]),
            ("Owner", document["scope"]),
            ("Compared", document["comparison"]),
            ("Retention", document["retention"]["text"]),
        ]
    )


def _named(caption: str, columns: tuple[str, str], texts: Mapping[str, str]) -> Table:
    return Table(caption, columns, [(Code(name), text) for name, text in texts.items()])


def _responses(document: Document) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (Strong(name), row["meaning"], row["advice"]) for name, row in document["responses"].items()
    ]
    return Table("Responses", ("Response", "What happened", "What to do"), rows)


def _problems(document: Document) -> Table:
    problems = sorted(document["problems"].items(), key=lambda problem: problem[1]["status"])
    rows: list[tuple[Cell, ...]] = [
        (str(entry["status"]), Code(code), _happened(entry), entry["advice"]) for code, entry in problems
    ]
    columns = ("Status", "Code", "What happened", "What to do")
    return Table("Problems", columns, rows, [code for code, _ in problems])


def _happened(entry: Entry) -> Cell:
    texts: list[Text] = [Strong(entry["title"]), entry["meaning"]]
    if "body" in entry:
        texts.append(Code(json.dumps(entry["body"], ensure_ascii=False)))
    elif "detail" in entry:
        texts.append(f"Its detail: “{entry['detail']}”")
    return tuple(texts)


def _routes(document: Document) -> list[Block]:
    rows = [_route(entry) for entry in document["routes"]]
    return [Table("Routes", ("Methods", "Path", "Key", "Different here"), rows)] if rows else []


def _route(entry: RouteEntry) -> tuple[Cell, ...]:
    key = "required" if entry["required"] else "optional"
    return (
        ", ".join(entry["methods"]),
        Code(entry["path"]),
        key,
        tuple(_differing(entry["differs"])) or "nothing",
    )


def _differing(differs: Mapping[str, object]) -> Iterator[str]:
    """Sentences about one route.  Whether a key is required has a column of its own."""
    for name, found in differs.items():
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            for label, text in cast("dict[str, object]", found).items():
                if isinstance(text, dict):  # what a response means
                    yield f"{label}: {' '.join(map(str, cast('dict[str, object]', text).values()))}"
                elif isinstance(text, str):
                    yield f"{label}: {text}" if name in ("headers", "states") else text
                elif name == "headers" and text is None:
                    yield f"{label} is not sent."


Find = Callable[[str], tuple[Text, ...]]
"""Takes a text apart."""


def names_in(document: Document) -> Find:
    """Takes texts apart, so that names of headers and codes of problems are `Code`."""
    names = {document["key"]["header"], *document["headers"], "Retry-After", "Location", *CATALOGUE}
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    # Not within a longer word; together with the value of a header, if it has one.
    pattern = re.compile(rf"(?<![\w-])((?:{'|'.join(longest_first)})(?:: (?:true|false|omitted))?)(?![\w-])")

    @cache  # thousands of routes are described by few sentences
    def find(text: str) -> tuple[Text, ...]:
        parts = enumerate(pattern.split(text))
        return tuple(Code(part) if number % 2 else part for number, part in parts if part)

    return find


def printable(text: str) -> str:
    """With everything escaped that could steer a terminal or hide what is there."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
