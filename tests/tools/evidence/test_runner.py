"""Jobs are run once, stored, and continued, whatever ended the last run."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Screen
from tests.tools.evidence.conftest import PATIENCE, ROOT, Evidence, is_gone, wait_until


def test_runs_and_keeps(evidence: Evidence) -> None:
    """Every job leaves its report, with what it was made by and from, and there is a page; the second time
    nothing is run."""
    ended = evidence.run("quick", "--jobs", "2")
    assert ended.code == 0, ended.out
    assert sorted(evidence.started) == ["quick-1", "quick-2", "quick-3"]
    stored = json.loads((evidence.folder / "build" / "1" / "quick-2.json").read_text())
    assert stored["command"] == ["tests.tools.evidence.fake", str(evidence.folder), "quick-2", "passes"]
    assert stored["report"]["counts"] == {"things": 3}
    assert set(stored["environment"]) == {
        "revision", "clean", "cpus", "system", "python", "sqlite", "postgresql", "mariadb",
        "valkey", "code",
    }  # fmt: skip
    assert "3 of 12 jobs were run" in evidence.page
    again = evidence.run("quick")
    assert again.code == 0
    assert "3 jobs, 0 to be run" in again.out
    assert len(evidence.started) == 3


def test_violations_are_kept(evidence: Evidence) -> None:
    """A report with violations is shown, makes the exit code 1, stands at the top of the page, and is not run
    away from by running it again, unless that is asked for."""
    first = evidence.run("wrong", "--jobs", "1")
    assert first.code == 1
    assert "VIOLATION in wrong-2: I3 is broken by seed 17" in first.out
    assert evidence.page.startswith("# Evidence\n\n**1 violation found.**")
    (evidence.folder / "mended").touch()
    assert evidence.run("wrong").code == 1
    assert evidence.started == ["wrong-1", "wrong-2"]
    mended = evidence.run("wrong", "--again")
    assert mended.code == 0, mended.out
    assert evidence.started == ["wrong-1", "wrong-2", "wrong-2"]
    assert "violation found" not in evidence.page


def test_a_tool_that_fails(evidence: Evidence) -> None:
    """It writes no report, its output is shown, the others are run all the same, and it is tried again."""
    ended = evidence.run("broken", "--jobs", "1")
    assert ended.code == 1
    assert "broken-1: FAILED, it wrote no report" in ended.out
    assert "RuntimeError: this tool is out of order" in ended.out
    assert "broken-2: FAILED, it ended with 1, and its report has no violation" in ended.out
    assert "broken-3: FAILED, it ended with 2" in ended.out
    assert "broken-4: FAILED, what it wrote is not a valid report" in ended.out
    assert "broken-5: no violation" in ended.out
    evidence.run("broken", "--jobs", "1")
    assert evidence.started == [
        *(f"broken-{turn}" for turn in (1, 2, 3, 4, 5)),
        *(f"broken-{turn}" for turn in (1, 2, 3, 4)),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only there do processes learn that their parent is gone")
def test_goes_on_after_sigkill(evidence: Evidence) -> None:
    """Killed without a word: what was finished is kept, what was not ends too, and is run again."""
    running = evidence.start("quick", "slow", "--jobs", "1")
    child = evidence.child_of("slow-1")
    running.kill()
    running.communicate(timeout=PATIENCE)
    wait_until(lambda: is_gone(child))
    evidence.let_go()
    ended = evidence.run("quick", "slow")
    assert ended.code == 0, ended.out
    assert evidence.started == ["quick-1", "quick-2", "quick-3", "slow-1", "slow-1"]
    assert list((evidence.folder / "build" / "1").glob("unfinished*")) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped(evidence: Evidence, number: signal.Signals, code: int) -> None:
    """Whatever was started is ended with it, also what would not listen, and it says how to go on."""
    running = evidence.start("quick", "slow", "stubborn", "--jobs", "2")
    children = [evidence.child_of("slow-1"), evidence.child_of("stubborn-1")]
    running.send_signal(number)
    out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == code, out
    assert "Finished reports are stored; the same command goes on" in out
    for child in children:
        wait_until(lambda child=child: is_gone(child))  # type: ignore[misc]  # a default, bound at once
    evidence.let_go()
    assert evidence.run("quick", "slow", "stubborn").code == 0
    assert sorted(evidence.started) == [
        "quick-1", "quick-2", "quick-3", "slow-1", "slow-1", "stubborn-1", "stubborn-1"
    ]  # fmt: skip


def test_on_a_terminal(evidence: Evidence) -> None:
    """Bars instead of lines; Ctrl-C, as somebody presses it, ends it with its children."""
    screen = Screen(
        "quick",
        "slow",
        command=evidence.command,
        columns=120,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
    )
    child = evidence.child_of("slow-1")
    screen.expect("3 of 4 jobs")
    screen.interrupt()
    assert screen.end() == 130
    wait_until(lambda: is_gone(child))
    assert "quick" in screen.text
    assert "left" in screen.text
    assert "goes on with the others" in screen.text
    assert "quick-1: began" not in screen.text


def test_one_at_a_time(evidence: Evidence) -> None:
    """Two programs do not work in the same folder."""
    first = evidence.start("slow")
    evidence.child_of("slow-1")
    second = evidence.run("quick")
    assert second.code == 2
    assert "another run is using" in second.out
    evidence.let_go()
    out, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, out


def test_fresh_forgets(evidence: Evidence) -> None:
    """Only what was asked for, and it says what that was."""
    evidence.run("quick", "wrong")
    ended = evidence.run("quick", "--fresh")
    assert "Removed 3 reports: quick-1, quick-2, quick-3" in ended.out
    assert sorted(evidence.started) == [
        *(["quick-1"] * 2),
        *(["quick-2"] * 2),
        *(["quick-3"] * 2),
        "wrong-1",
        "wrong-2",
    ]


def test_another_command_is_another_job(evidence: Evidence) -> None:
    """A report that was made by another command, as by an older plan, is none of this job's."""
    evidence.run("quick")
    file = evidence.folder / "build" / "1" / "quick-1.json"
    file.write_text(file.read_text().replace('"passes"', '"passed once"'))
    evidence.run("quick")
    assert evidence.started.count("quick-1") == 2
    assert len(evidence.started) == 4


