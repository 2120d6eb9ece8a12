"""The crash harness itself: it finds what is broken, it cannot pass by failing everything, it says what was
wrong with a command, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrysafe.testing import report
from retrysafe.testing.adapters.client import until
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.valkey import ValkeyServer
from tools.crash import targets
from tools.crash.__main__ import main
from tools.crash.journal import JOURNAL
from tools.crash.mariadb import MariaDB
from tools.crash.modes import Door, Mode
from tools.crash.planted import PLANTED
from tools.crash.postgresql import PostgreSQL
from tools.crash.run import Options, Outcome, execute, modes_of
from tools.crash.sqlite import SQLite
from tools.crash.targets import Target
from tools.crash.valkey import Valkey

COMMAND = [sys.executable, "-m", "tools.crash"]


def _with_planted(
    planted: str,
    options: Options,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Callable[[Path], Target] = SQLite,
) -> Outcome:
    monkeypatch.setenv(PLANTED, planted)
    return execute(options, target(folder), folder)


def _finds(
    expected: str,
    planted: str,
    options: Options,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Callable[[Path], Target] = SQLite,
    tries: int = 8,
) -> None:
    """Within a few short runs: where a process is when it is interrupted is a matter of chance, and of what
    else the machine does.  Most are found in the first."""
    for number in range(tries):
        room = folder / str(number)
        room.mkdir()
        outcome = _with_planted(planted, options._replace(seed=number), room, monkeypatch, target)
        if any(expected in violation for violation in outcome.violations):
            return
    pytest.fail(f"{planted} was not found in {tries} runs")


@pytest.mark.parametrize("mode", ["tx", "retry"])
def test_freezes_find_a_fence_that_is_ignored(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that was overtaken and believes that it has finished is found: by its second effect in the
    tables, or by a response that no other client got."""
    options = Options("sqlite", (mode,), ("sqlite3",), freezes=6)
    expected = "crash_orders has" if mode == "tx" else "got 2 responses that are not replays"
    _finds(expected, "fence ignored", options, tmp_path, monkeypatch)


