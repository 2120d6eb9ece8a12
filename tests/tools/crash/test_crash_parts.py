"""The parts of the crash harness: what is excused, what is counted, where it aims, and what it reads."""

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize import Operation
from tools.crash import faults, links, targets
from tools.crash.audit import Snapshot, Stored
from tools.crash.callers import Received
from tools.crash.checks import broken_acknowledgements, check, check_keys
from tools.crash.clients import Clients, marks
from tools.crash.faults import WHILE_FLOWING
from tools.crash.journal import Entry, Journal, Reader, Timeline
from tools.crash.modes import (
    ENOUGH,
    MAX_RESPONSE,
    MODES,
    PLACES,
    TRIES,
    WITH_WORKERS,
    Interruption,
    Mode,
    Place,
    Rotation,
    places,
)
from tools.crash.payloads import WORKERS, _takes_place
from tools.crash.postgresql import PostgreSQL
from tools.crash.rounds import Plan, Result, _stop_watching
from tools.crash.run import Options, modes_of, plans, too_few
from tools.crash.senders import Senders, Told
from tools.crash.senders import read as read_told


def _result(mode: Mode, faults: int, answered: int, unexcused: int) -> Result:
    nothing: Counter[str] = Counter()
    plan = Plan(mode, "sqlite3", kills=faults)
    return Result(plan, 1.0, nothing, nothing, nothing, answered, 0, 90, unexcused, 9, 5, 90, 0.1, [])


def test_each_round_has_to_serve_enough() -> None:
    """One that serves no client has failed, however many the others serve."""
    options = Options("sqlite", ("hold", "tx"), kills=40)
    assert too_few(options, _result("tx", 20, 1000, 0)) == []
    assert too_few(options, _result("hold", 20, 9, 9)) == [
        "only 9 keys got a response, and 10 were expected: it proves little"
    ]
    assert too_few(options._replace(successes=0), _result("hold", 20, 0, 9)) == []
    wanted = options._replace(successes=41)
    assert "and 21 were expected" in too_few(wanted, _result("hold", 20, 20, 9))[0]
    assert too_few(wanted, _result("hold", 20, 21, 9)) == []


@pytest.mark.parametrize("mode", ["hold", "retry"])
def test_each_round_has_executions_without_excuse(mode: Mode) -> None:
    """Where everything is excused, nothing can be found."""
    options = Options("sqlite", (mode,), kills=20)
    assert too_few(options, _result(mode, 20, 1000, 2)) == []
    assert too_few(options, _result(mode, 20, 1000, 1)) == [
        "only 1 executions had no excuse, and 2 were expected: it proves little"
    ]


def test_an_outage_has_to_meet_a_response_that_flows() -> None:
    """Else it proves nothing of those, where there are any."""
    options = Options("postgresql", ("hold",), outages=1)
    result = _result("hold", 0, 9, 9)
    result = result._replace(plan=result.plan._replace(outages=1))
    assert too_few(options, result) == [
        "only 0 outages began while a response was flowing, and 1 were expected: it proves little"
    ]
    assert too_few(options, result._replace(places=Counter({WHILE_FLOWING: 1}))) == []
    assert too_few(options, result._replace(plan=result.plan._replace(mode="retry"))) == []


def _strike(rotation: Rotation, how: Interruption, times: int) -> list[Place]:
    struck: list[Place] = []
    for _ in range(times):
        place = rotation.next(how)
        rotation.over(how, place)
        rotation.trapped[how, place.where, place.ending] += 1
        struck.append(place)
    return struck


def test_every_place_gets_its_turn() -> None:
    """However many interruptions, no place has had more than one more than another; and one that is reached
    with two endings is two places."""
    rotation = Rotation("retry")
    assert Counter(_strike(rotation, "kill", 3 * len(PLACES["retry"]))) == dict.fromkeys(PLACES["retry"], 3)
    assert set(rotation.reached("kill").values()) == {3}
    assert set(rotation.reached("stop").values()) == {0}
    assert "stop before Finish return 500" in rotation.reached("stop")


