"""The crash harness itself: it finds what is broken, it cannot pass by failing everything, it says what was
wrong with a command, and it leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from retrysafe.testing import report
from retrysafe.testing.adapters.client import until
from retrysafe.testing.crash import mischief
from retrysafe.testing.crash.__main__ import main
from retrysafe.testing.crash.assault import Tally, Wish, carry_out, plans
from retrysafe.testing.crash.audit import Sight
from retrysafe.testing.crash.campaign import _dismiss
from retrysafe.testing.crash.chronicle import Chronicle
from retrysafe.testing.crash.clients import Customers
from retrysafe.testing.crash.journal import JOURNAL, Entry, Journal, Reader
from retrysafe.testing.crash.modes import ENOUGH, PLACES, Aims, Mode
from retrysafe.testing.crash.postgresql import PostgreSQL
from retrysafe.testing.crash.reckoning import reckon
from retrysafe.testing.crash.sabotage import SABOTAGE
from retrysafe.testing.crash.sqlite import SQLite
from retrysafe.testing.linearize import Operation

COMMAND = [sys.executable, "-m", "retrysafe.testing.crash"]


def _sabotaged(sabotage: str, wish: Wish, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.setenv(SABOTAGE, sabotage)
    return carry_out(wish, SQLite(folder), folder)


def _finds(
    expected: str, sabotage: str, wish: Wish, folder: Path, monkeypatch: pytest.MonkeyPatch, tries: int = 3
) -> None:
    """Within a few short runs: nobody decides where in its work a process is when it is struck."""
    for number in range(tries):
        room = folder / str(number)
        room.mkdir()
        tally = _sabotaged(sabotage, wish._replace(seed=number), room, monkeypatch)
        if any(expected in violation for violation in tally.violations):
            return
    pytest.fail(f"{sabotage} was not found in {tries} runs")


@pytest.mark.parametrize("mode", ["tx", "retry"])
def test_freezes_find_a_fence_that_is_ignored(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was overtaken and believes that it has finished is found: by its second effect in the tables,
    or by the answer that nobody else was given."""
    wish = Wish("sqlite", (mode,), ("sqlite3",), freezes=6)
    expected = "crash_orders has" if mode == "tx" else "was answered 2 times as the first"
    _finds(expected, "fence ignored", wish, tmp_path, monkeypatch)


def test_kills_find_what_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be executed twice, a second execution is found after a kill."""
    wish = Wish("sqlite", ("hold",), ("sqlite3",), kills=6)
    _finds("executed 2 times: ", "runs again", wish, tmp_path, monkeypatch)


def test_an_answer_that_is_not_stored_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client was told and the store does not have is found by the next audit."""
    wish = Wish("sqlite", ("hold",), ("sqlite3",), kills=3)
    _finds("and stored is None", "answers early", wish, tmp_path, monkeypatch)


