"""Which line of the checklist is proved by which test: `docs/conformance.md`, written from the code.

python -m retrysafe.testing.adapters.table > docs/conformance.md
"""

import inspect
import sys
from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase

from retrysafe.testing.adapters import AdapterSuite, BothModes, Suite, TransactionalSuite
from retrysafe.testing.adapters.checklist import SECTIONS
from retrysafe.testing.adapters.combinations import COMBINATIONS
from retrysafe.testing.adapters.limits import ADAPTERS

HEAD = """\
# Conformance

What a client can see, line by line, and the tests that prove it for every adapter, against the
reference application over real sockets (`retrysafe.testing.adapters`). The numbers are stable
names and have gaps. A letter stands for a limit of a server, not of the adapter, on one of the
tests; [it is explained below](#what-servers-do-not-allow).

There are two modes. In *lease mode* a handler's effects may be anywhere; in *transactional mode*
(`effects="database"`) they are committed together with the stored response. Most lines have the same
response in both, and the same tests. Where a line has responses of its own in a mode, the tests of that
mode follow its name. [Which stores, servers and drivers](#what-is-tried-with-what) all of this is
tried with is a table of its own.

Written by `python -m retrysafe.testing.adapters.table`.
"""

MODES: tuple[tuple[str, type[Suite]], ...] = (
    ("lease mode", AdapterSuite),
    ("transactional mode", TransactionalSuite),
)


def proofs(suite: type[Suite] = AdapterSuite) -> dict[int, list[str]]:
    """The tests of a suite by the lines that they cover."""
    found: dict[int, list[str]] = {}
    for name, lines in _tests(suite):
        for line in lines:
            found.setdefault(line, []).append(name)
    return found


def beyond() -> list[str]:
    """The tests of what is expected, but on no list."""
    every = {name: lines for _, suite in MODES for name, lines in _tests(suite)}
    return [name for name, lines in every.items() if not lines]


def _tests(suite: type[Suite]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for section in _sections(suite):
        for name, test in vars(section).items():
            if name.startswith("test_") and inspect.isfunction(test):
                yield f"{section.__name__}.{name}", getattr(test, "covers", ())


def _sections(suite: type[Suite]) -> Iterator[type[Suite]]:
    """The parts of a suite, in the order in which it names them."""
    for part in suite.__bases__:
        if part is BothModes:
            yield from _sections(part)
        elif issubclass(part, Suite):
            yield part


def _proved_by(line: int) -> str:
    """The tests of a line: those of both modes, then those that each has for itself."""
    lists = [proofs(suite).get(line, []) for _, suite in MODES]
    common = [name for name in lists[0] if name in lists[1]]
    parts = [_quoted(common)] if common else []
    for (mode, _), names in zip(MODES, lists, strict=True):
        if own := [name for name in names if name not in common]:
            parts.append(f"*{mode}*: {_quoted(own)}")
    return "; ".join(parts)


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def limits() -> dict[tuple[str, str, str], str]:
    """A letter for each adapter, test and reason, wherever a server does not let a test succeed."""
    found = {
        (adapter, test, reason): ""
        for adapter, servers in ADAPTERS.items()
        for declared in servers.values()
        for test, reason in declared.items()
    }
    names = ("".join(letters) for size in (1, 2) for letters in product(ascii_lowercase, repeat=size))
    return dict(zip(found, names, strict=False))


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
    covered = [proofs(suite) for _, suite in MODES]
    parts = [HEAD]
    columns = "".join(f" {adapter} |" for adapter in ADAPTERS)
    rule = "---|" * (3 + len(ADAPTERS))
    for title, lines in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| # | what |{columns} proved by |\n|{rule}\n")
        for number, what in lines.items():
            names = [name for found in covered for name in found.get(number, [])]
            standing = "".join(f" {_standing(adapter, names)} |" for adapter in ADAPTERS)
            parts.append(f"| {number} | {what} |{standing} {_proved_by(number)} |\n")
    parts.append("\n## And beyond the list\n\n")
    parts += [f"- `{name}`\n" for name in beyond()]
    parts.append("\n## What servers do not allow\n\n")
    for (adapter, test, reason), letter in limits().items():
        under = _servers(adapter, test, reason)
        parts.append(f"- *{letter}*: {adapter}, under {under}: {reason} (`{test}`)\n")
    parts += _tried()
    return "".join(parts)


def _tried() -> Iterator[str]:
    yield "\n## What is tried with what\n\n"
    yield "How much of the suite in every run of the tests. In long runs it is all of it in every row.\n\n"
    yield "| adapter | server | processes | store | mode | in every run |\n|---|---|---|---|---|---|\n"
    for one in sorted(COMBINATIONS):
        mode = MODES[one.tx][0]
        yield f"| {one.framework} | {one.server} | {one.processes} | {one.store} | {mode} | {one.extent} |\n"


if __name__ == "__main__":
    sys.stdout.write(table())
