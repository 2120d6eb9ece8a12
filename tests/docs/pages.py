"""The documentation as data: pages, their code blocks, their headings and links."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.M)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_SAVED_AS = re.compile(r"Save as `(?P<name>[\w.-]+)`[^\n]*:\n\n\Z")


class Block(NamedTuple):
    """A fenced block of code."""

    page: str
    line: int
    language: str
    text: str
    file: str | None
    """What the page asks to save it as, if it does."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Page(NamedTuple):
    name: str
    text: str

    @property
    def prose(self) -> str:
        """The page without its code blocks, which may hold what looks like a heading or a link."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(
                self.name,
                self.text.count("\n", 0, found.start()) + 1,
                found["language"].strip(),
                found["text"],
                saved["name"] if (saved := _SAVED_AS.search(self.text[: found.start()])) else None,
            )
            for found in _FENCE.finditer(self.text)
        ]

    @property
    def inline(self) -> list[str]:
        """What is set as code within sentences and tables."""
        return [re.sub(r"\s+", " ", code) for code in _INLINE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """As code hosts make them from headings, and MyST does too."""
        return {
            re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).strip().lower()).replace(" ", "-")
            for heading in _HEADING.findall(self.prose)
        }


@cache
def pages() -> dict[str, Page]:
    """Every page, by its path from the top of the repository."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    names = sorted(str(file.relative_to(ROOT)) for file in files)
    return {name: Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in names}


def page(name: str) -> Page:
    return pages()[name]


def blocks(*languages: str) -> list[Block]:
    """All blocks in one of these languages."""
    return [block for one in pages().values() for block in one.blocks if block.language in languages]
