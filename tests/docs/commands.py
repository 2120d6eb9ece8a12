"""Whether a command line in the documentation is one that its program would take.

Each program's own parser is asked.  A program that nobody here knows is an error: what cannot be checked will
be wrong some day.
"""

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import PurePath

import typer

from tests.docs.pages import ROOT

_ASSIGNMENT = re.compile(r"\w+=\S*")
_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,-]+\])?")


def lines(text: str) -> list[str]:
    """The commands of a block, those continued with a backslash in one, comments left out."""
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def typed(transcript: str) -> list[str]:
    """What was typed in a `console` block; the rest is what was printed."""
    return [line.removeprefix("$ ") for line in lines(transcript) if line.startswith("$ ")]


def check(command: str) -> None:
    """Raise if the command is not one."""
    # In a table, a vertical bar has a backslash.  What follows is another program or a file, not our affair.
    words = shlex.split(command.replace("\\|", "|"), comments=True)
    for sign in ("|", ">"):
        words = words[: words.index(sign)] if sign in words else words
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] == "export"):
        words.pop(0)
    if not words:
        return
    program, arguments = PurePath(words[0]).name, words[1:]
    assert program in PROGRAMS, f"nobody checks {program}: {command}"
    PROGRAMS[program](arguments)


def check_retrysafe(arguments: list[str]) -> None:
    from retrysafe.cli import app

    command = typer.main.get_command(app.build())
    context = command.make_context("retrysafe", list(arguments))
    name, found, rest = command.resolve_command(context, list(arguments))  # type: ignore[attr-defined]  # a group
    found.make_context(name, rest, parent=context)


def _check_celery(arguments: list[str]) -> None:
    import click
    from celery.bin.worker import worker  # pyright: ignore[reportMissingTypeStubs]  # it has none

    assert (arguments[0], arguments[2]) == ("--app", "worker")
    _check_python(["-m", arguments[1]])
    # Its parser alone: defaults are taken from the configuration of an application that is loaded.
    _, rest, _ = worker.make_parser(click.Context(worker)).parse_args(arguments[3:])
    assert rest == []


def _check_procrastinate(arguments: list[str]) -> None:
    from procrastinate.cli import add_arguments, create_parser

    add_arguments(create_parser()).parse_args(arguments)


def _check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for argument in arguments:
        assert "=" in argument or re.search(rf"^{re.escape(argument)}:", makefile, re.M), argument


def _check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for argument in arguments[1:]:
        ours = re.fullmatch(r"(?:\.|(?:\.\./)?retrysafe)(?:\[([\w,]+)\])?", argument)
        if ours is None:
            assert _REQUIREMENT.fullmatch(argument), argument
        elif ours[1]:
            assert set(ours[1].split(",")) <= project["optional-dependencies"].keys(), argument


def _check_python(arguments: list[str]) -> None:
    from importlib.util import find_spec

    if PurePath(arguments[0]).name == "manage.py":
        _check_manage(arguments[1:])
        return
    assert arguments[0] == "-m"
    assert find_spec(arguments[1]) is not None, f"no module {arguments[1]}"


def _check_manage(arguments: list[str]) -> None:
    """A command of a Django project's that has `retrysafe.django`."""
    from django.core.management import get_commands, load_command_class

    from tests.django.project import configure

    configure()
    name, *rest = arguments
    if name == "retrysafe":
        check_retrysafe(rest)
        return
    where = get_commands().get(name)
    assert where is not None, f"no command {name}"
    command = load_command_class(where, name) if isinstance(where, str) else where
    command.create_parser("manage.py", name).parse_args(rest)


def _check_uvicorn(arguments: list[str]) -> None:
    import uvicorn

    uvicorn.main.make_context("uvicorn", list(arguments))


def _check_gunicorn(arguments: list[str]) -> None:
    from gunicorn.config import Config  # type: ignore[import-untyped]  # it has no types

    Config().parser().parse_args(arguments)


def _check_waitress(arguments: list[str]) -> None:
    from waitress.adjustments import Adjustments  # type: ignore[import-untyped]  # it has no types

    Adjustments.parse_args(arguments)  # pyright: ignore[reportArgumentType]  # a list, whatever its stub says


def _check_folder(arguments: list[str]) -> None:
    assert re.fullmatch(r"[a-z]+", " ".join(arguments)), "one folder, here"


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "cd": _check_folder,
    "celery": _check_celery,
    "gunicorn": _check_gunicorn,
    "make": _check_make,
    "mkdir": _check_folder,
    "pip": _check_pip,
    "procrastinate": _check_procrastinate,
    "python": _check_python,
    "python3": _check_python,
    "retrysafe": check_retrysafe,
    "uvicorn": _check_uvicorn,
    "waitress-serve": _check_waitress,
}
