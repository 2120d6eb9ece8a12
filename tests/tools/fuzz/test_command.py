"""`python -m tools.fuzz`, as it is called."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from retrysafe.testing import report
from tools.fuzz import __main__ as command
from tools.fuzz.running import Engine, Outcome, run

guided = pytest.mark.skipif(find_spec("atheris") is None, reason="requirements/fuzz.txt is not installed")


def test_at_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says that nothing guided it, how much was done, and what for each target."""
    file = tmp_path / "report.json"
    options = ("--executions", "4001", "--seed", "7", "--engine", "random", "--json", str(file))
    assert command.main(("key", "scope", *options)) == 0
    assert "4,001 executions of 2 targets by random" in capsys.readouterr().out
    left = report.read(file)
    assert left.tool == "fuzz"
    assert (left.counts["engine"], left.counts["guided"], left.counts["crashes"]) == ("random", False, 0)
    assert left.counts["executions"] == 4001
    assert left.counts["targets"]["key"]["executions"] == 2001
    assert left.counts["targets"]["key"]["features"] is None
    assert left.counts["targets"]["key"]["longest"] == 600
    assert "bug" not in left.counts["targets"]["key"]


def test_that_atheris_is_missing_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never silently: a run without guidance proves less."""
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(("scope", "--executions", "10")) == 0
    assert "atheris is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(("scope", "--engine", "atheris"))


def test_a_bug_is_a_violation_with_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In hexadecimal, and with what was raised."""

    def with_its_bug(target: str, engine: Engine, *, planted: bool, **how: int) -> Outcome:
        return run(target, engine, planted=True, **how)

    monkeypatch.setattr(command, "run", with_its_bug)
    file = tmp_path / "report.json"
    options = ("--executions", "60000", "--engine", "random", "--json", str(file))
    assert command.main(("headers", *options)) == 1
    left = report.read(file)
    assert not left.passed
    crash = left.counts["targets"]["headers"]["crash"]
    assert b"\n" in bytes.fromhex(crash)
    assert crash in left.violations[0]
    assert "Broken: of" in left.violations[0]
    assert f"CRASHED on {crash}" in capsys.readouterr().out


def test_a_planted_bug_that_is_not_found_is_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    """With one execution nobody finds anything; with enough, it passes."""
    assert command.main(("scope", "--planted", "--executions", "1", "--engine", "random")) == 1
    assert "DID NOT FIND ITS BUG" in capsys.readouterr().out
    assert command.main(("scope", "--planted", "--executions", "60000", "--engine", "random")) == 0
    assert "1 of 1 planted bugs found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys",), "no target keys: there are key, structured"),
        (("key", "scope", "--executions", "1"), "at least one for each of 2 targets"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@guided
def test_guided(tmp_path: Path) -> None:
    """Under atheris, coverage is counted and every execution that was asked for is done."""
    file = tmp_path / "report.json"
    assert command.main(("key", "--executions", "3000", "--engine", "atheris", "--json", str(file))) == 0
    counts = json.loads(file.read_text())["counts"]
    assert (counts["engine"], counts["guided"], counts["executions"]) == ("atheris", True, 3000)
    assert counts["targets"]["key"]["features"] > 100
    assert counts["targets"]["key"]["corpus"] > 10


@guided
def test_guided_finds_a_planted_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """A crash of libFuzzer's is read as one."""
    assert command.main(("fingerprint", "--planted", "--executions", "200000", "--engine", "atheris")) == 0
    assert "found its bug: Broken" in capsys.readouterr().out
