"""A tool that does as it is told: python -m tests.evidence.fake FOLDER NAME BEHAVIOUR --json FILE."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from retrysafe.testing.report import Stopwatch

STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("behaviour")
    parser.add_argument("--json", type=Path, required=True)
    said = parser.parse_args()
    watch = Stopwatch()
    with (said.folder / "started").open("a") as started:
        started.write(f"{said.name}\n")
    violations: list[str] = []
    match said.behaviour:
        case "passes":
            pass
        case "violates":
            if not (said.folder / "mended").exists():
                violations.append("I3 is broken by seed 17")
        case "raises":
            raise RuntimeError("this tool is out of order")
        case "lies":
            watch.report("fake", {}, {}, []).write(said.json)
            return 1
        case "misused":
            return 2
        case "scribbles":
            said.json.write_text("no report")
            return 0
        case "lingers":
            _linger(said.folder, said.name, cleans_up=True)
        case "stays":
            _linger(said.folder, said.name, cleans_up=False)
        case _:
            raise AssertionError(said.behaviour)
    watch.report("fake", {"name": said.name}, {"things": 3}, violations).write(said.json)
    return 1 if violations else 0


def _linger(folder: Path, name: str, *, cleans_up: bool) -> None:
    """Until it is let go, with a child that does not listen to Ctrl-C."""
    if (folder / "go").exists():
        return
    child = subprocess.Popen([sys.executable, "-c", STUBBORN])
    try:
        half = folder / f"{name}.half"
        half.write_text(f"{child.pid}")
        half.rename(folder / f"{name}.child")
        while not (folder / "go").exists():
            time.sleep(0.05)
    finally:
        if cleans_up:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
