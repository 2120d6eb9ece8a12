"""`manage.py retrysafe …`: the command line, on the store of the project."""

import argparse
import os
import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from retrysafe.errors import ConfigurationError

_MISSING = (
    "the command line needs {}, which is not installed: pip install 'retrysafe[cli]'. Without it there are "
    "cleanup_idempotency_keys, cleanup_callback_receipts, idempotency_stats and idempotency_routes"
)


class Command(BaseCommand):
    help = "List, explain and settle idempotency records: `manage.py retrysafe --help` shows the commands."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER, help="As of the command line `retrysafe`.")

    def run_from_argv(self, argv: list[str]) -> None:
        """Its options are those of the command line, and none of Django's but where the settings are."""
        try:
            ended = _run(argv[0], _without_settings(argv[2:]))
        except CommandError as error:
            self.stderr.write(f"CommandError: {error}")
            ended = error.returncode
        sys.exit(ended)

    def handle(self, *_: Any, **options: Any) -> None:
        """By `call_command("retrysafe", "ls", "--json")`."""
        out: Any = self.stdout
        err: Any = self.stderr
        with redirect_stdout(out._out), redirect_stderr(err._out):
            ended = _run("manage.py", options["arguments"])
        if ended:
            raise CommandError(f"retrysafe ended with exit code {ended}", returncode=ended)


def _without_settings(arguments: Sequence[str]) -> list[str]:
    """Without what `manage.py` itself has read by now."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name)
    return parser.parse_known_args(list(arguments))[1]


def _run(script: str, arguments: Sequence[str]) -> int:
    try:
        import rich as _rich
        import typer as _typer
    except ModuleNotFoundError as missing:
        raise CommandError(_MISSING.format(missing.name)) from None
    del _rich, _typer
    from retrysafe.cli import projects
    from retrysafe.cli.app import run
    from retrysafe.coverage.django import examine_project, project_name
    from retrysafe.django.middleware import published
    from retrysafe.django.settings import database, open_for_operators

    if any(one == "--store" or one.startswith("--store=") for one in arguments):
        raise CommandError(
            "--store was given, and these commands are about the project's store: leave it out, or run "
            "`retrysafe` itself",
            returncode=2,
        )
    try:
        migrates = database() is not None
    except ConfigurationError as error:
        raise CommandError(str(error), returncode=2) from error
    script = os.path.basename(script)
    project = projects.Project(
        project_name(),
        f"python {script} retrysafe" if script.endswith(".py") else f"{script} retrysafe",
        open_for_operators,
        migrates,
        examine_project,
        published,
    )
    with projects.within(project):
        return run(arguments)
