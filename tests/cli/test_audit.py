"""`retrysafe audit`."""

import json

import pytest

from tests.cli.records import Shop, identity
from tests.cli.terminal import run, shown


@pytest.fixture
def handled(shop: Shop) -> Shop:
    """Three interventions, the last one with everything that a terminal should not get."""
    shop.abandoned("abandoned-key-0001")
    shop.abandoned("abandoned-key-0002", target="/x/\x1b[31m")
    run(
        "release",
        "abandoned-key-0001",
        "--reason",
        "nothing was booked",
        "--by",
        "ada",
        "--yes",
        store=shop.url,
    )
    run("resolve", "abandoned-key-0002", "--done", "--reason", "it\x1b[2Jwas [bold]booked", "--by", "bob\x07", "--yes", store=shop.url)  # fmt: skip # noqa: E501
    return shop


def test_json(handled: Shop) -> None:
    """The latest first, with who, why, what and to which record."""
    done = run("audit", "--json", store=handled.url)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert (set(document), document["more"]) == ({"entries", "more"}, False)
    second, first = document["entries"]
    assert set(first) == {
        "at", "by", "reason", "act", "outcome", "id", "key", "scope", "action", "target", "request_id"
    }  # fmt: skip
    assert (first["by"], first["act"], first["outcome"]) == ("ada", "release", "released")
    assert (second["act"], second["outcome"], second["key"]) == ("resolve", "completed 200", "aban••••")
    assert "\x1b" not in done.out
    assert json.loads(run("audit", "--json", "--limit", "1", store=handled.url).out)["more"] is True


def test_of_one_record(handled: Shop) -> None:
    """By the first digits of its id; anything else there is wrong usage."""
    claim = handled.abandoned("abandoned-key-0003")
    run("release", identity(claim), "--reason", "a third one", "--yes", store=handled.url)
    done = run("audit", "--record", identity(claim).upper(), "--show-keys", store=handled.url)
    assert "a third one" in done.out
    assert "abandoned-key-0003" in done.out
    assert len(done.out.splitlines()) == 2
    wrong = run("audit", "--record", "xyz", store=handled.url)
    assert (wrong.code, wrong.out) == (2, "")
    assert "hexadecimal" in wrong.err


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal(handled: Shop, columns: int) -> None:
    """A few lines for each, within the width, and nothing of what people typed acts upon the terminal."""
    screen = shown("audit", store=handled.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    assert "\x1b" not in screen.text
    assert "\x07" not in screen.text
    assert "it\\x1b[2Jwas [bold]booked" in screen.text
    assert "/x/\\x1b[31m" in screen.text
    assert "nothing was booked" in screen.text


def test_no_interventions(shop: Shop) -> None:
    """An empty trail is not a failure."""
    shop.finished("completed-key-001")
    done = run("audit", store=shop.url)
    assert (done.code, done.out, done.err) == (0, "", "No interventions.\n")
