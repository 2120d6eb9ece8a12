"""The benchmark runs, tells figures for what it measured, and does not believe wrong answers."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine, report
from benchmarks.__main__ import PARTS
from benchmarks.goals import GOALS
from benchmarks.load import content
from benchmarks.rounds import Measured, Sample, Spread
from benchmarks.variants import VARIANTS, Variant, choose

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="it needs epoll, and the clocks of other processes"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=100,
    )


def test_measures_side_by_side(tmp_path: Path) -> None:
    """Every variant that was asked for has a figure, in the table and for programs, and none has errors."""
    told = tmp_path / "figures.json"
    asked = ("bare", "null", "memory-fresh", "memory-replay", "sqlite-fresh", "sqlite-replay")
    ended = run(
        "--quick", "--rounds", "2", "--seconds", "0.15", "--json", str(told),
        "--svg", str(tmp_path / "bars.svg"), "--only", *asked,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    assert tuple(document["variants"]) == asked
    for name, figures in document["variants"].items():
        assert figures["errors"] == 0, name
        assert figures["requests_at_128_connections"] > 0, name
        assert len(figures["samples"]) == 2, name
        assert all(sample["per_second"] > 0 and sample["cpu"] > 0 for sample in figures["samples"]), name
    assert document["variants"]["bare"]["throughput_ratio"]["median"] == 1
    assert document["figures"]["memory-fresh: share of the bare application"] > 0
    assert "retrysafe, SQLite, replay" in ended.stdout
    assert "null ASGI application" in ended.stdout


def test_measures_with_a_database(tmp_path: Path) -> None:
    """PostgreSQL is started and ended with the run, and its processor time is told."""
    told = tmp_path / "figures.json"
    ended = run(
        "--quick", "--rounds", "1", "--seconds", "0.15", "--json", str(told),
        "--svg", str(tmp_path / "bars.svg"), "--only", "tx-psycopg-fresh",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    assert tuple(document["variants"]) == ("tx-psycopg-bare", "tx-psycopg-fresh")
    for name, figures in document["variants"].items():
        assert figures["errors"] == 0, name
        assert all(sample["database_cpu"] > 0 for sample in figures["samples"]), name
    assert document["figures"]["tx-psycopg-fresh: share of the bare application"] > 0


def test_notices_wrong_answers(tmp_path: Path) -> None:
    """A server that answers fast and wrongly is a failure, not a fast server."""
    ended = run(
        "--quick", "--rounds", "1", "--seconds", "0.1", "--json", str(tmp_path / "figures.json"),
        "--svg", str(tmp_path / "bars.svg"), "--only", "wrong",
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "status 200" in ended.stdout


def test_measures_projects_of_django(tmp_path: Path) -> None:
    """Under gunicorn, with the records in the project's database, and with what a view writes there."""
    told = tmp_path / "figures.json"
    asked = ("django-no-key", "django-sqlite-fresh", "django-sqlite-replay", "drf-sqlite-replay",
        "tx-django-sqlite-fresh", "tx-django-sqlite-replay")  # fmt: skip
    ended = run(
        "--quick", "--rounds", "1", "--seconds", "0.15", "--json", str(told),
        "--svg", str(tmp_path / "bars.svg"), "--only", *asked,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    assert set(document["variants"]) == {*asked, "django-bare", "drf-bare", "tx-django-sqlite-bare"}
    for name, figures in document["variants"].items():
        assert figures["errors"] == 0, name
    for name in asked:
        assert document["figures"][f"{name}: share of the bare application"] > 0


@pytest.mark.parametrize(
    ("peer", "package"), [("dik-sqlite", "idempotency_key"), ("drfik-sqlite", "drf_idempotencykey")]
)
def test_measures_peers_of_django(tmp_path: Path, peer: str, package: str) -> None:
    """They work with the Django that is installed, and do not run a key a second time."""
    pytest.importorskip(package)
    ended = run(
        "--quick", "--rounds", "1", "--seconds", "0.15", "--json", str(tmp_path / "figures.json"),
        "--svg", str(tmp_path / "bars.svg"), "--only", f"{peer}-*",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_notices_what_runs_again(tmp_path: Path) -> None:
    """A replay that is not marked as one must not have been run: the handler says how often it was."""
    ended = run(
        "--quick", "--rounds", "1", "--seconds", "0.1", "--json", str(tmp_path / "figures.json"),
        "--svg", str(tmp_path / "bars.svg"), "--only", "runs-again",
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "times more than for the 1,000 keys" in " ".join(ended.stdout.split())


def test_in_process_and_strict(tmp_path: Path) -> None:
    """A part can be asked for alone; what was not measured is not a goal missed."""
    told = tmp_path / "figures.json"
    ended = run("in-process", "--quick", "--strict", "--json", str(told))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    took = json.loads(told.read_text(encoding="utf-8"))["in_process_seconds"]
    assert 0 < took["bare"] < took["memory, fresh"]


def test_names_what_there_is() -> None:
    """A name that no variant has is refused, and the answer says which there are."""
    ended = run("--only", "postgresql")
    assert ended.returncode != 0
    assert "no variant is called 'postgresql'; there are bare, null, no-key" in ended.stderr


def test_chooses_with_baseline() -> None:
    """Whatever is compared brings along what it is compared with."""
    assert [variant.name for variant in choose(["wsgi-memory*"])] == [
        "wsgi-bare",
        "wsgi-memory-fresh",
        "wsgi-memory-replay",
    ]


def test_baselines_exist() -> None:
    """Each variant's baseline is a variant, needs nothing that could be missing, and is its own baseline."""
    known = {variant.name: variant for variant in VARIANTS}
    assert len(known) == len(VARIANTS)
    for variant in VARIANTS:
        baseline = known[variant.baseline]
        assert baseline.baseline == baseline.name
        assert baseline.group == variant.group
        assert not baseline.missing()


def test_goals_are_about_variants() -> None:
    """A goal whose variant was renamed would never be judged again."""
    known = {variant.name for variant in VARIANTS}
    for goal in GOALS:
        variant, _, rest = goal.figure.partition(": ")
        if rest.startswith("times ") and not variant.startswith("growth"):
            assert {variant, rest.removeprefix("times ")} <= known, goal.figure
        elif rest == "share of the bare application":
            assert variant in known, goal.figure


def test_missing_packages_are_told() -> None:
    """A variant whose package is not there says so."""
    server = VARIANTS[0].server.__class__("bare", needs=("json", "no_such_package", "no_such.module"))
    variant = Variant("x", "x", "x", server, "fresh")
    assert variant.missing() == ["no_such_package", "no_such.module"]


@pytest.mark.parametrize(
    ("head", "rest", "body"),
    [
        (b"http/1.1 201 created\r\ncontent-length: 3", b"ab", None),
        (b"http/1.1 201 created\r\ncontent-length: 3", b"abc", b"abc"),
        (b"http/1.1 201 created\r\ntransfer-encoding: chunked", b"3\r\nabc\r\n", None),
        (b"http/1.1 201 created\r\ntransfer-encoding: chunked", b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", b"abcd"),
        (b"http/1.1 201 cre", b"", None),
    ],
)
def test_reads_bodies(head: bytes, rest: bytes, body: bytes | None) -> None:
    """The load generator knows when an answer is complete."""
    assert content(head, rest) == body


def test_spread() -> None:
    """The median, and the quarters around it; one value is all of them."""
    assert Spread.of([3, 1, 2, 4, 5]) == Spread(3, 2, 4)
    assert Spread.of([7]) == Spread(7, 7, 7)


def test_says_what_it_ran_on() -> None:
    """Version and build of the interpreter, psycopg's implementation, SQLite, cores and load."""
    facts = machine.facts()
    assert f"{platform.python_implementation()} {platform.python_version()}, " in facts["python"]
    assert facts["psycopg"].startswith("implementation ")
    assert {"sqlite", "processor", "load"} <= facts.keys()
    assert "cores" in facts["processor"]


@pytest.mark.parametrize(
    ("arguments", "optimised", "said"),
    [
        ("'--prefix=/usr/local' '--enable-shared'", False, "built without --enable-optimizations (PGO), "),
        (
            "'--enable-optimizations' '--with-lto=full'",
            True,
            "built with --enable-optimizations (PGO), with",
        ),
        (f"'--prefix=/usr' '{machine.DEBIAN}'", True, "Debian's build, optimised by profile"),
        ("'--with-pydebug'", False, "--with-pydebug"),
    ],
)
def test_tells_builds_apart(arguments: str, optimised: bool, said: str) -> None:
    assert machine.is_optimised(arguments) is optimised
    assert said in machine.build(arguments)


def test_ratios_are_by_processor_time() -> None:
    """The rate is shown, but what others take from the machine is not held against a goal."""
    known = {variant.name: variant for variant in VARIANTS}
    bare = Measured(known["bare"], [Sample(1000, 100e-6, 1, 0, 0)])
    ours = Measured(known["postgres-fresh"], [Sample(100, 200e-6, 1, 0, 0, database_cpu=90e-6)])
    figures = report.figures_of({"bare": bare, "postgres-fresh": ours})
    assert figures["postgres-fresh: share of the bare application"] == 0.5
    assert figures["postgres-fresh: µs of the database"] == pytest.approx(90)


@pytest.mark.skipif(shutil.which("make") is None, reason="it needs make")
def test_an_interpreter_has_an_environment_of_its_own() -> None:
    """`make bench PYTHON=…` does not use an environment that another interpreter may have made."""
    # Without what the `make` that runs this test would pass on.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "VENV")
    }
    told = {
        python: subprocess.run(
            ["make", "--dry-run", "bench", *python],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
            env=environment,
        ).stdout.splitlines()[-1]
        for python in ((), (f"PYTHON={sys.executable}",), (f"PYTHON={sys.executable}", "VENV=mine"))
    }
    usual, other, chosen = told.values()
    assert usual.startswith(".venv/bin/python -m benchmarks")
    assert other.startswith(f".venv-bench-{platform.python_version()}-")
    assert chosen.startswith("mine/bin/python -m benchmarks")


@pytest.mark.parametrize("part", PARTS)
def test_parts_are_documented(part: str) -> None:
    """In the help, and on the page about speed."""
    assert f"\n{part} " in run("--help").stdout
    assert f"| `{part}` |" in (ROOT / "docs/speed.md").read_text(encoding="utf-8")
