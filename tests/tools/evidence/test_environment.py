"""What is noted of a revision and of the machine: enough to know, nothing that tells whose it is."""

import platform
import subprocess
from pathlib import Path

from tools.evidence.environment import ROOT, Sources, observe
from tools.evidence.jobs import FUZZING


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


CODE = Sources(("code.py", "more"), but=("more/not.py",))


def test_revision(tmp_path: Path) -> None:
    """It is clean until something changes in the code, be it a file that git does not know; what else is
    there does not count."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "more").mkdir()
    for name in ("code.py", "page.md", "more/one.py"):
        (tmp_path / name).write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")

    def seen() -> tuple[str | None, bool]:
        return observe(CODE, tmp_path)[:2]

    revision = git(tmp_path, "rev-parse", "HEAD")
    assert seen() == (revision, True)
    (tmp_path / "page.md").write_text("2")
    (tmp_path / "more" / "not.py").write_text("2")
    assert seen() == (revision, True)
    (tmp_path / "more" / "a file.py").write_text("1")
    assert seen() == (revision, False)
    (tmp_path / "more" / "a file.py").unlink()
    (tmp_path / "code.py").write_text("2")
    assert seen() == (revision, False)
    git(tmp_path, "checkout", "code.py")
    git(tmp_path, "mv", "more/one.py", "one.py")
    assert seen() == (revision, False)


def test_no_checkout(tmp_path: Path) -> None:
    """Then there is no revision, and nothing is called clean."""
    assert observe(Sources(()), tmp_path)[:2] == (None, False)


def test_says_nothing_of_whose_machine_it_is() -> None:
    """No name of a host, no path: versions and numbers."""
    found = observe(FUZZING, ROOT)
    assert platform.node() not in [str(value) for value in found]
    assert not any("/" in str(value) for value in found)
    machine = ("cpus", "system", "python", "sqlite", "postgresql")
    assert found._fields == ("revision", "clean", *machine, "code", "mariadb", "valkey")
