"""The specification as Markdown: for people who read source, and for agents.

`skill` is the same text with the head by which agents find it (agentskills.io).
"""

import json
import re
from collections.abc import Iterator

from retrysafe._http.specification import Document
from retrysafe._http.specification_sections import (
    TITLE,
    Block,
    Cell,
    Code,
    Facts,
    Find,
    Shell,
    Steps,
    Strong,
    Table,
    Text,
    names_in,
    printable,
    sections,
)

_SPECIAL = re.compile(r"[\\`*_\[\]<>|&]")
"""What could be markup, or the end of a cell."""


def markdown(document: Document) -> str:
    find = names_in(document)
    parts = [f"# {TITLE}", _escaped(document["summary"])]
    for section in sections(document):
        parts.append(f"## {section.title}")
        parts.extend(_block(block, find) for block in section.blocks)
    parts.append(_escaped(document["forms"]))
    return "\n\n".join(parts) + "\n"


def skill(document: Document, name: str) -> str:
    """A `SKILL.md`."""
    methods = ", ".join(document["key"]["methods"])
    description = (
        f"{document['summary']} Read it before you send a {methods} request there, and when one has timed "
        "out or failed."
    )
    return with_head(name, description, markdown(document))


def with_head(name: str, description: str, text: str) -> str:
    """Its head is YAML, of which JSON is a part, whatever is in a text."""
    return f"---\nname: {name}\ndescription: {json.dumps(description)}\n---\n\n{text}"


def _block(block: Block, find: Find) -> str:
    match block:
        case str():
            return _text(block, find)
        case Steps(texts):
            return "\n".join(f"{number}. {_text(text, find)}" for number, text in enumerate(texts, 1))
        case Facts(rows):
            return "\n".join(f"- **{term}**: {_cell(cell, find, ' ')}" for term, cell in rows)
        case Shell(command):
            return f"```sh\n{command}\n```"
        case Table():
            return "\n".join(_table(block, find))


def _table(table: Table, find: Find) -> Iterator[str]:
    yield f"| {' | '.join(table.columns)} |"
    yield "|---" * len(table.columns) + "|"
    for row in table.rows:
        yield f"| {' | '.join(_cell(cell, find, '<br>') for cell in row)} |"


def _cell(cell: Cell, find: Find, between: str) -> str:
    texts = cell if isinstance(cell, tuple) else (cell,)
    return between.join(_text(text, find) for text in texts)


def _text(text: Text, find: Find) -> str:
    if isinstance(text, Code):
        return _code(text)
    inline = "".join(_code(part) if isinstance(part, Code) else _escaped(part) for part in find(text))
    return f"**{inline}**" if isinstance(text, Strong) else inline


def _code(text: str) -> str:
    # In a code span, neither a backtick nor, within a table, a bar can be escaped.
    odd = any(char in text for char in "`|\\")
    return f"<code>{_escaped(text)}</code>" if odd else f"`{printable(text)}`"


def _escaped(text: str) -> str:
    """An entity is never markup (CommonMark section 2.5), wherever it stands."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", printable(text))