@pytest.mark.parametrize("mode", MODES)
def test_short_runs_with_seeds_in_turn_leave_nothing_out(mode: Mode) -> None:
    """Four of them that have a third of what all places need, each."""
    third = len(PLACES[mode]) // 3
    struck = {place for seed in range(4) for place in _strike(Rotation(mode, seed), "stop", third)}
    assert struck == set(PLACES[mode])


def test_a_place_that_is_never_reached_does_not_stop_the_others() -> None:
    """The others have their turn all the same; and if it was tried often enough, the run has failed."""
    rotation = Rotation("hold")
    place = PLACES["hold"][3]
    met: Counter[Place] = Counter()
    while met[place] < ENOUGH:
        assert not rotation.unreachable()
        met[rotation.next("kill")] += 1
        [(how, chosen)] = [key for key, times in rotation._under_way.items() if times]
        rotation.over(how, chosen)
        if chosen != place:
            rotation.trapped[how, chosen.where, chosen.ending] += 1
    assert min(met.values()) >= ENOUGH // TRIES
    assert rotation.unreachable() == [
        f"kill {place.where}: never reached by the {ENOUGH} requests that were sent there"
    ]


def test_which_requests_may_have_lost_a_lease() -> None:
    """Those whose worker was killed, frozen, slow, cut off or served while the database was away; and no
    others."""
    timeline = Timeline(lease=1.0)

    def visit(key: str, pid: int, began: float, ended: float | None) -> None:
        timeline.add([Entry("arrived", began, pid, [key, key])])
        if ended is not None:
            timeline.add([Entry("left", ended, pid, [key])])

    visit("fine", 1, 10.0, 10.1)
    visit("killed", 1, 11.0, None)
    timeline.interrupted(1, 11.05)
    visit("slept", 2, 11.0, 11.5)
    visit("woken before", 2, 11.9, 12.0)
    timeline.interrupted(2, 11.2, 11.4)
    visit("slow", 3, 11.0, 11.95)
    visit("quick", 3, 11.0, 11.8)
    visit("cut", 4, 11.0, 11.1)
    visit("not cut", 5, 11.0, 11.1)
    visit("cut before", 4, 11.07, 11.1)
    timeline.was_cut(4, 11.05)
    visit("away", 3, 20.0, 20.1)
    timeline.was_out(20.05, 21.0)
    lost = {key for key in timeline.keys() if timeline.lost_leases(key)}  # noqa: SIM118 - it is no mapping
    assert lost == {"killed", "slept", "slow", "cut", "away"}


def test_a_history_that_is_impossible_is_found() -> None:
    """I6: in flight after it was answered, which no audit of the books would find."""
    clients = Clients(0, "hold", Random(1), 1.0)
    clients.histories["good"] = [
        Operation(1, 2, "{}", "first", b"201"),
        Operation(3, 4, "{}", "replay", b"201"),
    ]
    clients.histories["bad"] = [Operation(1, 2, "{}", "first", b"201"), Operation(3, 4, "{}", "in-flight")]
    [violation] = check_keys("hold", [], Snapshot({}, frozenset()), clients, Timeline(1.0)).violations
    assert violation.startswith("bad: its history is not linearizable")


@pytest.mark.parametrize(
    ("retry", "violations"),
    [
        (Operation(3, 4, "{}", "unknown"), 1),
        (Operation(1.5, 4, "{}", "unknown"), 0),  # it was sent before the response had arrived
        (Operation(3, 4, "{}", "replay", b"201 "), 0),
    ],
)
def test_a_response_that_arrived_whole_is_stored(retry: Operation, violations: int) -> None:
    """A large response flowed while the store was away until its lease had ended, and arrived whole and
    unmarked; the retry got `outcome-unknown`.  An outage explains an unknown outcome, but not this one."""
    clients, timeline = Clients(0, "hold", Random(1), 1.0), Timeline(1.0)
    timeline.add(
        [Entry("arrived", 1.0, 1, ["0", "key"]), Entry("executed", 1.1, 1, ["0", "key", "a", "large"])]
    )
    timeline.add([Entry("storing", 1.2, 1, ["0"]), Entry("left", 2.0, 1, ["0"])])
    timeline.was_out(1.0, 5.0)
    clients.histories["key"] = [Operation(1, 2, "{}", "first", b"201 "), retry]
    if retry.received == "unknown":
        clients.unknown.add("key")
    promised = [
        violation
        for violation in check_keys("hold", ["key"], Snapshot({}, frozenset()), clients, timeline).violations
        if "arrived whole" in violation
    ]
    assert promised == ["key: a response arrived whole, and a retry of it got outcome-unknown"] * violations


