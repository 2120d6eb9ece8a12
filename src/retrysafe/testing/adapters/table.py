"""Which line of the checklist is proved by which test: `docs/conformance.md`, written from the code.

python -m retrysafe.testing.adapters.table > docs/conformance.md
"""

import inspect
import sys
from collections.abc import Iterator
from string import ascii_lowercase

from retrysafe.testing.adapters import AdapterSuite
from retrysafe.testing.adapters.limits import ADAPTERS
from retrysafe.testing.adapters.lines import SECTIONS

HEAD = """\
# Conformance

What a client can see, line by line, and the tests that prove it for every adapter, against the
reference application over real sockets (`retrysafe.testing.adapters`). The numbers are stable
names and have gaps; 49 and 77 are about effects in the caller's own database transaction and not
part of this release. A letter stands for a limit of a server, not of the adapter, on one of the
tests; [it is explained below](#what-servers-do-not-allow).

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


def limits() -> dict[tuple[str, str, str], str]:
    """A letter for each adapter, test and reason, wherever a server does not let a test succeed."""
    found = {
        (adapter, test, reason): ""
        for adapter, servers in ADAPTERS.items()
        for declared in servers.values()
        for test, reason in declared.items()
    }
    return dict(zip(found, ascii_lowercase, strict=False))


def _servers(adapter: str, test: str, reason: str) -> str:
    concerned = [name for name, declared in ADAPTERS[adapter].items() if declared.get(test) == reason]
    return " and ".join(concerned)


def _standing(adapter: str, tests: list[str]) -> str:
    """How an adapter stands with a line: a tick, and the limits on single tests of it."""
    letters = [
        letter
        for (concerned, test, _), letter in limits().items()
        if concerned == adapter and any(name.endswith(f".{test}") for name in tests)
    ]
    return " ".join(["✓", *(f"*{letter}*" for letter in letters)])


def table() -> str:
    covered = proofs()
    parts = [HEAD]
    columns = "".join(f" {adapter} |" for adapter in ADAPTERS)
    rule = "---|" * (3 + len(ADAPTERS))
    for title, lines in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| # | what |{columns} proved by |\n|{rule}\n")
        for number, what in lines.items():
            names = covered.get(number, [])
            standing = "".join(f" {_standing(adapter, names)} |" for adapter in ADAPTERS)
            tests = ", ".join(f"`{name}`" for name in names)
            parts.append(f"| {number} | {what} |{standing} {tests} |\n")
    parts.append("\n## And beyond the list\n\n")
    parts += [f"- `{name}`\n" for name in beyond()]
    parts.append("\n## What servers do not allow\n\n")
    for (adapter, test, reason), letter in limits().items():
        under = _servers(adapter, test, reason)
        parts.append(f"- *{letter}*: {adapter}, under {under}: {reason} (`{test}`)\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(table())