def test_other_code_is_another_job(evidence: Evidence) -> None:
    """Once the code of a part has changed, its reports are none: they are missing on the page and in the
    list, and made again.  Those of other parts stay."""
    evidence.run("quick", "wrong")
    (evidence.folder / "code" / "quick.py").write_text("2")
    listed = evidence.run("--list").out
    assert "quick: 0 of 3 jobs done" in listed
    assert re.search(r"quick-1 +made from other code, to be run", listed)
    assert "wrong: 2 of 2 jobs done" in listed
    evidence.run("--page-only")
    assert "2 of 12 jobs were run" in evidence.page
    ended = evidence.run("quick", "wrong")
    assert "Made from other code, and so run again: quick-1, quick-2, quick-3" in ended.out
    assert evidence.started.count("quick-1") == 2
    assert evidence.started.count("wrong-1") == 1
    assert "5 of 12 jobs were run" in evidence.page
    # What is back as it was is not what the last report is about.
    (evidence.folder / "code" / "quick.py").write_text("1")
    assert "quick: 0 of 3 jobs done" in evidence.run("--list").out


def test_reports_from_before_code_was_noted(evidence: Evidence) -> None:
    """Nobody knows what they are about."""
    evidence.run("quick")
    file = evidence.folder / "build" / "1" / "quick-1.json"
    document = json.loads(file.read_text())
    del document["environment"]["code"]
    file.write_text(json.dumps(document))
    assert re.search(r"quick-1 +made from other code, to be run", evidence.run("--list").out)


def test_code_that_changes_meanwhile(evidence: Evidence) -> None:
    """Nobody knows which of the two was tested: it is said, nothing is kept, and the next run tries again."""
    running = evidence.start("slow")
    evidence.child_of("slow-1")
    (evidence.folder / "code" / "slow.py").write_text("2")
    evidence.let_go()
    out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1, out
    assert "slow-1: FAILED, the code was changed while it ran" in out
    assert "slow: 0 of 1 jobs done" in evidence.run("--list").out
    assert evidence.run("slow").code == 0


