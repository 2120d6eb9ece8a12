"""Data that wants to steer the terminal, pass for markup, or break the encoding."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe._core import keys
from retrysafe._core.model import Response
from tests.cli.records import Shop
from tests.cli.terminal import Screen, run, shown

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n[bold red]x[/bold red] :smile: 注文 \U0001f4a5"

SCOPE = ((f"tenant{EVIL}", f"acme{EVIL}"),)
SETTLED = keys.digest("request", SCOPE, f"key-{EVIL}").hex()
LOST = keys.digest("request", SCOPE, f"lost-{EVIL}").hex()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every text of a record, its headers and its body are hostile."""
    shop = Shop(tmp_path_factory.mktemp("hostile") / "keys.db")
    response = Response(
        200,
        ((b"content-type", b"text/plain"), (b"x-evil", b"\x9b31m\x85 [bold]x[/bold]")),
        f"{EVIL}\n{EVIL}".encode(),
    )
    shop.finished(
        f"key-{EVIL}", response, scope=SCOPE, target=f"/x{EVIL}", action=f"GET{EVIL}", request_id=f"id{EVIL}"
    )
    shop.abandoned(f"lost-{EVIL}", scope=SCOPE, target=f"/y{EVIL}", request_id=f"id{EVIL}", ago=40)
    shop.abandoned(f"gone-{EVIL}", scope=SCOPE, target=f"/z{EVIL}", request_id=f"id{EVIL}", ago=40 * 86400.0)
    yield shop
    shop.close()


def harmless(text: str) -> bool:
    """Nothing is left that a terminal acts upon, but for line ends."""
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["ls", "--show-keys"],
        ["show", "{id}", "--show-keys"],
        ["show", "{id}", "--body"],
        ["stats"],
        ["ls", "--json", "--show-keys"],
        ["show", "{id}", "--json"],
    ],
)
@pytest.mark.parametrize("columns", [80, 140])
def test_nothing_reaches_the_terminal_raw(hostile: Shop, arguments: list[str], columns: int) -> None:
    """Escapes are shown as text, and markup is just text."""
    screen = shown(*(word.format(id=SETTLED) for word in arguments), store=hostile.url, columns=columns)
    assert harmless(screen.text)
    if "--json" not in arguments:
        assert "\\x1b" in screen.text
    if arguments[0] == "show":
        assert "[bold red]x[/bold red] :smile:" in screen.text


def test_questions_and_reports_are_harmless_too(hostile: Shop) -> None:
    """So are the panel above a question, a list of candidates, and what a purge has to report."""
    screen = Screen("release", LOST, "--show-keys", "--reason", EVIL.replace("\r\n", ""), store=hostile.url)
    screen.expect("[y/N] ")
    screen.type("n\n")
    screen.end()
    assert harmless(screen.text)
    purged = Screen("purge", store=hostile.url, columns=140)
    assert purged.end() == 0
    # The bar itself goes back to the beginning of its line.
    assert harmless(purged.text.replace("\r", ""))
    assert "1 abandoned record expired unresolved" in purged.text


@pytest.mark.parametrize("argument", ["\x1b[31m", "[bold]x[/bold]", "注文", "\u202e"])
def test_what_was_typed_is_repeated_harmlessly(tmp_path: Path, argument: str) -> None:
    """Mistakes are quoted back, escaped."""
    for arguments in (
        ["ls", "--older", argument],
        [argument],
        ["ls", f"--{argument}"],
        ["ls", "--scope", argument],
    ):
        screen = Screen(*arguments, store=f"sqlite:///{tmp_path}/keys.db")
        assert screen.end() == 2
        assert harmless(screen.text), arguments


def test_arguments_that_are_no_text(shop: Shop) -> None:
    """Bytes that are not UTF-8 are refused with a sentence."""
    shop.finished("completed-key-001")
    done = run("show", "\udcff\udcfe", store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert "argument 2 contains bytes" in done.err


def test_an_encoding_without_most_characters(hostile: Shop) -> None:
    """Whatever the encoding of the stream cannot say is escaped."""
    done = run("ls", "--show-keys", store=hostile.url, env={"PYTHONIOENCODING": "latin-1:strict"})
    assert done.code == 0
    assert "\\u6ce8" in done.out
