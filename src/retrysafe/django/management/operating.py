"""What the commands share: the project's store, exit codes for a scheduler, and tables in plain text."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from retrysafe.cli.exits import Exit
from retrysafe.cli.format import clean
from retrysafe.django.settings import open_for_operators
from retrysafe.errors import ConfigurationError, StoreError
from retrysafe.stores.admin import Admin


class OperatingCommand(BaseCommand):
    """A command on the records.  It ends with the exit codes of the command line `retrysafe`."""

    # For schedulers: a URLconf that cannot be imported is no reason to keep what has expired.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            help='The database of the records, where it is not the one of RETRYSAFE["DATABASE"].',
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=Exit.USAGE) from error
        except StoreError as error:
            raise CommandError(f"the store cannot be used: {error}", returncode=Exit.STORE) from error
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=Exit.INTERRUPTED) from None


@contextmanager
def project_admin(alias: str | None) -> Generator[Admin]:
    """The admin interface of the project's store."""
    store, is_own = open_for_operators(alias)
    try:
        admin = store.open_admin()
        try:
            yield admin
        finally:
            admin.close()
    finally:
        if is_own:
            store.close()


def whole_number(least: int) -> Callable[[str], int]:
    """For `add_argument`: a number of records, or of lines."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is not a valid number: expected {least} or more")
        return int(text)

    return parse


class Progress:
    """How far a command has come: one line on a terminal, which is written over; elsewhere nothing."""

    def __init__(self, total: int, stream: Any, *, shown: bool) -> None:  # noqa: ANN401 - Django's, untyped
        self._total = total
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._done = 0

    def __call__(self, number: int) -> None:
        self._done += number
        if self._shown:
            self._stream.write(f"\r{self._done:,} of {max(self._total, self._done):,} removed", ending="")
            self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * 60 + "\r", ending="")


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> list[str]:
    """Lines with aligned columns, those of numbers to the right; what a client sent is escaped."""
    cells = [list(titles), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def in_utf8(text: str) -> str:
    """What stdout can show: a sign that its encoding lacks must not end a command."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
