"""Every command, option, exit code and field of the command line is in docs/cli.md."""

import re
import shlex
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

from retrysafe.cli import app, options
from retrysafe.cli.exits import Exit
from retrysafe.cli.format import RecordDocument
from tests.cli.records import Shop, identity
from tests.cli.terminal import run

TEXT = (Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"(?m)^## ", TEXT)[1:]}
COMMANDS = dict(getattr(typer.main.get_command(app.build()), "commands"))  # noqa: B009  (not in its type)
OPTIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for parameter in command.params
    for option in parameter.opts
    if option.startswith("-") and option != "--help"
]


def test_there_is_something_to_look_for() -> None:
    """The commands are really read off the application."""
    assert {"ls", "show", "resolve", "demo"} <= set(COMMANDS)
    assert ("ls", "--older") in OPTIONS


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str) -> None:
    """Each has a section, a row in the table, and help of its own."""
    assert name in SECTIONS
    assert f"[`{name}`](#{name})" in TEXT
    assert COMMANDS[name].help


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_options(command: str, option: str) -> None:
    """Each option is named in the section of its command."""
    assert re.search(rf"`{option}(?: [^`]*)?`", SECTIONS[command]), f"{option} is missing under {command}"


def test_the_worked_example(tmp_path: Path) -> None:
    """Each of its three ways out settles a record as the text says."""
    section = SECTIONS["An unknown outcome, from the alert to the end"]
    commands = re.findall(r"(?ms)^  ```sh\n(.*?)^  ```", section)
    shop = Shop(tmp_path / "keys.db")
    ended: list[str] = []
    for number, command in enumerate(commands):
        claim = shop.abandoned(f"payment-{number:08}")
        words = shlex.split(command.replace("\\\n", "").replace("7f52f42d", identity(claim)))[1:]
        assert run(*words, "--yes", store=shop.url).code == 0, command
        shop.at(0)
        found = shop.store.look(claim.id)
        ended.append(f"{found.record.state} {found.record.response}" if found else "gone")
    shop.close()
    assert ended == ["completed <Response 201, 14 bytes>", "gone", "failed <Response 409, 0 bytes>"]


def test_the_examples_of_release(tmp_path: Path) -> None:
    """Each of them, on this page and under operating, frees the key that it is about, and no other."""
    operating = (Path(__file__).parents[2] / "docs/operating.md").read_text(encoding="utf-8")
    freeing = operating.partition("## Freeing failed and completed keys")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", SECTIONS["release"] + freeing)
    commands = [line for block in blocks for line in block.splitlines() if " release " in line]
    assert len(commands) == 6
    shop = Shop(tmp_path / "keys.db")
    other = shop.finished("another-key-0001", target="/refunds", state="failed")
    for number, command in enumerate(commands):
        key, target = f"payment-{number:08}", f"/payments/{number}"
        action = "charge" if "--action charge" in command else "POST"
        claim = (
            shop.finished(key, state="failed", action=action, target=target)
            if "--state failed" in command
            else shop.abandoned(key, target=target)
        )
        words = shlex.split(re.sub("7f52f42d|3f9a2c7e", identity(claim), command))[1:]
        done = run(*words, "--yes", store=shop.url)
        assert done.code == 0, (command, done.err)
        shop.at(0)
        assert shop.store.look(claim.id) is None, command
    assert shop.store.look(other.id) is not None
    shop.close()


@pytest.mark.parametrize("option", ["--version", "--help", "--install-completion", "--show-completion"])
def test_options_of_all(option: str) -> None:
    """So are those that belong to no command."""
    assert f"{option}`" in TEXT


@pytest.mark.parametrize("code", Exit)
def test_exit_codes(code: Exit) -> None:
    """Each has a row."""
    assert f"\n| {code.value} |" in TEXT


@pytest.mark.parametrize("field", get_type_hints(RecordDocument))
def test_fields(field: str) -> None:
    """Each field of a record is explained under `ls`."""
    assert f"`{field}`" in SECTIONS["ls"]


@pytest.mark.parametrize("name", [options.ENVIRONMENT, "NO_COLOR", "SUDO_USER"])
def test_environment_variables(name: str) -> None:
    """Each one that is read has a row."""
    assert f"| `{name}`" in TEXT


@pytest.mark.parametrize("value", [*options.State, *options.Door, *options.Dialect])
def test_values(value: str) -> None:
    """So is every value that an option takes."""
    assert f"`{value}`" in TEXT