def test_it_cannot_pass_by_failing_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop that refuses everybody does nothing wrong, and the run has failed."""
    wish = Wish("sqlite", ("hold",), ("sqlite3",), kills=4, patience=3.0)
    tally = _sabotaged("answers nothing", wish, tmp_path, monkeypatch)
    assert tally.counts["answered"] == 0
    assert "only 0 keys were answered, and 2 were expected: it proves little" in tally.violations


def test_a_sabotage_that_nobody_knows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one would pass for a shop that is not broken."""
    with pytest.raises(RuntimeError, match="expected one of"):
        _sabotaged("fence ignord", Wish("sqlite", ("hold",), ("sqlite3",), kills=1), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sqlite", "--server-kills", "1"], "sqlite has no server that could be killed"),
        (["sqlite", "--cuts", "1"], "sqlite has no connections that could be cut"),
        (["sqlite", "--kills", "1", "--way", "psycopg"], "expected one of sqlite3, sqlalchemy"),
        (["sqlite"], "nothing was asked for"),
        (["sqlite", "--kills", "-1"], "it is -1: expected 0 or more"),
        (["sqlite", "--kills", "many"], "'many' is no number"),
        (["sqlite", "--kills", "1", "--lease", "0.01"], "expected 0.2 or more"),
        (["sqlite", "--kills", "1", "--workers", "1"], "expected 2 or more"),
        (["sqlite", "--kills", "1", "--mode", "all"], "invalid choice: 'all'"),
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
from retrysafe.testing.crash.sqlite import SQLite

class Mine(SQLite):
    modes = ("hold", "retry")
    ways = {"sqlite3": ()}
"""


def test_a_store_that_others_bring(tmp_path: Path) -> None:
    """An entry point of another package is attacked by the same command, in the modes that it has; the report
    says what was done."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[retrysafe.crash]\nmine = mine:Mine\n")
    done = subprocess.run(
        [*COMMAND, "mine", "--kills", "4", "--seed", "7", "--json", str(tmp_path / "report.json")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "nothing is wrong" in done.stdout
    assert done.stderr == ""  # no bar, where there is no terminal
    left = report.read(tmp_path / "report.json")
    assert left.passed
    assert left.tool == "crash"
    assert (left.asked["seed"], left.asked["kills"]) == (7, 4)
    assert left.counts["kills"] >= 4
    assert left.counts["answered"] >= 2
    assert left.counts["histories"] >= left.counts["answered"]
    assert left.counts["campaigns"] == {"hold, sqlite3": 1, "retry, sqlite3": 1}
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
    until(lambda: len(_belonging_to(tmp_path)) >= 5)  # the parent and its workers
    until(lambda: any("fell" in journal.read_text() for journal in tmp_path.glob("*/*/journal")))
    harness.send_signal(number)
    _, said = harness.communicate(timeout=60)
    assert harness.returncode == 130, said
    assert "interrupted" in said
    until(lambda: not _belonging_to(tmp_path))
    assert not list(tmp_path.iterdir())


def _belonging_to(folder: Path) -> list[int]:
    """The processes of a fleet, by the journal that they write."""
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


# --- its parts


def test_every_place_gets_its_share() -> None:
    """However often it strikes, no place has had more than one stroke more than another."""
    aims = Aims("tx", Random(1))
    for _ in range(3 * len(PLACES["tx"])):
        place = aims.next("kill")
        aims.over("kill", place)
        aims.fell["kill", place.where] += 1
    assert set(aims.fell.values()) == {3}


def test_a_place_that_was_never_reached_fails_a_long_run() -> None:
    """A short one may leave out places; in a long one this is no accident."""
    aims = Aims("retry", Random(1))
    aims.fell["kill", "before Run"] = ENOUGH * len(PLACES["retry"]) - 1
    assert aims.never_reached() == []
    aims.fell["kill", "before Run"] += 1
    missing = {place.where for place in PLACES["retry"]} - {"before Run"}
    assert {line.split(":")[0] for line in aims.never_reached()} == {f"kill {where}" for where in missing}


def test_who_may_have_lost_a_lease() -> None:
    """Whoever was killed, slept, was slow or served while the database was away; and nobody else."""
    chronicle = Chronicle(lease=1.0)

    def visit(key: str, pid: int, began: float, ended: float | None) -> None:
        chronicle.add([Entry("arrived", began, pid, [key, key])])
        if ended is not None:
            chronicle.add([Entry("left", ended, pid, [key])])

    visit("fine", 1, 10.0, 10.1)
    visit("killed", 1, 11.0, None)
    chronicle.struck(1, 11.05)
    visit("slept", 2, 11.0, 11.5)
    visit("woken before", 2, 11.9, 12.0)
    chronicle.struck(2, 11.2, 11.4)
    visit("slow", 3, 11.0, 11.7)
    visit("away", 3, 20.0, 20.1)
    chronicle.was_out(20.05, 21.0)
    lost = {key for key in chronicle.keys() if chronicle.losses(key)}  # noqa: SIM118 - it is no mapping
    assert lost == {"killed", "slept", "slow", "away"}


def test_a_history_that_is_impossible_is_told() -> None:
    """I6: in flight after it was answered, which no audit of the books would find."""
    customers = Customers(0, "hold", Random(1), 1.0)
    customers.histories["good"] = [
        Operation(1, 2, "{}", "first", b"201"),
        Operation(3, 4, "{}", "replay", b"201"),
    ]
    customers.histories["bad"] = [Operation(1, 2, "{}", "first", b"201"), Operation(3, 4, "{}", "in-flight")]
    [violation] = reckon("hold", [], Sight({}, frozenset()), customers, Chronicle(1.0))
    assert violation.startswith("bad: its history is not linearizable")


def test_an_unknown_outcome_needs_a_reason() -> None:
    """Nobody died, slept or was slow: then the outcome is known."""
    customers, chronicle = Customers(0, "hold", Random(1), 1.0), Chronicle(1.0)
    chronicle.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    customers.unknown.add("key")
    assert len(reckon("hold", ["key"], Sight({}, frozenset()), customers, chronicle)) == 1
    chronicle.struck(1, 1.05)
    assert reckon("hold", ["key"], Sight({}, frozenset()), customers, chronicle) == []


@pytest.mark.parametrize(
    ("mode", "executed_by", "wrong"),
    [
        ("hold", [1], ""),
        ("hold", [0, 1], "executed 2 times: "),
        ("retry", [1], ""),
        ("retry", [0, 1], ""),
        ("retry", [0, 0, 1], ""),
        ("retry", [1, 2], "executed 2 times by owners that cannot have lost their leases: "),
        ("retry", [0, 1, 2], "executed 2 times by owners that cannot have lost their leases: "),
    ],
)
def test_executions_are_counted(mode: Mode, executed_by: list[int], wrong: str) -> None:
    """I13, I15: one; and where it may be tried again, one more for each attempt that had its effect and lost
    its lease.  Another one's death excuses nobody; whoever said that nothing had happened is not counted."""
    chronicle = Chronicle(1.0)
    for pid in range(3):
        chronicle.add([Entry("arrived", 1.0, pid, ["0", "key"])])
    chronicle.add([Entry("executed", 1.02, 1, ["key", "a", "not done"])])
    for number, pid in enumerate(executed_by):
        chronicle.add([Entry("executed", 1.02, pid, ["key", str(number), ""])])
    chronicle.struck(0, 1.05)
    for pid in (1, 2):
        chronicle.add([Entry("left", 1.1, pid, ["0"])])
    found = reckon(mode, ["key"], Sight({}, frozenset()), Customers(0, mode, Random(1), 1.0), chronicle)
    assert len(found) == bool(wrong)
    assert wrong in "".join(found)


def test_a_handler_may_outlive_its_request() -> None:
    """Whose client has gone away: it is excused with the request, although that has left."""
    chronicle = Chronicle(1.0)
    chronicle.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    chronicle.add([Entry("executed", 1.2, 1, ["key", "a", ""])])
    [execution] = chronicle.executions("key")
    assert not chronicle.is_excused("key", execution)
    chronicle.struck(1, 1.05)
    assert chronicle.is_excused("key", execution)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 nonsense\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 201 Created\r\n\r\n",
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_what_is_no_answer_is_not_taken_for_a_lost_one(said: bytes) -> None:
    """A worker that is killed leaves half an answer; a whole one that nobody can read is a mistake."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def ask() -> list[str]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            customers = Customers(server.sockets[0].getsockname()[1], "hold", Random(1), 1.0)
            assert await customers._ask("key", []) == "nothing"
            return customers.wrongs

    [wrong] = asyncio.run(ask())
    assert "key: what was answered is not HTTP" in wrong


def test_who_watches_to_the_end_is_asked_how_it_was() -> None:
    """What an auditor stumbles over while everybody recovers is no less wrong than before."""

    async def stumble() -> None:
        raise LookupError("a line that nobody writes")

    async def watch() -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        watching = [asyncio.ensure_future(watch()), asyncio.ensure_future(stumble())]
        await asyncio.sleep(0)
        with pytest.raises(LookupError, match="nobody writes"):
            await _dismiss(watching)
        await _dismiss([asyncio.ensure_future(watch())])

    asyncio.run(end())


def test_a_journal_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Each line once, and never half of one."""
    reader, path = Reader(tmp_path / "journal"), tmp_path / "journal"
    Journal(str(path)).write("fell", "kill", "before Run")
    with path.open("ab") as file:
        file.write(b"left\t1.5\t17")
    assert [(entry.what, entry.said) for entry in reader.news()] == [("fell", ["kill", "before Run"])]
    with path.open("ab") as file:
        file.write(b"\t3\n")
    assert reader.news() == [Entry("left", 1.5, 17, ["3"])]
    reader.close()


@pytest.mark.parametrize(("kills", "freezes", "campaigns"), [(1, 0, 1), (30, 10, 3), (2000, 500, 12)])
def test_the_strokes_are_shared(kills: int, freezes: int, campaigns: int) -> None:
    """All that was asked for is done, by as many campaigns as it is worth, in every mode."""
    made = plans(Wish("postgresql", kills=kills, freezes=freezes), PostgreSQL, Random(1))
    assert len(made) == campaigns
    assert len({(plan.mode, plan.way) for plan in made}) == campaigns
    assert len({plan.mode for plan in made}) == min(campaigns, 3)
    assert sum(plan.kills for plan in made) == kills
    assert sum(plan.freezes for plan in made) == freezes


def test_few_cuts_are_not_scattered() -> None:
    """A campaign in which connections can be cut is slow: there are no more than the cuts are worth."""
    made = plans(Wish("postgresql", kills=500, cuts=25, server_kills=13), PostgreSQL, Random(1))
    assert [plan.cuts for plan in made] == [12, 13] + [0] * 4
    assert sorted(plan.server_kills for plan in made) == [2] * 5 + [3]


class Unsprung:
    """Whoever it was for was killed on the way."""

    sprung = False


def test_a_cut_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a campaign goes on for ever once nobody is killed any more."""
    monkeypatch.setattr(mischief, "CUT_BY", 0.02)
    cut = Unsprung()
    assert not asyncio.run(mischief._springs(cut))
    cut.sprung = True
    assert asyncio.run(mischief._springs(cut))
