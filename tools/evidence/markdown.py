"""Numbers and tables as Markdown has them."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

WIDTH = 115
"""Of a line of prose in the documentation."""


def number(value: float) -> str:
    """With commas between thousands; fractions to one place."""
    return f"{value:,.1f}" if isinstance(value, float) and not value.is_integer() else f"{int(value):,}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers are set to the right, if the whole column is numbers."""
    listed = [list(row) for row in rows]
    right = [
        bool(listed) and all(isinstance(row[column], int | float) for row in listed)
        for column in range(len(heads))
    ]
    lines = [list(heads), ["---:" if numeric else "---" for numeric in right]]
    lines += [[_cell(value) for value in row] for row in listed]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return number(value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def paragraphs(*blocks: str) -> str:
    """Prose is broken into lines as it is elsewhere, tables stay as they are, what is empty is left out."""
    return "\n\n".join(block if block.startswith("|") else prose(block) for block in blocks if block)


def prose(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def counted(tally: Mapping[str, float]) -> str:
    """The greatest first, as a list within a cell.  Names may have commas of their own."""
    ordered = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{name}: {number(times)}" for name, times in ordered)


def one_in(cases: int) -> str:
    """The rule of three: none in this many cases leaves room for less than one in a third of them."""
    return f"one in {cases // 3:,}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