def test_an_unknown_outcome_needs_a_reason() -> None:
    """No worker was killed, frozen or slow: then the outcome is known."""
    clients, timeline = Clients(0, "hold", Random(1), 1.0), Timeline(1.0)
    timeline.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    clients.unknown.add("key")
    assert len(check_keys("hold", ["key"], Snapshot({}, frozenset()), clients, timeline).violations) == 1
    timeline.interrupted(1, 1.05)
    assert check_keys("hold", ["key"], Snapshot({}, frozenset()), clients, timeline).violations == []


@pytest.mark.parametrize(
    ("mode", "executed_by", "wrong"),
    [
        ("hold", [1], ""),
        ("hold", [0, 1], "executed 2 times: "),
        ("retry", [1], ""),
        ("retry", [0, 1], ""),
        ("retry", [0, 0, 1], ""),
        ("retry", [1, 2], "executed 2 times, and not because a lease was lost: "),
        ("retry", [0, 1, 2], "executed 3 times, and not because a lease was lost: "),
    ],
)
def test_executions_are_counted(mode: Mode, executed_by: list[int], wrong: str) -> None:
    """I13, I15: one; and where it may be tried again, one more for each attempt that had its effect and lost
    its lease.  The death of another excuses none."""
    timeline = Timeline(1.0)
    for pid in range(3):
        timeline.add([Entry("arrived", 1.0, pid, ["0", "key"])])
    for number, pid in enumerate(executed_by):
        timeline.add([Entry("executed", 1.02, pid, ["0", "key", str(number), ""])])
    timeline.interrupted(0, 1.05)
    for pid in (1, 2):
        timeline.add([Entry("left", 1.1, pid, ["0"])])
    checked = check_keys(mode, ["key"], Snapshot({}, frozenset()), Clients(0, mode, Random(1), 1.0), timeline)
    assert len(checked.violations) == bool(wrong)
    assert wrong in "".join(checked.violations)
    assert checked.unexcused == len([pid for pid in executed_by if pid or mode == "hold"])


@pytest.mark.parametrize(
    ("mode", "endings", "stores", "wrong"),
    [
        ("hold", ("not done", ""), True, False),
        ("hold", ("return 429", ""), True, False),
        ("hold", ("not done", ""), False, True),  # it died before it could store that
        ("hold", ("raise", ""), True, True),
        ("hold", ("", "not done"), True, True),  # the second one is one too many, however it ends
        ("retry", ("raise", ""), True, False),
        ("retry", ("raise", ""), False, True),
        ("retry", ("", "raise"), True, True),
    ],
)
def test_a_release_may_be_followed(mode: Mode, endings: tuple[str, str], stores: bool, wrong: bool) -> None:
    """Once it has got as far as the store; what it was going to store proves nothing."""
    timeline = Timeline(1.0)
    for number, ending in enumerate(endings):
        timeline.add([Entry("arrived", 1.0 + number, number, ["0", "key"])])
        timeline.add([Entry("executed", 1.1 + number, number, ["0", "key", str(number), ending])])
        if stores:
            timeline.add([Entry("storing", 1.15 + number, number, ["0"])])
        timeline.add([Entry("left", 1.2 + number, number, ["0"])])
    if mode == "hold":
        timeline.interrupted(0, 1.12)  # which excuses nothing in this mode
    checked = check_keys(mode, ["key"], Snapshot({}, frozenset()), Clients(0, mode, Random(1), 1.0), timeline)
    assert bool(checked.violations) == wrong


