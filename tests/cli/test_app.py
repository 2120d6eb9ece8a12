"""How commands begin and end: exit codes, trouble with the store, pipes, missing libraries, start-up."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from retrysafe._core.model import Response
from tests.cli.records import Shop, identity
from tests.cli.terminal import COMMAND, Screen, environment, run, shown

NEEDING_A_STORE = [
    ["ls"], ["show", "k"], ["stats"], ["purge"], ["release", "k", "--yes", "--reason", "x"],
    ["resolve", "k", "--done", "--yes", "--reason", "x"], ["audit"], ["doctor"], ["migrate"],
]  # fmt: skip


def test_version_and_help() -> None:
    """The version of the package; help lists every command, with and without a terminal, asked for or not."""
    assert run("--version").out == f"retrysafe {metadata.version('retrysafe')}\n"
    for text in (run("--help").out, run().out, shown("--help").text, shown().text):
        commands = "ls show stats release resolve audit purge doctor routes migrate sql skill demo"
        for command in commands.split():
            assert command in text
    assert "Exit codes" in run("-h").out
    assert "\x1b" not in run("--help").out


@pytest.mark.parametrize("arguments", NEEDING_A_STORE, ids=lambda arguments: arguments[0])
def test_no_store(arguments: list[str]) -> None:
    """Says both ways to name one."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "--store" in done.err
    assert "RETRYSAFE_STORE" in done.err


def test_a_store_in_memory() -> None:
    """Belongs to another process: said, instead of an empty list."""
    done = run("ls", "--store", "memory:")
    assert (done.code, done.out) == (2, "")
    assert "memory:" in done.err


@pytest.mark.parametrize("url", ["keys.db", "mongodb://u:p@h/d", "sqlite:keys.db", "nonsense:x"])
def test_an_address_that_is_none(url: str) -> None:
    """Wrong usage, with what there is, and without repeating a password."""
    done = run("ls", store=url)
    assert (done.code, done.out) == (2, "")
    assert "sqlite:///" in done.err
    assert "u:p@" not in done.err


@pytest.mark.parametrize("url", ["sqlite+aiosqlite:///keys.db", "sqlite+pysqlite:///keys.db", "postgresql+psycopg://u:p@h/d", "postgresql+asyncpg://u:p@h/d"])  # fmt: skip # noqa: E501
def test_an_address_for_sqlalchemy(url: str) -> None:
    """Copied from an application's settings: it says what it is, and what to write instead, for either."""
    scheme = url.partition(":")[0]
    dialect, _, driver = scheme.partition("+")
    done = run("ls", "--store", url)
    assert (done.code, done.out) == (2, "")
    message, advice = done.err.splitlines()
    assert f"{scheme}: is an address for SQLAlchemy" in message
    assert f"Write {dialect}://" in advice
    assert f"without +{driver}" in advice
    assert "u:p@" not in done.err


@pytest.mark.parametrize("command", ["ls", "show", "release", "resolve", "purge", ""])
def test_flags_have_no_value_in_help(command: str) -> None:
    """`--json` is a flag: help on a terminal must not show it as one that takes a value."""
    text = shown(*command.split(), "--help").text
    assert "--help" in text
    assert "bool" not in text
    # Nor do numbers show the range that is checked for them.
    assert "1000000000" not in text


def test_the_option_counts_more_than_the_environment(shop: Shop, tmp_path: Path) -> None:
    """What was typed is what was meant."""
    shop.finished("completed-key-001")
    done = run("ls", "--json", "--store", shop.url, store=f"sqlite:///{tmp_path}/other.db")
    assert len(json.loads(done.out)["records"]) == 1


@pytest.mark.parametrize("arguments", NEEDING_A_STORE[:-2], ids=lambda arguments: arguments[0])
def test_a_file_that_is_not_there(tmp_path: Path, arguments: list[str]) -> None:
    """Exit code 3, a sentence and advice; and a mistyped address makes no new store."""
    path = tmp_path / "typo.db"
    done = run(*arguments, store=f"sqlite:///{path}")
    assert (done.code, done.out) == (3, "")
    assert "does not exist" in done.err
    assert len(done.err.splitlines()) == 2
    assert not path.exists()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """Exit code 3."""
    path = tmp_path / "holiday.jpg"
    path.write_bytes(b"\xff\xd8\xff" * 1000)
    done = run("ls", store=f"sqlite:///{path}")
    assert (done.code, done.out) == (3, "")
    assert "Traceback" not in done.err


def test_a_locked_store(shop: Shop) -> None:
    """Reading goes on past a writer; what has to write gives up in the end, says so, and has done nothing."""
    claim = shop.abandoned("abandoned-key-0001")
    shop.close()
    run(
        "ls", store=shop.url
    )  # the first one on a machine sets the clock that all go by, and writes that down
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert run("ls", store=shop.url).code == 0
        done = run("release", claim.id.hex(), "--reason", "x", "--yes", store=shop.url)
        other.execute("ROLLBACK")
    assert (done.code, done.out) == (3, "")
    assert "locked" in done.err
    assert "Run retrysafe audit" in done.err
    assert json.loads(run("ls", "--json", store=shop.url).out)["records"][0]["standing"] == "abandoned"


