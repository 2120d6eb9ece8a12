"""The walk of one request through the code is counted, and the count is the same each time."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.benchmarks.test_bench import pytestmark as needs_linux
from tests.tools.benchmarks.test_bench import run

pytestmark = needs_linux


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    file = tmp_path_factory.mktemp("calls") / "figures.json"
    ended = run("calls", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    walks: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["calls"]
    return walks, ended.stdout


def test_every_store_has_two_walks(counted: tuple[dict[str, Any], str]) -> None:
    """Fresh and replayed, in the table and for programs; a replay is the shorter one."""
    walks, printed = counted
    assert {"memory", "SQLite"} <= {name.partition(",")[0] for name in walks}
    for name, walk in walks.items():
        assert 0 < walk["files"] <= walk["switches"] < walk["calls"], name
        assert f" {name} " in printed
        if name.endswith("replay"):
            assert walk["calls"] < walks[name.replace("replay", "fresh")]["calls"]


def test_threads_are_followed(counted: tuple[dict[str, Any], str]) -> None:
    """What SQLite's writer does for a request is counted, too; a replay, and memory, need no thread."""
    walks, _ = counted
    assert walks["SQLite, fresh"]["threads"] == 2
    assert walks["SQLite, replay"]["threads"] == walks["memory, fresh"]["threads"] == 1


def test_the_count_is_reproducible(counted: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    """A change of the figure is a change of the code."""
    walks, _ = counted
    file = tmp_path / "figures.json"
    run("calls", "--json", str(file))
    again = json.loads(file.read_text(encoding="utf-8"))["calls"]
    assert [again[f"memory, {kind}"] for kind in ("fresh", "replay")] == [
        walks[f"memory, {kind}"] for kind in ("fresh", "replay")
    ]
