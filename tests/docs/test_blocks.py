"""Every block of code in the documentation is run, or checked by something that knows its language."""

import configparser
import json
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from retrysafe import stores
from tests.docs import commands
from tests.docs.pages import Block, blocks, pages
from tests.docs.running import story

PYTHON = blocks("python")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python(block: Block) -> None:
    """It runs, after the blocks above it on the same page."""
    ran = story(block.page).ran[block.line]
    if ran.error is not None:
        raise ran.error
    if ran.missing is not None:
        pytest.skip(f"{ran.missing} is not installed: the block was only compiled")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{block}: {command[:40]}")
        for block in blocks("sh", "console")
        for command in (
            commands.typed(block.text) if block.language == "console" else commands.lines(block.text)
        )
        if not command.startswith("curl ")  # these are run: see test_quickstart.py
    ],
)
def test_commands(command: str) -> None:
    """The program takes it."""
    commands.check(command)


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_transcripts(block: Block) -> None:
    """What calls a server stands on a page whose transcripts are run."""
    calls = [command for command in commands.typed(block.text) if command.startswith("curl ")]
    assert not calls or block.page == "docs/quickstart.md"
    assert commands.typed(block.text), "nothing was typed: is this a `text` block?"


@pytest.mark.parametrize(
    "code",
    sorted(
        {code for page in pages().values() for code in page.inline if re.match(r"(retrysafe|make) \w", code)}
    ),
)
def test_commands_in_sentences(code: str) -> None:
    """Commands within sentences exist, too; `…` stands for a key."""
    commands.check(re.sub(r"…", "0123456789", code))


def check_json(block: Block, folder: Path) -> None:
    json.loads(block.text)


def check_ini(block: Block, folder: Path) -> None:
    """Units of systemd: known sections, and a command that its program takes."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says to keep case
    unit.read_string(block.text)
    assert set(unit.sections()) <= {"Unit", "Service", "Timer", "Install"}
    assert "Unit" in unit
    if "Service" in unit:
        commands.check(unit["Service"]["ExecStart"])
    if "Timer" in unit:
        assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:\d\d", unit["Timer"]["OnCalendar"])


def check_yaml(block: Block, folder: Path) -> None:
    """Objects of Kubernetes: what every one has, and of a CronJob what it runs."""
    document: dict[str, Any] = yaml.safe_load(block.text)
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "CronJob")
    assert re.fullmatch(r"[a-z0-9-]+", document["metadata"]["name"])
    check_schedule(document["spec"]["schedule"])
    pod = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        commands.check(shlex.join(container["command"]))
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def check_crontab(block: Block, folder: Path) -> None:
    for line in commands.lines(block.text):
        *schedule, command = line.split(maxsplit=5)
        check_schedule(" ".join(schedule))
        commands.check(command)


def check_schedule(schedule: str) -> None:
    minute, hour, *rest = schedule.split()
    assert int(minute) in range(60)
    assert int(hour) in range(24)
    assert rest == ["*", "*", "*"], schedule


def check_sql(block: Block, folder: Path) -> None:
    """It runs on a store that is in use."""
    store = stores.open(f"sqlite:///{folder}/keys.db")
    store.look(bytes(32))
    database = sqlite3.connect(folder / "keys.db", isolation_level=None)
    try:
        database.execute(block.text.replace("keys-backup.db", str(folder / "keys-backup.db"))).fetchall()
    finally:
        database.close()
        store.close()
    if "keys-backup.db" in block.text:
        copy = stores.open(f"sqlite:///{folder}/keys-backup.db")
        assert copy.look(bytes(32)) is None
        copy.close()


def check_text(block: Block, folder: Path) -> None:
    """Pictures and messages; what could be typed belongs to another language."""
    assert not re.search(r"^(\$ |retrysafe |curl |make |pip )", block.text, re.M)


def check_toml(block: Block, folder: Path) -> None:
    assert tomllib.loads(block.text)


CHECKS: dict[str, Callable[[Block, Path], None]] = {
    "crontab": check_crontab,
    "ini": check_ini,
    "json": check_json,
    "sql": check_sql,
    "text": check_text,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", blocks(*CHECKS), ids=str)
def test_other_languages(block: Block, tmp_path: Path) -> None:
    """Each by its own check."""
    CHECKS[block.language](block, tmp_path)


def test_nothing_is_unchecked() -> None:
    """A block in a language that nobody checks will be wrong some day."""
    known = {"python", "sh", "console", *CHECKS}
    everything = [block for page in pages().values() for block in page.blocks]
    assert [str(block) for block in everything if block.language not in known] == []
    assert len(PYTHON) > 15