@pytest.mark.parametrize("mode", ["tx", "nested"])
def test_freezes_find_a_fence_that_operations_ignore(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of requests: by the second effect of an order."""
    options = Options("sqlite", (mode,), ("sqlite3",), freezes=6, door="operation")
    _finds("crash_orders has", "fence ignored", options, tmp_path, monkeypatch)


def test_a_part_that_fails_and_is_committed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order whose lines could not be added, and whose caller ignores that, must not be there either."""
    options = Options("sqlite", ("nested",), ("sqlite3",), kills=6, door="operation")
    _finds("the record of this part []", "spoil ignored", options, tmp_path, monkeypatch)


@pytest.mark.parametrize("mode", ["tx", "nested", "hold", "retry"])
def test_operations(mode: Mode, postgres: PostgresServer, tmp_path: Path) -> None:
    """Where nothing is wrong nothing is found, with all that can happen to a worker and its connections."""
    options = Options("postgresql", (mode,), ("psycopg",), kills=10, freezes=3, cuts=4, door="operation")
    outcome = execute(options, PostgreSQL(tmp_path, postgres), tmp_path)
    assert not outcome.violations, outcome
    assert outcome.counts["kills"] >= 10
    assert outcome.counts["rounds"] == {f"{mode}, psycopg": 1}


@pytest.mark.parametrize("mode", ["tx", "hold", "retry", "payload", "inbox"])
def test_deliveries(mode: Mode, postgres: PostgresServer, tmp_path: Path) -> None:
    """Where nothing is wrong nothing is found, whatever happens to services, workers and connections."""
    options = Options("postgresql", (mode,), ("psycopg",), kills=10, freezes=3, cuts=4, door="callback")
    outcome = execute(options, PostgreSQL(tmp_path, postgres), tmp_path)
    assert not outcome.violations, outcome
    assert outcome.counts["kills"] >= 10
    assert outcome.counts["rounds"] == {f"{mode}, psycopg": 1}


@pytest.mark.parametrize(
    ("mode", "planted", "expected"),
    [
        ("retry", "acknowledges reserved", "its sender was told [200], and its receipt is in_progress"),
        ("retry", "responds early", "its sender was told [200], and its receipt is in_progress"),
        ("retry", "any payload", "another payload with it got 'replay'"),
        ("inbox", "any payload", "another payload with it got 'replay'"),
        ("tx", "nothing compared", "another payload with it got 'replay'"),
        ("tx", "completes apart", "crash_orders and crash_lines have"),
        ("inbox", "accepts early", "its sender was told [202], and its receipt is absent"),
        ("inbox", "leaves the dead", "are due, and no worker handles any of them"),
        ("payload", "leaves the dead", "are due, and no worker handles any of them"),
    ],
)
def test_what_loses_events_is_found(
    mode: Mode, planted: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I23, and what else is promised to senders: by kills, and by asking for something else."""
    options = Options("sqlite", (mode,), ("sqlite3",), kills=6, patience=2.0, door="callback")
    _finds(expected, planted, options, tmp_path, monkeypatch)


def test_kills_find_what_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be executed twice, a second execution is found after a kill."""
    options = Options("sqlite", ("hold",), ("sqlite3",), kills=6)
    _finds("executed 2 times: ", "runs again", options, tmp_path, monkeypatch)


def test_a_response_that_is_not_stored_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that a client got and the store does not have is found by the next audit."""
    options = Options("sqlite", ("hold",), ("sqlite3",), kills=3)
    _finds("and stored is None", "responds early", options, tmp_path, monkeypatch)


@pytest.mark.parametrize("door", ["request", "operation", "callback"])
def test_on_mariadb(door: Door, mariadb: MariaDBServer, tmp_path: Path) -> None:
    """Where nothing is wrong nothing is found, in every mode that a door has there."""
    modes = modes_of(MariaDB, door)
    options = Options("mariadb", modes, kills=6 * len(modes), freezes=9, cuts=30, door=door)
    outcome = execute(options, MariaDB(tmp_path, mariadb), tmp_path)
    assert not outcome.violations, outcome
    assert outcome.counts["cuts"] >= 30


@pytest.mark.parametrize("door", ["request", "operation", "callback"])
def test_on_valkey(door: Door, valkey: ValkeyServer, tmp_path: Path) -> None:
    """There are no transactions, and nothing is wrong without them either."""
    modes = modes_of(Valkey, door)
    assert set(modes) == {"hold", "retry", *(["inbox"] if door == "callback" else [])}
    options = Options("valkey", modes, kills=6 * len(modes), freezes=9, cuts=30, outages=2, door=door)
    outcome = execute(options, Valkey(tmp_path, valkey), tmp_path)
    assert not outcome.violations, outcome
    assert outcome.counts["cuts"] >= 30


@pytest.mark.parametrize("store", [MariaDB, Valkey])
def test_a_server_that_is_killed_has_lost_nothing(store: type[MariaDB | Valkey], tmp_path: Path) -> None:
    """What it acknowledged is on the disk, and clients are served again once it is there."""
    target = store(tmp_path)
    try:
        options = Options(store.__name__.lower(), ("retry",), server_kills=4)
        outcome = execute(options, target, tmp_path)
    finally:
        target.close()
    assert not outcome.violations, outcome
    assert outcome.counts["server kills"] >= 4


@pytest.mark.parametrize(
    ("store", "mode", "expected"),
    [
        ("mariadb", "tx", "crash_orders has"),
        ("mariadb", "retry", "got 2 responses that are not replays"),
        ("valkey", "retry", "got 2 responses that are not replays"),
    ],
)
def test_freezes_find_a_fence_that_is_ignored_on(
    store: str,
    mode: Mode,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """As on SQLite: an owner that was overtaken believes that it has finished."""
    server = request.getfixturevalue(store)
    options = Options(store, (mode,), freezes=6)
    make: Any = targets.find(store)
    _finds(expected, "fence ignored", options, tmp_path, monkeypatch, lambda room: make(room, server))


def test_outages_of_valkey_find_a_response_that_ends_unstored(
    valkey: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with PostgreSQL: a response arrives whole although the store did not take it."""
    options = Options("valkey", ("hold",), ("redis",), outages=2)
    expected = "arrived whole, and a retry of it got outcome-unknown"
    _finds(expected, "outage ignored", options, tmp_path, monkeypatch, lambda room: Valkey(room, valkey))


def test_outages_find_a_response_that_ends_unstored(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that flows arrives whole although the database is away: its retry does not know of it."""
    options = Options("postgresql", ("hold",), ("psycopg",), outages=2)
    expected = "arrived whole, and a retry of it got outcome-unknown"
    _finds(
        expected, "outage ignored", options, tmp_path, monkeypatch, lambda room: PostgreSQL(room, postgres)
    )


def test_it_cannot_pass_by_failing_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that refuses every request does nothing wrong, and the run has failed."""
    options = Options("sqlite", ("hold",), ("sqlite3",), kills=4, patience=3.0)
    outcome = _with_planted("refuses all", options, tmp_path, monkeypatch)
    assert outcome.counts["answered"] == 0
    [few] = [wrong for wrong in outcome.violations if "keys got a response" in wrong]
    assert few == "hold, sqlite3: only 0 keys got a response, and 2 were expected: it proves little"


def test_an_unknown_outcome_is_not_a_response_that_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that stores no outcome reports all as unknown, and no client is served by that."""
    options = Options("sqlite", ("hold",), ("sqlite3",), kills=4, patience=3.0)
    outcome = _with_planted("finishes nothing", options, tmp_path, monkeypatch)
    assert outcome.counts["answered"] == 0
    assert any(wrong.startswith("hold, sqlite3: only 0 keys") for wrong in outcome.violations)
    assert any("no client was served for 3.0 s" in wrong for wrong in outcome.violations)


def test_a_planted_bug_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt one would pass for an application without a bug."""
    with pytest.raises(RuntimeError, match="expected one of"):
        _with_planted(
            "fence ignord", Options("sqlite", ("hold",), ("sqlite3",), kills=1), tmp_path, monkeypatch
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sqlite", "--server-kills", "1"], "sqlite has no server that could be killed"),
        (["sqlite", "--cuts", "1"], "sqlite has no connections that could be cut"),
        (["sqlite", "--outages", "1"], "sqlite has no connections that could be refused"),
        (["sqlite", "--kills", "1", "--way", "psycopg"], "expected one of sqlite3, sqlalchemy"),
        (["sqlite"], "no fault was asked for"),
        (["sqlite", "--kills", "-1"], "-1 is too small: expected 0 or more"),
        (["sqlite", "--kills", "many"], "'many' is not a number"),
        (["sqlite", "--kills", "1", "--lease", "0.01"], "expected 0.2 or more"),
        (["sqlite", "--kills", "1", "--workers", "1"], "expected 2 or more"),
        (["sqlite", "--kills", "1", "--mode", "all"], "invalid choice: 'all'"),
        (["sqlite", "--kills", "1", "--mode", "nested"], "no mode 'nested' of the door request"),
        (["sqlite", "--kills", "1", "--mode", "inbox"], "no mode 'inbox' of the door request"),
        (["sqlite", "--kills", "1", "--mode", "nested", "--door", "callback"], "of the door callback"),
        (["sqlite", "--kills", "1", "--door", "webhook"], "invalid choice: 'webhook'"),
        (["redis", "--kills", "1"], "invalid choice: 'redis'"),
        ([], "required: store"),
    ],
)
def test_wrong_usage(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what was found and what was expected, and does nothing."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err


PLUGIN = """
from tools.crash.sqlite import SQLite
from tools.crash.targets import Target

class Mine(SQLite):
    modes = ("hold", "retry")
    ways = {"sqlite3": ()}
"""


BARE = """
from tools.crash.targets import Target

class Mine(Target):
    pass
"""


def _bring(folder: Path, module: str, points: str) -> dict[str, str]:
    """Install another package; the environment in which it is there."""
    (folder / "mine.py").write_text(module)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[retrysafe.crash]\n{points}\n")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.parametrize(
    ("module", "points", "expected"),
    [
        (
            PLUGIN,
            "mine = elsewhere:Mine",
            "cannot be loaded: ModuleNotFoundError: No module named 'elsewhere'",
        ),
        (PLUGIN, "mine = mine:Yours", "cannot be loaded: AttributeError"),
        ("1 / 0", "mine = mine:Mine", "cannot be loaded: ZeroDivisionError"),
        ("Mine = 17", "mine = mine:Mine", "leads to 17: expected a subclass of Target"),
        (BARE, "mine = mine:Mine", "expected it to have open, prepare, read"),
        (PLUGIN + "    ways = None", "mine = mine:Mine", "has None as its ways: expected a name for each"),
        (
            PLUGIN + "    modes = ('all',)",
            "mine = mine:Mine",
            "has ('all',) as its modes: expected some of tx,",
        ),
        (PLUGIN, "mine = mine:Mine\nsqlite = mine:Mine", "is the name of a built-in store"),
    ],
)
def test_a_store_of_another_package_that_is_not_valid(
    module: str, points: str, expected: str, tmp_path: Path
) -> None:
    """The error has which entry point is meant, and what is wrong with it."""
    store = "sqlite" if "sqlite =" in points else "mine"
    done = subprocess.run(
        [*COMMAND, store, "--kills", "1"],
        env=_bring(tmp_path, module, points),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert f"of {targets.GROUP}" in done.stderr


def test_a_store_of_another_package(tmp_path: Path) -> None:
    """An entry point of another package is tested by the same command, in the modes that it has; the report
    has what was done."""
    environment = _bring(tmp_path, PLUGIN, "mine = mine:Mine")
    done = subprocess.run(
        [*COMMAND, "mine", "--kills", "4", "--seed", "7", "--json", str(tmp_path / "report.json")],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "no violation" in done.stdout
    assert done.stderr == ""  # no bar, where there is no terminal
    left = report.read(tmp_path / "report.json")
    assert left.passed
    assert left.tool == "crash"
    assert (left.asked["seed"], left.asked["kills"]) == (7, 4)
    assert left.counts["kills"] >= 4
    assert left.counts["answered"] >= 2
    assert left.counts["histories"] >= left.counts["answered"]
    assert left.counts["rounds"] == {"hold, sqlite3": 1, "retry, sqlite3": 1}
    assert sum(times for name, times in left.counts["places"].items() if name.startswith("kill")) >= 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, and SIGTERM too: all processes are ended, frozen ones included, and all files are gone."""
    harness = subprocess.Popen(
        [*COMMAND, "sqlite", "--freezes", "1000", "--mode", "retry"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(_belonging_to(tmp_path)) >= 6)  # the parent, workers, and one that waits for our end
    until(lambda: any("trapped" in journal.read_text() for journal in tmp_path.glob("*/*/journal")))
    harness.send_signal(number)
    _, said = harness.communicate(timeout=60)
    assert harness.returncode == 130, said
    assert "interrupted" in said
    until(lambda: not _belonging_to(tmp_path))
    assert not list(tmp_path.iterdir())


def test_killed(tmp_path: Path) -> None:
    """SIGKILL to the harness itself: its workers end by themselves, frozen workers included."""
    harness = subprocess.Popen(
        [*COMMAND, "sqlite", "--freezes", "1000", "--mode", "retry", "--lease", "60"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        until(lambda: len(_belonging_to(tmp_path)) >= 6)
        # With so long a lease they stay frozen for longer than this test waits.
        until(lambda: any(map(_is_frozen, _belonging_to(tmp_path))))
    finally:
        harness.kill()
        harness.wait()
    until(lambda: not _belonging_to(tmp_path))


def _is_frozen(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False  # it is gone


def _belonging_to(folder: Path) -> list[int]:
    """The processes of a run, by the journal that they write."""
    mark = f"{JOURNAL}={folder}".encode()
    found: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue  # it is gone, or not ours
    return found
