"""What `import retrysafe` costs, and what it brings along."""

import json
import resource
import subprocess
import sys

# A command line tool or a serverless function pays this at every start.  Measured beside what comes with the
# interpreter, because machines differ, and one machine from hour to hour.
BUDGET = "import asyncio"

# Needed by some of its users, and loaded when one of them asks.
LATE = frozenset(
    "asyncio http_sf httpx msgspec psycopg sqlalchemy sqlite3 starlette typing_extensions uvicorn".split()
)


def run(code: str) -> str:
    """Run code in a fresh interpreter that takes nothing from the environment or the directory."""
    command = [sys.executable, "-I", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def seconds(code: str) -> float:
    """Of processor time: other processes on the machine hardly change it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_importing_costs_little() -> None:
    """The import takes no longer than that of an event loop, which the library therefore does late.

    All are measured in turn and the fastest of each compared: a busy machine makes a run slower,
    never faster.  While the machine is too busy for one quiet moment in seven, more are taken.
    """
    run("import retrysafe")  # compiles
    bare: list[float] = []
    with_import: list[float] = []
    allowed: list[float] = []
    cost = budget = 0.0
    for turn in range(1, 41):
        bare.append(seconds("pass"))
        with_import.append(seconds("import retrysafe"))
        allowed.append(seconds(BUDGET))
        cost, budget = min(with_import) - min(bare), min(allowed) - min(bare)
        if turn >= 7 and cost <= budget:
            break
    found = f"import retrysafe takes {cost * 1000:.0f} ms, and {BUDGET} {budget * 1000:.0f}"
    assert cost <= budget, f"{found}: see python -X importtime"


def test_importing_loads_nothing_optional() -> None:
    """No framework, driver, event loop or parser is loaded before somebody needs it."""
    code = "import json, sys, retrysafe; print(json.dumps(list(sys.modules)))"
    loaded: list[str] = json.loads(run(code))
    assert "retrysafe" in loaded
    assert LATE.intersection(loaded) == set()
