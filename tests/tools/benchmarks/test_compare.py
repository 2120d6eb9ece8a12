"""Two revisions are measured by turns, and the ratio is that of their figures."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import compare

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.xdist_group("benchmarks"),
    pytest.mark.skipif(sys.platform != "linux", reason="it needs the clocks of other processes"),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "compare", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=100,
    )


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="it needs the repository's history"
)
def test_compares_with_a_revision() -> None:
    ended = run("HEAD", "--quick")
    assert ended.returncode == 0, ended.stderr
    python, fresh, replay = ended.stdout.splitlines()
    assert "--enable-optimizations" in python
    assert fresh.startswith("fresh")
    assert "HEAD" in fresh
    assert replay.startswith("replay")
    assert "here" in replay


def test_says_that_there_is_no_such_revision() -> None:
    ended = run("no-such-revision")
    assert ended.returncode == 2
    assert "'no-such-revision' is not a revision" in ended.stderr


def test_ratios() -> None:
    then, now = {"fresh": 50.0, "replay": 20.0}, {"fresh": 40.0, "replay": 25.0}
    fresh, replay = compare.lines(then, now, "v1", "µs")
    assert fresh == "fresh   v1 50.0 µs, here 40.0 µs: 0.800 of it (-20.0%)"
    assert replay == "replay  v1 20.0 µs, here 25.0 µs: 1.250 of it (+25.0%)"
