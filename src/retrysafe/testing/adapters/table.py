"""Which line of the checklist is proved by which test: `docs/conformance.md`, written from the code.

python -m retrysafe.testing.adapters.table > docs/conformance.md
"""

import inspect
import sys
from collections.abc import Iterator

from retrysafe.testing.adapters import AdapterSuite
from retrysafe.testing.adapters.lines import SECTIONS

HEAD = """\
# Conformance

What a client can see, line by line, and the tests that prove it for every adapter, against the
reference application over real sockets (`retrysafe.testing.adapters`). The numbers are stable
names and have gaps; 49 and 77 are about effects in the caller's own database transaction and not
part of this release.

Written by `python -m retrysafe.testing.adapters.table`.
"""


def proofs() -> dict[int, list[str]]:
    """The tests by the lines that they cover."""
    found: dict[int, list[str]] = {}
    for name, lines in _tests():
        for line in lines:
            found.setdefault(line, []).append(name)
    return found


def beyond() -> list[str]:
    """The tests of what is expected, but on no list."""
    return [name for name, lines in _tests() if not lines]


def _tests() -> Iterator[tuple[str, tuple[int, ...]]]:
    for section in AdapterSuite.__bases__:
        for name, test in vars(section).items():
            if name.startswith("test_") and inspect.isfunction(test):
                yield f"{section.__name__}.{name}", getattr(test, "covers", ())


def table() -> str:
    covered = proofs()
    parts = [HEAD]
    for title, lines in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| # | what | proved by |\n|---|---|---|\n")
        for number, what in lines.items():
            tests = ", ".join(f"`{name}`" for name in covered.get(number, ()))
            parts.append(f"| {number} | {what} | {tests} |\n")
    parts.append("\n## And beyond the list\n\n")
    parts += [f"- `{name}`\n" for name in beyond()]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(table())