@pytest.mark.parametrize(("came", "wrong"), [(1.05, False), (1.2, True)])
def test_a_request_that_arrives_when_all_is_over_has_no_excuse(came: float, wrong: bool) -> None:
    """A frozen worker may have its effect later than its successor; but it must have arrived before."""
    timeline = Timeline(1.0)
    timeline.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("executed", 1.02, 1, ["0", "key", "a", ""])])
    timeline.add([Entry("left", 1.1, 1, ["0"]), Entry("arrived", came, 2, ["0", "key"])])
    timeline.add([Entry("executed", 1.3, 2, ["0", "key", "b", ""])])
    timeline.interrupted(2, came + 0.01)
    clients = Clients(0, "retry", Random(1), 1.0)
    assert (
        bool(check_keys("retry", ["key"], Snapshot({}, frozenset()), clients, timeline).violations) == wrong
    )


def test_a_handler_may_outlive_its_request() -> None:
    """Whose client has gone away: it is excused by what happened until it had its effect."""
    timeline = Timeline(1.0)
    timeline.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.1, 1, ["0"])])
    timeline.add([Entry("executed", 1.2, 1, ["0", "key", "a", ""])])
    [execution] = timeline.executions("key")
    assert not timeline.may_have_lost_lease(execution)
    timeline.interrupted(1, 1.15)
    assert timeline.may_have_lost_lease(execution)


def test_headers_are_compared() -> None:
    """I4: a response without its header fields, or with them in another order, is not a replay."""
    clients = Clients(0, "tx", Random(1), 1.0)
    good = Received(201, b'{"id": "a"}', False, tuple(marks("a")))
    clients.received["good"] = [good, good._replace(replayed=True)]
    clients.received["late"] = [good._replace(replayed=True, marks=good.marks[:2])]
    clients.received["turned"] = [good, good._replace(replayed=True, marks=good.marks[::-1])]
    assert [wrong.split(":")[0] for wrong in clients.contradictions()] == ["late", "turned"]


def test_a_stored_response_that_is_not_valid_is_found() -> None:
    """The audit finds it, and does not fail because of it."""
    for body in (b"{}", b"[]", b"nonsense"):
        snapshot = Snapshot({"key": Stored("completed", 201, body)}, frozenset(), ({}, {}))
        assert len(snapshot.violations()) == 2


def test_whose_a_connection_is() -> None:
    """Known from its other end, while it lasts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            accepted, (_, port) = server.accept()
            accepted.close()
            assert links.owner(port, [1, os.getpid()]) == os.getpid()
            assert links.owner(port, []) is None
        assert links.owner(port, [os.getpid()]) is None


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 nonsense\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 201 Created\r\n\r\n",
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_a_response_that_is_not_http_is_not_taken_for_a_lost_one(said: bytes) -> None:
    """A worker that is killed leaves half a response; a whole one that cannot be read is a mistake."""

    clients = _asked(said)
    assert [operation.received for operation in clients.histories["key"]] == ["nothing"]
    [wrong] = clients.violations
    assert "key: the response is not valid HTTP" in wrong


def _asked(sent: bytes) -> Clients:
    """A client that asked a server which sends this and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async def ask() -> Clients:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            clients = Clients(server.sockets[0].getsockname()[1], "hold", Random(1), 1.0)
            await clients._ask("key", [])
            return clients

    return asyncio.run(ask())


CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nOrder-Id: a\r\n"


