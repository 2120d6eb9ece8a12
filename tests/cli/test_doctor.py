"""`retrysafe doctor`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.records import Shop
from tests.cli.terminal import Screen, run


def test_a_sound_store(shop: Shop) -> None:
    """Every finding has a check, a level and a remark; nothing is wrong, and the exit code says so."""
    shop.finished("completed-key-001")
    done = run("doctor", "--json", store=shop.url)
    document = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (document["ok"], document["problems"]) == (True, 0)
    assert {"SQLite", "schema", "clock", "space"} <= {finding["check"] for finding in document["findings"]}
    for finding in document["findings"]:
        assert set(finding) == {"check", "level", "found", "advice"}
        assert finding["level"] in ("ok", "warning")


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal(shop: Shop, columns: int) -> None:
    """A list to tick off, within the width."""
    shop.abandoned()
    screen = Screen("doctor", store=shop.url, columns=columns)
    assert screen.end() == 0
    assert max(map(len, screen.lines)) <= columns
    assert "✓  schema" in screen.text
    assert "!  abandoned" in screen.text
    assert "1 warning" in screen.text or "2 warnings" in screen.text


def test_problems(tmp_path: Path, shop: Shop) -> None:
    """Tables of another version, a directory for a file: found, advised upon, exit code 1."""
    done = run("doctor", store=f"sqlite:///{tmp_path}")
    assert done.code == 1
    assert "✗  file" in done.out
    assert "problem" in done.out.splitlines()[-1]
    shop.finished("completed-key-001")
    shop.close()
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("UPDATE retrysafe_meta SET value = 99 WHERE name = 'schema'")
        connection.commit()
    document = json.loads(run("doctor", "--json", store=shop.url).out)
    assert [finding["check"] for finding in document["findings"] if finding["level"] == "problem"] == [
        "schema"
    ]


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    """Before the first request there is none: worth a warning, and looking makes none either."""
    missing = tmp_path / "missing.db"
    done = run("doctor", store=f"sqlite:///{missing}")
    assert "!  file" in done.out
    assert not missing.exists()


def test_no_database_at_all(tmp_path: Path) -> None:
    """A file that is something else is a finding and not a traceback."""
    file = tmp_path / "holiday.jpg"
    file.write_bytes(b"\xff\xd8\xff" * 1000)
    done = run("doctor", "--json", store=f"sqlite:///{file}")
    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out)["ok"] is False


def test_where_the_encoding_has_no_marks(shop: Shop) -> None:
    """ASCII stands in for the marks, one for one."""
    shop.finished("completed-key-001")
    done = run("doctor", store=shop.url, env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert done.out.isascii()
    assert "+  schema" in done.out
    assert "*" * 4 in run("ls", store=shop.url, env={"PYTHONIOENCODING": "ascii"}).out
