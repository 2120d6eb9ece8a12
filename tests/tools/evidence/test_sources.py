"""What a report is about: all of what a tool runs, and nothing that it does not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.evidence.environment import ROOT, Sources
from tools.evidence.jobs import COVERED, CRASHED, FUZZING, HUNTED, LINEARIZED, PARTS, SIMULATED

TESTING = "src/retrysafe/testing"


def test_files(tmp_path: Path) -> None:
    """The digest changes with a name and with a content, and with nothing that is left out."""
    for name in ("a/one.py", "a/out/two.py", "a/out/in/three.py", "a/__pycache__/one.pyc", "b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    sources = Sources(("a", "a/out/in"), but=("a/out",))
    before = sources.digest(tmp_path)
    for name in ("a/out/two.py", "a/__pycache__/one.pyc", "b.py", "a/out/new.py"):
        (tmp_path / name).write_text("2")
        assert sources.digest(tmp_path) == before, name
    seen = {before}
    for name in ("a/one.py", "a/out/in/three.py", "a/new.py"):
        (tmp_path / name).write_text("2")
        assert sources.digest(tmp_path) not in seen, name
        seen.add(sources.digest(tmp_path))
    (tmp_path / "a/new.py").rename(tmp_path / "a/newer.py")
    assert sources.digest(tmp_path) not in seen


def test_every_job_is_about_something() -> None:
    """The folders are there."""
    for part in PARTS:
        for sources in {job.sources for job in part.plan(1)}:
            assert len(sources.digest(ROOT)) == 64


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs/evidence.md", set()),
        ("src/retrysafe/_core/keys.py", {"SIMULATED", "HUNTED", "COVERED", "CRASHED", "FUZZING"}),
        (f"{TESTING}/simulate/world.py", {"SIMULATED", "HUNTED", "COVERED"}),
        ("tools/planted/bug.py", {"HUNTED"}),
        ("tests/stores/test_queue.py", {"HUNTED"}),
        (f"{TESTING}/stores/claims.py", {"HUNTED"}),
        ("tools/crash/rounds.py", {"CRASHED"}),
        (f"{TESTING}/linearize/search.py", {"SIMULATED", "HUNTED", "COVERED", "CRASHED", "LINEARIZED"}),
        (f"{TESTING}/report.py", {"SIMULATED", "HUNTED", "COVERED", "CRASHED", "LINEARIZED", "FUZZING"}),
        (f"{TESTING}/adapters/scope.py", set()),
        ("tools/fuzz/targets/key.py", {"FUZZING"}),
        ("tools/fuzz/seeds/key.txt", {"FUZZING"}),
        ("tests/tools/fuzz/test_targets.py", set()),
        ("tools/evidence/page.py", set()),
        ("tools/evidence/coverage.py", {"COVERED"}),
        ("src/retrysafe/__pycache__/keys.pyc", set()),
    ],
)
def test_what_counts(path: str, expected: set[str]) -> None:
    """A change of the crash harness undoes no schedule of the simulation; one of the product undoes all."""
    named = {
        "SIMULATED": SIMULATED, "HUNTED": HUNTED, "COVERED": COVERED, "CRASHED": CRASHED,
        "LINEARIZED": LINEARIZED, "FUZZING": FUZZING,
    }  # fmt: skip
    assert {name for name, sources in named.items() if sources.cover(path)} == expected


@pytest.mark.parametrize("sources", [SIMULATED, HUNTED, COVERED, CRASHED, LINEARIZED, FUZZING])
def test_what_is_imported_counts(sources: Sources) -> None:
    """Whatever the tools' own files name in an import, wherever in the file, is a part of the code, too."""
    tools = [path for path in _files(sources) if _is_tool(path)]
    assert tools
    missing = {
        (str(path), name)
        for path in tools
        for name in _imported(ROOT / path)
        if _is_tool(Path(name)) and not sources.cover(name)
    }
    assert missing == set()


def _files(sources: Sources) -> list[Path]:
    found = [path.relative_to(ROOT) for top in ("src", "tools") for path in (ROOT / top).rglob("*.py")]
    return [path for path in found if sources.cover(path.as_posix())]


def _is_tool(path: Path) -> bool:
    """Not of the product, which is covered as a whole, or tests nothing by itself."""
    return path.as_posix().startswith((f"{TESTING}/", "tools/", "tests/"))


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            for top in (ROOT / "src", ROOT):
                path = top.joinpath(*name.split(".")).with_suffix(".py")
                if path.exists():
                    yield path.relative_to(ROOT).as_posix()