@pytest.mark.parametrize(
    ("sent", "kind", "verdict"),
    [
        (CHUNKED + b"\r\n7ff\r\n" + b"x" * 0x7FF + b"\r\n2\r\nyy\r\n0\r\n\r\n", "first", "201"),
        (CHUNKED + b"\r\n7ff\r\n" + b"x" * 0x7FF + b"\r\n2\r\nyy\r\n", "nothing", "broken off"),
        (CHUNKED + b"\r\n7ff\r\nxx", "nothing", "broken off"),
        (CHUNKED + b"Idempotency-Stored: false\r\n\r\n0\r\n\r\n", "open", "201"),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\n{}", "nothing", "cut off"),
    ],
)
def test_a_response_counts_when_its_last_byte_has_arrived(sent: bytes, kind: str, verdict: str) -> None:
    """One that ends early promises nothing, and neither does one that is marked as not stored."""
    clients = _asked(sent)
    assert [operation.received for operation in clients.histories["key"]] == [kind]
    assert clients.verdicts == {verdict: 1}
    assert clients.violations == []
    # Of a body that is too large to store, what is compared is that it is not stored.
    assert [received.stored for received in clients.received["key"]] == [(201, b"")] * (kind == "first")


def test_a_replay_without_its_body_is_the_response_to_a_large_one() -> None:
    """It has the same order in its headers; and where the body was small, it is not omitted."""
    clients = Clients(0, "hold", Random(1), 1.0)
    large = Received(201, b'{"id": "a", "padding": "%s"}' % (b"x" * MAX_RESPONSE), False, tuple(marks("a")))
    omitted = Received(201, b"", True, tuple(marks("a")), omitted=True)
    clients.received["good"] = [large, omitted]
    assert clients.contradictions() == []
    clients.received["other"] = [large, omitted._replace(marks=tuple(marks("b"))[::-1])]
    clients.received["small"] = [Received(201, b'{"id": "a"}', False, tuple(marks("a"))), omitted]
    clients.received["both"] = [large, omitted._replace(body=b"{}")]
    wrong = [violation.split(":")[0] for violation in clients.contradictions()]
    assert wrong == ["other", "small", "both", "both"]


def test_the_error_of_a_watcher_is_raised() -> None:
    """What an audit finds while clients recover is no less wrong than before."""

    async def fail() -> None:
        raise LookupError("a line that no worker writes")

    async def watch() -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        watching = [asyncio.ensure_future(watch()), asyncio.ensure_future(fail())]
        await asyncio.sleep(0)
        with pytest.raises(LookupError, match="no worker writes"):
            await _stop_watching(watching)
        await _stop_watching([asyncio.ensure_future(watch())])

    asyncio.run(end())


def test_a_journal_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Each line once, and never half of one."""
    path = tmp_path / "journal"
    reader, journal = Reader(path), Journal(str(path))

    def news() -> list[tuple[str, list[str]]]:
        return [(entry.event, entry.fields) for entry in reader.news()]

    journal.write("trapped", "kill", "before Run")
    with path.open("ab") as file:
        file.write(b"\nleft\t1.5\t17")  # a worker is still writing it
    assert news() == [("trapped", ["kill", "before Run"])]
    with path.open("ab") as file:
        file.write(b"\t3\t.\n\narrived\t1.6\t18\t4\t18e7a4")  # and here one was killed
    journal.write("left", "1")
    assert news() == [("left", ["3"]), ("left", ["1"])]
    reader.close()


@pytest.mark.parametrize(("kills", "freezes", "rounds"), [(1, 0, 1), (30, 10, 3), (2000, 500, 12)])
def test_the_faults_are_shared(kills: int, freezes: int, rounds: int) -> None:
    """All that was asked for is done, by as many rounds as it is worth, in every mode."""
    made = plans(Options("postgresql", kills=kills, freezes=freezes), PostgreSQL, Random(1))
    assert len(made) == rounds
    assert len({(plan.mode, plan.way) for plan in made}) == rounds
    assert len({plan.mode for plan in made}) == min(rounds, 3)
    assert sum(plan.kills for plan in made) == kills
    assert sum(plan.freezes for plan in made) == freezes


def test_few_cuts_are_not_scattered() -> None:
    """A round in which connections can be cut is slow: there are no more than the cuts are worth."""
    made = plans(Options("postgresql", kills=500, cuts=25, server_kills=13), PostgreSQL, Random(1))
    assert [plan.cuts for plan in made] == [12, 13] + [0] * 4
    assert sorted(plan.server_kills for plan in made) == [2] * 5 + [3]


class Unsprung:
    """Its worker was killed on the way."""

    hit: targets.Hit | None = None


def test_a_cut_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a round goes on for ever once no worker is killed any more."""
    monkeypatch.setattr(faults, "CUT_BY", 0.02)
    cut = Unsprung()
    assert not asyncio.run(faults._is_cut(cut))
    cut.hit = targets.Hit(1.0, 17)
    assert asyncio.run(faults._is_cut(cut))


