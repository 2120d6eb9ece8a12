"""A tool that does as it is told: python -m tests.tools.evidence.fake FOLDER NAME BEHAVIOUR --json FILE.

It imports next to nothing, because the tests here start it a hundred times, and so writes its report by hand.
"""

import json
import os
import subprocess
import sys
import time

STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


def main() -> int:
    folder, name, behaviour, option, file = sys.argv[1:]
    assert option == "--json"
    with open(f"{folder}/started", "a") as started:
        started.write(f"{name}\n")
    violations: list[str] = []
    match behaviour:
        case "passes":
            pass
        case "violates":
            if not os.path.exists(f"{folder}/mended"):
                violations.append("I3 is broken by seed 17")
        case "raises":
            raise RuntimeError("this tool is out of order")
        case "lies":
            _report(file, name, [])
            return 1
        case "misused":
            return 2
        case "scribbles":
            with open(file, "w") as report:
                report.write("no report")
            return 0
        case "lingers":
            _linger(folder, name, cleans_up=True)
        case "stays":
            _linger(folder, name, cleans_up=False)
        case _:
            raise AssertionError(behaviour)
    _report(file, name, violations)
    return 1 if violations else 0


def _report(file: str, name: str, violations: list[str]) -> None:
    report = {
        "tool": "fake",
        "asked": {"name": name},
        "counts": {"things": 3},
        "violations": violations,
        "seconds": 0.1,
        "began": "2026-11-16T10:00:00+00:00",
        "python": "CPython",
        "version": "0",
    }
    with open(file, "w") as text:
        json.dump(report, text)


def _linger(folder: str, name: str, *, cleans_up: bool) -> None:
    """Until it is let go, with a child that does not listen to Ctrl-C."""
    if os.path.exists(f"{folder}/go"):
        return
    child = subprocess.Popen([sys.executable, "-c", STUBBORN])
    try:
        with open(f"{folder}/{name}.half", "w") as half:
            half.write(f"{child.pid}")
        os.rename(f"{folder}/{name}.half", f"{folder}/{name}.child")
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.05)
    finally:
        if cleans_up:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
