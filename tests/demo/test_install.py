"""`make demo` installs what the demo imports, and little else: it has a lock of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements"

MAX_PACKAGES = 25
"""The environment of development has four times as many, and takes minutes to set up."""


IMPORTS = """
import json, sys
before = set(sys.modules)  # what .pth files of this environment bring along
from importlib.metadata import packages_distributions
import http_sf, retrysafe.demo.scenario, retrysafe.demo.serve, retrysafe.demo.server
from retrysafe import stores
from retrysafe.cli import app
app.build()
stores.open(sys.argv[1]).close()
imported = {name.partition(".")[0] for name in sys.modules.keys() - before}
packages = packages_distributions()
found = {package for name in imported for package in packages.get(name, [])}
print(json.dumps([package.lower().replace("_", "-") for package in found]))
"""


def locked(name: str) -> dict[str, str]:
    """The version of each package, by its name."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))


def test_everything_that_it_imports_is_locked(tmp_path: Path) -> None:
    """The command line, the three runs, `--serve` and the server's process."""
    command = [sys.executable, "-c", IMPORTS, f"sqlite:///{tmp_path / 'keys.db'}"]
    imported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert {"http-sf", "rich", "typer"} <= set(imported)
    assert set(imported) - locked("demo.txt").keys() - {"retrysafe"} == set()


def test_it_is_small() -> None:
    assert 0 < len(locked("demo.txt")) <= MAX_PACKAGES


def test_its_versions_are_those_of_development() -> None:
    """One environment has both, whichever was installed first."""
    development = locked("dev.txt")
    assert {name: development.get(name) for name in locked("demo.txt")} == locked("demo.txt")