PART = Stored("completed", 200, b'{"id":"l"}')
ORDER = Stored("completed", 200, b'{"id":"o","line":"l"}')


@pytest.mark.parametrize(
    ("stored", "parts", "orders", "lines", "violations"),
    [
        ({"a": ORDER}, {"a": PART}, {"a": ["o"]}, {"a": ["l"]}, 0),
        ({"a-1": ORDER, "a-2": ORDER}, {"a": PART}, {"a-1": ["o"], "a-2": ["o"]}, {"a": ["l"]}, 0),
        ({}, {}, {}, {}, 0),
        ({"a": ORDER}, {"a": PART}, {"a": ["o"]}, {"a": ["l", "m"]}, 1),  # the part was done twice
        ({"a": ORDER}, {"a": PART}, {"a": ["o", "p"]}, {"a": ["l"]}, 1),  # and so was the order
        ({"a": ORDER}, {}, {"a": ["o"]}, {"a": ["l"]}, 1),  # no record of the part
        ({}, {"a": PART}, {}, {"a": ["l"]}, 1),  # the part without the order
        ({}, {"a": PART}, {}, {}, 1),  # its record alone
        ({"a": ORDER._replace(body=b'{"id":"o","line":""}')}, {}, {"a": ["o"]}, {}, 1),  # the order alone
    ],
)
def test_an_order_and_its_part_are_there_or_not(
    stored: dict[str, Stored],
    parts: dict[str, Stored],
    orders: dict[str, list[str]],
    lines: dict[str, list[str]],
    violations: int,
) -> None:
    """I14 where an operation is a part of another one's transaction; two orders may share it."""
    found = Snapshot(stored, frozenset(), [orders, lines], parts).violations_of_parts()
    assert len(found) == violations, found


@pytest.mark.parametrize(
    ("derived", "violations"),
    [((("a", "x"), ("a", "x"), ("b", "y")), 0), ((("a", "x"), ("a", "y")), 1), ((("a", "x"), ("b", "x")), 1)],
    ids=["one for each key", "two of one key", "one of two keys"],
)
def test_derived_keys(derived: tuple[tuple[str, str], ...], violations: int) -> None:
    """Every attempt at a key passes on the same one, and no other key does."""
    timeline = Timeline(1.0)
    for number, (key, passed_on) in enumerate(derived):
        serial = str(number)
        timeline.add([Entry("arrived", number, 1, [serial, key])])
        timeline.add([Entry("executed", number + 0.1, 1, [serial, key, serial, "raise", passed_on])])
        timeline.add([Entry("storing", number + 0.2, 1, [serial]), Entry("left", number + 0.3, 1, [serial])])
    clients = Clients(0, "retry", Random(1), 1.0)
    found = check_keys("retry", ["a", "b"], Snapshot({}, frozenset()), clients, timeline).violations
    assert len([wrong for wrong in found if "derived key" in wrong]) == violations


def test_a_value_does_not_flow() -> None:
    """Operations have all places of their mode but those of a response that is too large to store."""
    assert set(places("hold", "operation")) < set(places("hold", "request"))
    assert places("tx", "operation") == places("tx", "request")
    assert not any(place.ending == "large" for place in places("hold", "operation"))


def _reply(status: int, code: str | None = None, replayed: bool = False, **fields: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in fields.items()}
    body = b"{}"
    if code is not None:
        names["Content-Type"] = "application/problem+json"
        body = b'{"code": "%s"}' % code.encode()
    elif replayed:
        names["Idempotent-Replayed"] = "true"
        body = b'{"idempotent_replayed": true, "original_received_at": "2026-01-01T00:00:00+00:00"}'
    return Reply(status, tuple(names.items()), body)


