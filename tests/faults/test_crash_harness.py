"""The crash harness itself: it finds what is broken, it cannot pass by failing everything, it says what was
wrong with a command, and it leaves nothing behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from retrysafe.testing import report
from retrysafe.testing.adapters.client import until
from retrysafe.testing.crash import mischief, sockets, targets
from retrysafe.testing.crash.__main__ import main
from retrysafe.testing.crash.assault import Tally, Wish, carry_out, plans, too_few
from retrysafe.testing.crash.audit import Kept, Sight
from retrysafe.testing.crash.campaign import Plan, Result, _dismiss
from retrysafe.testing.crash.chronicle import Chronicle
from retrysafe.testing.crash.clients import Customers, Told
from retrysafe.testing.crash.hearing import marks
from retrysafe.testing.crash.journal import JOURNAL, Entry, Journal, Reader
from retrysafe.testing.crash.modes import ENOUGH, MODES, PLACES, TRIES, Aims, Mode, Place, Stroke
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
    [few] = [wrong for wrong in tally.violations if "keys were answered" in wrong]
    assert few == "hold, sqlite3: only 0 keys were answered, and 2 were expected: it proves little"


def test_an_unknown_outcome_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop that keeps no outcome tells everybody that it does not know, and nobody is served by that."""
    wish = Wish("sqlite", ("hold",), ("sqlite3",), kills=4, patience=3.0)
    tally = _sabotaged("finishes nothing", wish, tmp_path, monkeypatch)
    assert tally.counts["answered"] == 0
    assert any(wrong.startswith("hold, sqlite3: only 0 keys") for wrong in tally.violations)
    assert any("nobody was served for 3.0 s" in wrong for wrong in tally.violations)


def _result(mode: Mode, strokes: int, answered: int, accountable: int) -> Result:
    nothing: Counter[str] = Counter()
    plan = Plan(mode, "sqlite3", kills=strokes)
    return Result(plan, 1.0, nothing, nothing, nothing, answered, 0, 90, accountable, 9, 5, 90, 0.1, [])


def test_each_campaign_has_to_answer_enough() -> None:
    """One that answers nothing has failed, however much the others answer."""
    wish = Wish("sqlite", ("hold", "tx"), kills=40)
    assert too_few(wish, _result("tx", 20, 1000, 0)) == []
    assert too_few(wish, _result("hold", 20, 9, 9)) == [
        "only 9 keys were answered, and 10 were expected: it proves little"
    ]
    assert too_few(wish._replace(successes=0), _result("hold", 20, 0, 9)) == []
    wanted = wish._replace(successes=41)
    assert "and 21 were expected" in too_few(wanted, _result("hold", 20, 20, 9))[0]
    assert too_few(wanted, _result("hold", 20, 21, 9)) == []


@pytest.mark.parametrize("mode", ["hold", "retry"])
def test_each_campaign_has_to_hold_somebody_to_account(mode: Mode) -> None:
    """Where everything is excused, nothing can be found."""
    wish = Wish("sqlite", (mode,), kills=20)
    assert too_few(wish, _result(mode, 20, 1000, 2)) == []
    assert too_few(wish, _result(mode, 20, 1000, 1)) == [
        "only 1 executions had no excuse, and 2 were expected: it proves little"
    ]


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


BARE = """
from retrysafe.testing.crash.targets import Target

class Mine(Target):
    pass
"""


def _bring(folder: Path, module: str, points: str) -> dict[str, str]:
    """Install a package of somebody else's; the environment in which it is there."""
    (folder / "mine.py").write_text(module)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[retrysafe.crash]\n{points}\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


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
        (BARE, "mine = mine:Mine", "expected it to have look, open, prepare"),
        (PLUGIN + "    ways = None", "mine = mine:Mine", "has None as its ways: expected a name for each"),
        (
            PLUGIN + "    modes = ('all',)",
            "mine = mine:Mine",
            "has ('all',) as its modes: expected some of tx,",
        ),
        (PLUGIN, "mine = mine:Mine\nsqlite = mine:Mine", "is the name of a store that comes with us"),
    ],
)
def test_a_store_that_others_bring_and_that_is_not_fit(
    module: str, points: str, expected: str, tmp_path: Path
) -> None:
    """It says which entry point is meant, and what is wrong with it."""
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


