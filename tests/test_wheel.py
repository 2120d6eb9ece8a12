"""What users install: the package and nothing that only its maintainers run, and it works from there."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "retrysafe"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend alone: no build isolation, so no package index."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_its_files_are_those_of_the_package(wheel: Path) -> None:
    """All of them, `py.typed` and every `.sql` file included, and no other."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not re.match(r"retrysafe-[^/]+\.dist-info/", name)}
    sources = {
        file.relative_to(PACKAGE.parent).as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names == sources
    assert "retrysafe/py.typed" in names
    for dialect in ("sqlite", "postgresql"):
        assert f"retrysafe/stores/sql/{dialect}/schema.sql" in names


def test_it_has_no_tools_of_maintainers(wheel: Path) -> None:
    """No planted bug, crash harness, fuzzer, evidence, test or benchmark: neither by name nor by content."""
    theirs = [ROOT / "tools", ROOT / "tests", ROOT / "benchmarks"]
    folders = {folder.name for folder in [*theirs, *(ROOT / "tools").iterdir()] if folder.is_dir()}
    assert {"crash", "evidence", "fuzz", "planted"} <= folders, "the tools are somewhere else: look there"
    contents = {file.read_bytes() for folder in theirs for file in folder.rglob("*.py")} - {b""}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert folders.isdisjoint(name.split("/")[:-1]), name
            assert not re.search(r"(^|/)(test_[^/]*|conftest)\.py$", name), name
            assert archive.read(name) not in contents, name


def test_the_examples_of_the_readme_run_from_it(wheel: Path, tmp_path: Path) -> None:
    """Installed into an empty folder, with the sources out of reach."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True, capture_output=True)
    # Ahead of the editable installation of the sources, and inherited by the servers that the tests start.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(tmp_path)
    imported = [sys.executable, "-c", "import retrysafe; print(retrysafe.__file__)"]
    found = subprocess.run(imported, env=environment, check=True, capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path)
    tests = ["tests/docs/test_readme.py", "tests/docs/test_blocks.py", "-k", "readme"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[1-9]\d* passed", done.stdout)
    assert not re.search(r"\d+ skipped", done.stdout), done.stdout