@pytest.mark.parametrize(
    ("mode", "reply", "expected"),
    [
        ("retry", _reply(200), Told("first", 200)),
        ("retry", _reply(200, replayed=True), Told("replay", 200)),
        ("retry", _reply(200, Idempotency_Stored="false"), "wrong"),  # it would be lost
        ("retry", _reply(202), "wrong"),
        ("retry", _reply(503, "in-flight", Retry_After="1"), Told("in-flight")),
        ("retry", _reply(503, "in-flight"), "wrong"),
        ("retry", _reply(409, "in-flight", Retry_After="1"), "wrong"),
        ("retry", _reply(409, "previously-failed"), "wrong"),
        ("tx", _reply(409, "outcome-unknown"), "wrong"),
        ("hold", _reply(409, "outcome-unknown"), Told("unknown")),
        ("hold", _reply(500), Told("first", 500)),
        ("hold", _reply(409, "previously-failed"), Told("replay", 500)),
        ("payload", _reply(500), Told("open")),
        ("payload", _reply(422, "key-reused"), Told("mismatch")),
        ("inbox", _reply(202), Told("first", 202)),
        ("inbox", _reply(202, replayed=True), Told("replay", 202)),
        ("inbox", _reply(200, replayed=True), Told("replay", 200)),
        ("inbox", _reply(200), "wrong"),  # no handler runs for its sender
        ("inbox", _reply(500), "wrong"),
        ("inbox", _reply(503, "store-unavailable"), Told("open")),
    ],
)
def test_what_senders_may_be_told(mode: Mode, reply: Reply, expected: Told | str) -> None:
    """Each mode has its own responses, and an acknowledgement is of something that is stored."""
    assert read_told(mode, reply) == expected


HANDLED = Stored("completed", 200, b"")
SORRY = Stored("failed", 500, b"")


@pytest.mark.parametrize(
    ("told", "snapshot", "violations"),
    [
        ([200], Snapshot({"a": HANDLED}, frozenset()), 0),
        ([200], Snapshot({"a": SORRY}, frozenset()), 1),
        ([200], Snapshot({}, frozenset({"a"}), due=frozenset({"a"})), 1),
        ([200], Snapshot({}, frozenset()), 1),
        ([202], Snapshot({}, frozenset({"a"}), due=frozenset({"a"})), 0),
        ([202], Snapshot({"a": SORRY}, frozenset(), due=frozenset({"a"})), 0),
        ([202], Snapshot({"a": SORRY}, frozenset()), 1),  # no worker tries it again
        ([202], Snapshot({}, frozenset({"a"})), 1),  # its payload is not stored
        ([202, 200], Snapshot({}, frozenset({"a"}), due=frozenset({"a"})), 1),
        ([500], Snapshot({"a": SORRY}, frozenset()), 0),
        ([500], Snapshot({"a": HANDLED}, frozenset()), 1),
        ([], Snapshot({}, frozenset()), 0),
    ],
)
def test_an_acknowledgement_is_a_promise(told: list[int], snapshot: Snapshot, violations: int) -> None:
    """I23: of what is stored, or was handled."""
    received = {"a": [Received(status, b"{}", False) for status in told]}
    assert len(broken_acknowledgements(snapshot, received)) == violations


