"""`python -m retrysafe.testing.linearize`, as it is called."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retrysafe.testing import report
from retrysafe.testing.linearize import Operation, files
from retrysafe.testing.linearize import __main__ as command
from tests.linearize import known


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "retrysafe.testing.linearize", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_ten_thousand_histories(tmp_path: Path) -> None:
    """All good ones are accepted and all bad ones rejected, and the report says how many of what."""
    ended = run("--histories", "10000", "--seed", "1", "--json", tmp_path / "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "10000 histories" in ended.stdout
    assert "no violation" in ended.stdout
    assert ended.stderr == ""
    left = report.read(tmp_path / "report.json")
    assert (left.tool, left.asked) == ("linearize", {"histories": 10000, "seed": 1})
    assert (left.counts["accepted"], left.counts["rejected"], left.passed) == (5000, 5000, True)
    assert sum(left.counts["mutations"].values()) == 5000
    assert left.counts["longest"] >= 20


def test_a_number_makes_the_same_history_again() -> None:
    """Whatever was made before it."""
    assert [command.generated(number) for number in range(40, 60)] == [
        command.generated(number) for number in range(60)
    ][40:]


def test_a_checker_that_believes_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command can fail: here every bad history is a violation."""
    monkeypatch.setattr(command, "is_linearizable", lambda history, mode: True)
    counts, violations = command.try_generated(1, 600)
    assert len(violations) == sum(counts["mutations"].values()) == 300
    assert "is bad" in violations[0]


def test_a_checker_that_believes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And here every good one."""
    monkeypatch.setattr(command, "is_linearizable", lambda history, mode: False)
    _, violations = command.try_generated(1, 600)
    assert len(violations) == 300
    assert "is good" in violations[0]


def test_recorded_histories(tmp_path: Path) -> None:
    """A file of good ones passes; with a bad one it does not, and the report has which one and why."""
    file = tmp_path / "histories.jsonl"
    recorded = [files.dump(known.history(text), modes[0], name) for name, modes, text in known.GOOD]
    file.write_text("\n\n".join(recorded) + "\n")
    ended = run(file)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(recorded)} histories" in ended.stdout

    name, modes, text, _ = known.BAD[0]
    file.write_text("\n".join([*recorded, files.dump(known.history(text), modes[0], name)]))
    ended = run(file, "--json", tmp_path / "report.json")
    assert ended.returncode == 1
    assert f"line {len(recorded) + 1} {name}" in ended.stdout
    assert "1 VIOLATIONS" in ended.stdout
    assert len(report.read(tmp_path / "report.json").violations) == 1


def test_a_line_and_its_history_are_the_same() -> None:
    """Answers of any bytes survive the file."""
    history = [*known.history(known.GOOD[1][2]), Operation(3, 4, "pay", "replay", bytes(range(256)))]
    assert files.load(files.dump(history, "tx", "all")) == ("all", "tx", history)
    assert files.load(json.dumps({"operations": []}), "retry") == ("", "retry", [])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[]", "expected an object"),
        ("{}", "expected a list of operations"),
        ('{"operations": [], "mode": "lease"}', "expected a mode"),
        ('{"operations": [3]}', "expected an operation"),
        ('{"operations": [{"start": 3}]}', "has no start"),
        ('{"operations": [{"began": true}]}', "expected times"),
        ('{"operations": [{"began": 1, "ended": 2}]}', "expected texts"),
        ('{"operations": [{"began": 1, "ended": 2, "asked": "", "received": "bang"}]}', "expected one of"),
        ("{", "line 1"),
    ],
)
def test_a_line_that_is_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    """Wrong usage, and the line is named."""
    file = tmp_path / "histories.jsonl"
    file.write_text(line)
    with pytest.raises(SystemExit) as ended:
        command.main([str(file)])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert "line 1" in printed
    assert says in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "either files or --histories"),
        (("missing.jsonl", "--histories", "3"), "either files or --histories"),
        (("missing.jsonl",), "missing.jsonl"),
        (("--histories", "0"), "must be 1 or more, got 0"),
        (("missing.jsonl", "--seed", "3"), "--seed can be combined with --histories only"),
        (("--histories", "3", "--mode", "tx"), "--mode can be combined with files only"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_file_without_a_history(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing was recorded, so nothing was found to be right either."""
    file = tmp_path / "histories.jsonl"
    file.write_text("\n\n")
    with pytest.raises(SystemExit) as ended:
        command.main([str(file)])
    assert ended.value.code == 2
    assert "the file has no history" in capsys.readouterr().err