def test_a_store_that_others_bring(tmp_path: Path) -> None:
    """An entry point of another package is attacked by the same command, in the modes that it has; the report
    says what was done."""
    environment = _bring(tmp_path, PLUGIN, "mine = mine:Mine")
    done = subprocess.run(
        [*COMMAND, "mine", "--kills", "4", "--seed", "7", "--json", str(tmp_path / "report.json")],
        env=environment,
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
    until(lambda: len(_belonging_to(tmp_path)) >= 6)  # the parent, its workers, and who waits for our end
    until(lambda: any("fell" in journal.read_text() for journal in tmp_path.glob("*/*/journal")))
    harness.send_signal(number)
    _, said = harness.communicate(timeout=60)
    assert harness.returncode == 130, said
    assert "interrupted" in said
    until(lambda: not _belonging_to(tmp_path))
    assert not list(tmp_path.iterdir())


def test_killed(tmp_path: Path) -> None:
    """SIGKILL to the harness itself: its fleet ends by itself, frozen workers included."""
    harness = subprocess.Popen(
        [*COMMAND, "sqlite", "--freezes", "1000", "--mode", "retry", "--lease", "60"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        until(lambda: len(_belonging_to(tmp_path)) >= 6)
        # So long a lease, and they sleep for longer than anybody here waits.
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


def _strike(aims: Aims, how: Stroke, times: int) -> list[Place]:
    struck: list[Place] = []
    for _ in range(times):
        place = aims.next(how)
        aims.over(how, place)
        aims.fell[how, place.where, place.mood] += 1
        struck.append(place)
    return struck


def test_every_place_gets_its_turn() -> None:
    """However often it strikes, no place has had more than one stroke more than another; and one that is met
    in two moods is two places."""
    aims = Aims("retry")
    assert Counter(_strike(aims, "kill", 3 * len(PLACES["retry"]))) == dict.fromkeys(PLACES["retry"], 3)
    assert set(aims.reached("kill").values()) == {3}
    assert set(aims.reached("stop").values()) == {0}
    assert "stop before Finish answer 500" in aims.reached("stop")


@pytest.mark.parametrize("mode", MODES)
def test_short_runs_with_seeds_in_turn_leave_nothing_out(mode: Mode) -> None:
    """Four of them that have a third of what all places need, each."""
    third = len(PLACES[mode]) // 3
    struck = {place for seed in range(4) for place in _strike(Aims(mode, seed), "stop", third)}
    assert struck == set(PLACES[mode])


def test_a_place_that_nobody_comes_to_keeps_nobody_busy() -> None:
    """The others have their turn all the same; and if it was tried often enough, the run has failed."""
    aims = Aims("hold")
    place = PLACES["hold"][3]
    met: Counter[Place] = Counter()
    while met[place] < ENOUGH:
        assert not aims.unreachable()
        met[aims.next("kill")] += 1
        [(how, chosen)] = [key for key, times in aims._under_way.items() if times]
        aims.over(how, chosen)
        if chosen != place:
            aims.fell[how, chosen.where, chosen.mood] += 1
    assert min(met.values()) >= ENOUGH // TRIES
    assert aims.unreachable() == [f"kill {place.where}: never reached, and {ENOUGH} were to"]


def test_who_may_have_lost_a_lease() -> None:
    """Whoever was killed, slept, was slow, was cut off or served while the database was away; and nobody
    else."""
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
    visit("slow", 3, 11.0, 11.95)
    visit("quick", 3, 11.0, 11.8)
    visit("cut", 4, 11.0, 11.1)
    visit("not cut", 5, 11.0, 11.1)
    visit("cut before", 4, 11.07, 11.1)
    chronicle.was_cut(4, 11.05)
    visit("away", 3, 20.0, 20.1)
    chronicle.was_out(20.05, 21.0)
    lost = {key for key in chronicle.keys() if chronicle.losses(key)}  # noqa: SIM118 - it is no mapping
    assert lost == {"killed", "slept", "slow", "cut", "away"}


def test_a_history_that_is_impossible_is_told() -> None:
    """I6: in flight after it was answered, which no audit of the books would find."""
    customers = Customers(0, "hold", Random(1), 1.0)
    customers.histories["good"] = [
        Operation(1, 2, "{}", "first", b"201"),
        Operation(3, 4, "{}", "replay", b"201"),
    ]
    customers.histories["bad"] = [Operation(1, 2, "{}", "first", b"201"), Operation(3, 4, "{}", "in-flight")]
    [violation] = reckon("hold", [], Sight({}, frozenset()), customers, Chronicle(1.0)).wrongs
    assert violation.startswith("bad: its history is not linearizable")


def test_an_unknown_outcome_needs_a_reason() -> None:
    """Nobody died, slept or was slow: then the outcome is known."""
    customers, chronicle = Customers(0, "hold", Random(1), 1.0), Chronicle(1.0)
    chronicle.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    customers.unknown.add("key")
    assert len(reckon("hold", ["key"], Sight({}, frozenset()), customers, chronicle).wrongs) == 1
    chronicle.struck(1, 1.05)
    assert reckon("hold", ["key"], Sight({}, frozenset()), customers, chronicle).wrongs == []


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
    its lease.  Another one's death excuses nobody."""
    chronicle = Chronicle(1.0)
    for pid in range(3):
        chronicle.add([Entry("arrived", 1.0, pid, ["0", "key"])])
    for number, pid in enumerate(executed_by):
        chronicle.add([Entry("executed", 1.02, pid, ["0", "key", str(number), ""])])
    chronicle.struck(0, 1.05)
    for pid in (1, 2):
        chronicle.add([Entry("left", 1.1, pid, ["0"])])
    reckoned = reckon(mode, ["key"], Sight({}, frozenset()), Customers(0, mode, Random(1), 1.0), chronicle)
    assert len(reckoned.wrongs) == bool(wrong)
    assert wrong in "".join(reckoned.wrongs)
    assert reckoned.accountable == len([pid for pid in executed_by if pid or mode == "hold"])


@pytest.mark.parametrize(
    ("mode", "moods", "tells", "wrong"),
    [
        ("hold", ("not done", ""), True, False),
        ("hold", ("answer 429", ""), True, False),
        ("hold", ("not done", ""), False, True),  # it died before it could say so
        ("hold", ("raise", ""), True, True),
        ("hold", ("", "not done"), True, True),  # the second one is one too many, whatever it says
        ("retry", ("raise", ""), True, False),
        ("retry", ("raise", ""), False, True),
        ("retry", ("", "raise"), True, True),
    ],
)
def test_whoever_says_that_nothing_happened_may_be_followed(
    mode: Mode, moods: tuple[str, str], tells: bool, wrong: bool
) -> None:
    """Once it has come to tell the store so; what it was going to say is nothing that anybody can rely on."""
    chronicle = Chronicle(1.0)
    for number, mood in enumerate(moods):
        chronicle.add([Entry("arrived", 1.0 + number, number, ["0", "key"])])
        chronicle.add([Entry("executed", 1.1 + number, number, ["0", "key", str(number), mood])])
        if tells:
            chronicle.add([Entry("telling", 1.15 + number, number, ["0"])])
        chronicle.add([Entry("left", 1.2 + number, number, ["0"])])
    if mode == "hold":
        chronicle.struck(0, 1.12)  # which is no excuse, there
    reckoned = reckon(mode, ["key"], Sight({}, frozenset()), Customers(0, mode, Random(1), 1.0), chronicle)
    assert bool(reckoned.wrongs) == wrong


def test_a_handler_may_outlive_its_request() -> None:
    """Whose client has gone away: it is excused by what happened until it had its effect."""
    chronicle = Chronicle(1.0)
    chronicle.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    chronicle.add([Entry("executed", 1.2, 1, ["0", "key", "a", ""])])
    [execution] = chronicle.executions("key")
    assert not chronicle.is_excused(execution)
    chronicle.struck(1, 1.15)
    assert chronicle.is_excused(execution)


def test_headers_are_compared() -> None:
    """I4: an order that is told without its header fields, or in another order, was not replayed."""
    customers = Customers(0, "tx", Random(1), 1.0)
    good = Told(201, b'{"id": "a"}', False, tuple(marks("a")))
    customers.told["good"] = [good, good._replace(replayed=True)]
    customers.told["late"] = [good._replace(replayed=True, marks=good.marks[:2])]
    customers.told["turned"] = [good, good._replace(replayed=True, marks=good.marks[::-1])]
    assert [wrong.split(":")[0] for wrong in customers.contradictions()] == ["late", "turned"]


def test_a_stored_answer_that_is_none_is_told() -> None:
    """The audit finds it, and does not stumble over it."""
    for body in (b"{}", b"[]", b"nonsense"):
        sight = Sight({"key": Kept("completed", 201, body)}, frozenset(), ({}, {}))
        assert len(sight.wrongs()) == 2


def test_whose_a_connection_is() -> None:
    """Known from its other end, while it lasts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            accepted, (_, port) = server.accept()
            accepted.close()
            assert sockets.owner(port, [1, os.getpid()]) == os.getpid()
            assert sockets.owner(port, []) is None
        assert sockets.owner(port, [os.getpid()]) is None


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

    felt: targets.Felt | None = None


def test_a_cut_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a campaign goes on for ever once nobody is killed any more."""
    monkeypatch.setattr(mischief, "CUT_BY", 0.02)
    cut = Unsprung()
    assert not asyncio.run(mischief._springs(cut))
    cut.felt = targets.Felt(1.0, 17)
    assert asyncio.run(mischief._springs(cut))