@pytest.mark.parametrize(
    ("stored", "orders", "lines", "violations"),
    [
        ({"a": HANDLED}, {"a": ["o"]}, {"a": ["o"]}, 0),
        ({"a": SORRY}, {}, {}, 0),
        ({}, {}, {}, 0),
        ({"a": HANDLED}, {}, {}, 1),
        ({"a": HANDLED}, {"a": ["o", "p"]}, {"a": ["o", "p"]}, 1),
        ({"a": HANDLED}, {"a": ["o"]}, {"a": ["p"]}, 1),
        ({"a": HANDLED}, {"a": ["o"]}, {}, 1),
        ({"a": SORRY}, {"a": ["o"]}, {"a": ["o"]}, 1),
        ({}, {"a": ["o"]}, {"a": ["o"]}, 1),
    ],
)
def test_what_is_written_of_an_event_is_there_with_its_receipt(
    stored: dict[str, Stored], orders: dict[str, list[str]], lines: dict[str, list[str]], violations: int
) -> None:
    """I14: once if it was handled, and otherwise not."""
    found = Snapshot(stored, frozenset(), [orders, lines]).violations_of_receipts()
    assert len(found) == violations, found


@pytest.mark.parametrize(
    ("later", "wrong"),
    [
        (Told("replay", 200, 2.0, 3.0), False),
        (Told("in-flight", 0, 2.0, 3.0), True),
        (Told("replay", 202, 2.0, 3.0), True),
        (Told("open", 0, 0.5, 3.0), False),  # it began before
        (Told("mismatch", 0, 2.0, 3.0), False),
    ],
)
def test_what_was_handled_is_never_forgotten(later: Told, wrong: bool) -> None:
    """I6: no later delivery is told anything else."""
    senders = Senders(0, "payload", Random(1), 1.0)
    senders.told["a"] = [Told("first", 200, 0.0, 1.0), later]
    senders.received["a"] = [Received(200, b"{}", False)]
    snapshot = Snapshot({"a": HANDLED}, frozenset(), ({"a": ["o"]}, {"a": ["o"]}))
    assert bool(check("payload", ["a"], snapshot, senders, Timeline(1.0)).violations) == wrong


def test_what_is_left_to_a_worker_in_the_end_is_lost() -> None:
    """Whether its sender was told anything or not."""
    snapshot = Snapshot({}, frozenset({"a"}), due=frozenset({"a"}))
    senders = Senders(0, "inbox", Random(1), 1.0)
    [wrong] = check("inbox", ["a"], snapshot, senders, Timeline(1.0)).violations
    assert wrong == "a: its payload is stored, and no worker has handled it"


@pytest.mark.parametrize(("cut", "violations"), [(True, 0), (False, 1)])
def test_a_bid_that_was_sent_again_may_find_a_worker(cut: bool, violations: int) -> None:
    """In an inbox the delivery that stored an event may be told that it is a duplicate, if the reply to its
    bid was lost; no other may."""
    senders, timeline = Senders(0, "inbox", Random(1), 1.0), Timeline(1.0)
    timeline.add([Entry("arrived", 1.0, 1, ["0", "key"]), Entry("left", 1.4, 1, ["0"])])
    if cut:
        timeline.was_cut(1, 1.2)
    senders.histories["key"] = [
        Operation(1.0, 1.4, "{}", "replay", b"202"),
        Operation(1.1, 1.5, "{}", "replay", b"202"),
    ]
    found = check("inbox", [], Snapshot({}, frozenset()), senders, timeline).violations
    assert len(found) == violations


def test_every_place_of_a_worker_is_beside_those_of_a_delivery() -> None:
    """By name and ending, as they are counted; and only where there are workers."""
    for mode in modes_of(PostgreSQL, "callback"):
        found = places(mode, "callback")
        assert len({place[:2] for place in found}) == len(found)
        assert any(place.worker for place in found) == (mode in WITH_WORKERS)


def test_a_process_takes_the_place_of_a_worker_that_has_ended(tmp_path: Path) -> None:
    """And no other one: the others serve."""
    program = (
        "import pathlib, sys; from tools.crash.payloads import _takes_place; "
        "print(all(_takes_place(pathlib.Path(sys.argv[1])) for _ in range(int(sys.argv[2]))), flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), str(WORKERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as workers:
        assert workers.stdout is not None
        assert workers.stdout.readline() == "True\n"
        assert not _takes_place(tmp_path)
        workers.kill()
    assert [_takes_place(tmp_path) for _ in range(WORKERS + 1)] == [True] * WORKERS + [False]