def test_a_damaged_record(shop: Shop) -> None:
    """It is named on stderr and hides nothing else; asked for itself, it is not pretended to be well."""
    damaged = shop.finished("completed-key-001")
    shop.finished("completed-key-002")
    shop.close()
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("UPDATE retrysafe_records SET scope = 'nonsense' WHERE key = 'completed-key-001'")
        connection.commit()
    listed = run("ls", "--json", store=shop.url)
    assert (listed.code, len(json.loads(listed.out)["records"])) == (0, 1)
    assert f"retrysafe: a record is not listed: record {identity(damaged)}" in listed.err
    done = run("show", identity(damaged), store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert "is not listed" in done.err


@pytest.mark.parametrize(
    "arguments",
    [["ls"], ["ls", "--json"], ["show", "completed-key-001"], ["show", "completed-key-001", "--body"]],
)
def test_a_pipe_that_is_closed(shop: Shop, arguments: list[str]) -> None:
    """The reader may close the pipe: no message, and the exit code that shells know."""
    shop.finished("completed-key-001", Response(200, (), b"line\n" * 100_000))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nowhere:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            env=environment(shop.url),
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_is_full(shop: Shop) -> None:
    """A partial output is an error: one line, exit code 1, and nothing from the interpreter at its end."""
    shop.finished("completed-key-001")
    for arguments in (["ls"], ["ls", "--json"], ["show", "completed-key-001", "--body"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment(shop.url)
            )
        assert done.returncode == 1
        assert done.stderr == b"retrysafe: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
def test_streams_that_were_closed_beforehand(shop: Shop) -> None:
    """What goes to the other streams does not change."""
    shop.finished("completed-key-001")
    for closed, out in (("<&-", 2), ("2>&-", 2), (">&-", 0)):
        line = f"exec {sys.executable} -m retrysafe ls {closed}"
        done = run(command=["sh", "-c", line], store=shop.url)
        assert (done.code, done.err, len(done.out.splitlines())) == (0, "", out)


def test_a_pipe_that_is_closed_early(shop: Shop) -> None:
    """As `retrysafe show … --body | head -1` does it, in the middle of a long output."""
    shop.finished("completed-key-001", Response(200, (), b"line\n" * 100_000))
    command = [*COMMAND, "show", "completed-key-001", "--body"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(shop.url)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.parametrize("arguments", [["nonsense"], ["ls", "--nonsense"], ["ls", "--limit", "0"], ["ls", "--state", "x"], ["show"], ["ls", "extra"]])  # fmt: skip # noqa: E501
def test_wrong_usage(arguments: list[str]) -> None:
    """Exit code 2, a sentence, and where to read on; on a terminal and without one."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "--help for its arguments and options" in done.err
    screen = Screen(*arguments)
    assert screen.end() == 2
    assert "--help for its arguments and options" in screen.text


def test_the_script_is_the_same(shop: Shop) -> None:
    """`retrysafe`, as it is installed, and `python -m retrysafe` are one thing."""
    shop.finished("completed-key-001")
    script = Path(sys.executable).parent / "retrysafe"
    assert run("ls", "--json", store=shop.url, command=[str(script)]).code == 0


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_the_libraries(library: str) -> None:
    """One line says what to install, and the exit code is 1."""
    code = f"import sys; sys.modules[{library!r}] = None; from retrysafe.cli import main; main()"
    done = run(command=[sys.executable, "-c", code])
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"retrysafe: the command line needs {library}, which is not installed: pip install 'retrysafe[cli]'\n"
    )


def test_the_library_does_not_load_the_command_line() -> None:
    """`import retrysafe` brings neither typer nor rich; help of a command brings no rich and no sqlite3."""
    code = "import sys, retrysafe; print([name for name in ('typer', 'rich') if name in sys.modules])"
    assert run(command=[sys.executable, "-c", code]).out == "[]\n"
    code = (
        "import sys; sys.argv = ['retrysafe', 'ls', '--help']\n"
        "from retrysafe.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "late = ('rich.console', 'sqlite3', 'asyncio', 'starlette', 'retrysafe.stores.sql')\n"
        "print([name for name in late if name in sys.modules])"
    )
    assert run(command=[sys.executable, "-c", code]).out.splitlines()[-1] == "[]"


def test_the_demo_is_passed_on() -> None:
    """`--serve`, `--seed` and `--store` reach it, and its verdict is the exit code."""
    code = (
        "import sys, types; demo = types.ModuleType('retrysafe.demo')\n"
        "demo.run = lambda *, serve, seed, store: print(serve, seed, store) or 7\n"
        "sys.modules['retrysafe.demo'] = demo; sys.argv = ['retrysafe', 'demo', *sys.argv[1:]]\n"
        "from retrysafe.cli import main; main()"
    )
    asked = ["--serve", "--seed", "3", "--store", "sqlite:///keys.db"]
    assert run(*asked, command=[sys.executable, "-c", code])[:2] == (7, "True 3 sqlite:///keys.db\n")
    assert run(command=[sys.executable, "-c", code])[:2] == (7, "False None None\n")
    refused = run("--store", "memory:", command=[sys.executable, "-c", code])
    assert (refused.code, "exists only inside the process" in refused.err) == (2, True)


@pytest.mark.parametrize(("typed", "offered"), [("retrysafe ls --state a", "abandoned"), ("retrysafe ls --door c", "callback"), ("retrysafe res", "resolve"), ("retrysafe resolve --d", "--done")])  # fmt: skip # noqa: E501
def test_completion(typed: str, offered: str) -> None:
    """Commands, options, states and doors are completed."""
    words = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "_RETRYSAFE_COMPLETE": "complete_bash",
    }
    done = run(env=words, command=[str(Path(sys.executable).parent / "retrysafe")])
    assert offered in done.out.split()


def test_completion_can_be_installed() -> None:
    """The script for a shell is printed by the option that Typer has for it."""
    done = run("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.code == 0
    assert "COMPLETE" in done.out