def test_code_that_is_gone(evidence: Evidence) -> None:
    """A part that is about nothing is a mistake in the plan, and not a part that never changes."""
    (evidence.folder / "code" / "quick.py").unlink()
    ended = evidence.run("quick")
    assert ended.code == 2
    assert "code/quick.py, the source of a part, does not exist" in ended.out
    assert evidence.started == []


def test_sizes_are_apart(evidence: Evidence) -> None:
    """Each has its reports, and a try does not overwrite the page of the standard size."""
    evidence.run("quick")
    before = evidence.page
    ended = evidence.run("quick", "--size", "0.01")
    assert "evidence.md" in ended.out
    assert evidence.page == before
    assert "0.01 times the standard size" in (evidence.folder / "build" / "0.01" / "evidence.md").read_text(
        encoding="utf-8"
    )
    assert len(evidence.started) == 6


def test_lists(evidence: Evidence) -> None:
    """What is done, what is left and how it is run; and nothing is started."""
    evidence.run("quick")
    before = evidence.started
    ended = evidence.run("--list")
    assert ended.code == 0
    assert "quick: 3 of 3 jobs done" in ended.out
    assert "slow: 0 of 1 jobs done" in ended.out
    assert f"python -m tests.tools.evidence.fake {evidence.folder} slow-1 lingers" in ended.out
    assert "to be run, about" in ended.out
    assert evidence.started == before


def test_page_only(evidence: Evidence, tmp_path: Path) -> None:
    """Nothing is started, and the page goes where it is asked for."""
    ended = evidence.run("--page-only", "--page", str(tmp_path / "elsewhere" / "page.md"))
    assert ended.code == 0, ended.out
    assert evidence.started == []
    assert "Nothing was run yet" in (tmp_path / "elsewhere" / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nonsense",), "'nonsense' is not a part: expected one of quick, wrong, broken, slow, stubborn"),
        (("--size", "0"), "0 is not a valid size: expected a number above 0"),
        (("--size", "big"), "big is not a valid size"),
        (("--size", "nan"), "nan is not a valid size"),
        (("--jobs", "0"), "0 is not a valid number of jobs"),
        (("--jobs", "-1"), "-1"),
        (
            ("--list", "--fresh", "--again"),
            "--list shows what is done, and changes nothing; there is also --again, ",
        ),
        (("--list", "--page", "x.md"), "there is also --page: leave out one or the other"),
        (("--list", "--page-only"), "there is also --page-only: leave out one or the other"),
        (
            ("--page-only", "--fresh"),
            "--page-only runs nothing, and the page is about all parts; there is also ",
        ),
        (("--page-only", "--again"), "there is also --again: leave out one or the other"),
        (("--page-only", "--jobs", "2"), "there is also --jobs: leave out one or the other"),
        (("--page-only", "quick"), "there is also PART: leave out one or the other"),
    ],
)
def test_wrong_usage(evidence: Evidence, arguments: tuple[str, ...], expected: str) -> None:
    """It says what was found and what there is, starts nothing, and ends with 2."""
    ended = evidence.run(*arguments)
    assert ended.code == 2
    assert expected in ended.out
    assert list(evidence.folder.iterdir()) == [evidence.folder / "code"]


def test_a_damaged_report(evidence: Evidence) -> None:
    """It is named, and what to do about it."""
    evidence.run("quick")
    (evidence.folder / "build" / "1" / "quick-1.json").write_text("{")
    ended = evidence.run("quick")
    assert ended.code == 2
    assert "quick-1.json is not a valid report" in ended.out
    assert "remove it to make it again" in ended.out


def test_a_report_of_an_earlier_layout(evidence: Evidence) -> None:
    """It does not count, and is made again."""
    evidence.run("quick")
    [report] = (evidence.folder / "build").rglob("quick-1.json")
    document = json.loads(report.read_text())
    document["circumstances"] = document.pop("environment")
    report.write_text(json.dumps(document))
    assert evidence.run("quick").code == 0
    assert evidence.started.count("quick-1") == 2
