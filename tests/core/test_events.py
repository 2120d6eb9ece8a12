"""What observers are told, and what operators read."""

import logging
from typing import get_args

import pytest

from retrysafe import scopes
from retrysafe._core.model import Claim, Record, Response
from retrysafe._core.problems import CATALOGUE, Code, Problem
from retrysafe._core.steps import Result, Verdict
from retrysafe._http.exchange import Exchange
from retrysafe._runtime.runtime import Runtime
from retrysafe.errors import StoreError, StoreUnavailable, UnreadableRecord
from retrysafe.events import Event, Observers
from retrysafe.stores.memory import MemoryStore, _Row
from tests.core.values import a_claim, a_request, a_route, the_rules

CLAIM = a_claim("a-key-that-nobody-may-see")
ID = CLAIM.id.hex()[:8]


def a_call(claim: Claim | None = CLAIM, *, path: str = "/orders", route: str = "") -> Exchange:
    call = Exchange(
        a_request((b"idempotency-key", b"a-key-that-nobody-may-see"), path=path), a_route(path=route)
    )
    call.claim = claim
    return call


def a_record(state: str = "completed") -> Record:
    return _Row(CLAIM, 0.0).record()._replace(state=state, response=Response(201))  # type: ignore[arg-type]


def reply_to(verdict: str) -> Response | Problem | Record | None:
    if verdict in CATALOGUE:
        return Problem(verdict, "detail")
    return {"replayed": a_record(), "gone": None}.get(verdict, Response(202))


def every_verdict() -> list[str]:
    codes, others = get_args(Verdict)
    return [*get_args(codes), *get_args(others)]


@pytest.mark.parametrize("verdict", every_verdict())
def test_one_event_per_verdict(verdict: Verdict) -> None:
    """Each end of a request is told once, with the status that the client got."""
    told: list[Event] = []
    Observers(told.append).ended(a_call(), Result(verdict, reply_to(verdict), attempt=3))
    status = {"replayed": 201, "gone": None}.get(verdict, 202)
    if verdict in CATALOGUE:
        status = CATALOGUE[verdict].status
    assert told == [Event(verdict, "request", "POST", "/orders", status, 3, CLAIM.scope, ID)]


def test_every_verdict_is_known() -> None:
    """The list above is not empty by accident."""
    assert set(get_args(Code)) | {"completed", "failed", "released", "replayed"} <= set(every_verdict())


def test_before_a_claim_there_is_no_record() -> None:
    """A refusal at the door has neither scope nor id."""
    told: list[Event] = []
    Observers(told.append).ended(a_call(None), Result("key-invalid", Problem("key-invalid", "bad")))
    assert told == [Event("key-invalid", "request", "POST", "/orders", 400)]


def test_a_replay_without_a_response() -> None:
    """Nothing that is stored brings an observer down."""
    told: list[Event] = []
    Observers(told.append).ended(a_call(), Result("replayed", a_record()._replace(response=None)))
    assert told[0].status is None


def test_an_observer_that_raises_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Watching a payment must not break it."""

    def broken(_: Event) -> None:
        raise RuntimeError("the metrics server is down")

    Observers(broken).ended(a_call(), Result("completed", Response(200)))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "on_event raised for completed" in caplog.text
    assert "the metrics server is down" in caplog.text


def test_nobody_need_listen() -> None:
    """Without an observer nothing is told, and nothing breaks."""
    Observers(None).ended(a_call(), Result("completed", Response(200)))


FAILURE_REPLAYED = Result("replayed", a_record("failed"))
UNKNOWN = Result("outcome-unknown", Problem("outcome-unknown", "who knows"))


@pytest.mark.parametrize(("answer", "option"), [(FAILURE_REPLAYED, "failed="), (UNKNOWN, "abandoned=")])
def test_a_remark_names_the_option_once_per_route(
    answer: Result, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first time that a route holds or replays a failure, the log says what would change it."""
    observers = Observers(None)
    for path in ("/a", "/a", "/b", "/a"):
        observers.ended(a_call(path=path), answer)
    assert len(caplog.records) == 2
    assert caplog.text.count(option) >= 2
    assert "'/a'" in caplog.messages[0]
    assert "'/b'" in caplog.messages[1]


@pytest.mark.parametrize("verdict", ["completed", "failed", "released", "in-flight", "key-reused", "gone"])
def test_everyday_verdicts_are_not_logged(verdict: Verdict, caplog: pytest.LogCaptureFixture) -> None:
    """They are counted by observers; a log line each would be noise. A replay of a success is one, too."""
    Observers(None).ended(a_call(), Result(verdict, reply_to(verdict)))
    Observers(None).ended(a_call(), Result("replayed", a_record()))
    assert caplog.records == []


def trouble(verdict: Verdict, error: StoreError) -> Result:
    return Result(verdict, reply_to(verdict), stored=False, trouble=error)


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        ("unstored", StoreUnavailable("disk full")),
        ("store-unavailable", UnreadableRecord("a field is missing")),
    ],
)
def test_trouble_of_one_record_is_logged_every_time(
    verdict: Verdict, error: StoreError, caplog: pytest.LogCaptureFixture
) -> None:
    """With the record's first digits and the store's own words, and never the key (I19)."""
    observers = Observers(None)
    observers.ended(a_call(), trouble(verdict, error))
    observers.ended(a_call(), trouble(verdict, error))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert ID in caplog.text
    assert str(error) in caplog.text
    assert "a-key-that-nobody-may-see" not in caplog.text


def test_an_outage_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it begins, one with a count when it is over, whatever came between; then anew."""
    observers = Observers(None)
    for _ in range(2):
        caplog.clear()
        for _ in range(500):
            observers.ended(a_call(), trouble("store-unavailable", StoreUnavailable("disk full")))
        observers.ended(a_call(), trouble("unprotected", StoreUnavailable("disk full")))
        observers.ended(a_call(None), Result("key-invalid", Problem("key-invalid", "bad")))
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert ID in caplog.text
        assert "disk full" in caplog.text
        observers.ended(a_call(), Result("completed", Response(200)))
        assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
        assert "500 calls were refused, 1 ran unprotected" in caplog.text
        observers.ended(a_call(), Result("completed", Response(200)))
        assert len(caplog.records) == 2


def test_a_missing_owner_is_explained_once_per_route(caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads where it was looked for."""
    observers = Observers(None)
    call = Exchange(a_request(), a_route(the_rules(scope=scopes.header("X-Tenant"))))
    for _ in range(3):
        observers.ended(call, Result("principal-required", Problem("principal-required", "who")))
    assert len(caplog.records) == 1
    assert "X-Tenant" in caplog.text


def test_paths_with_ids_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Enough was said after a hundred; and memory is bounded."""
    observers = Observers(None)
    for number in range(1000):
        observers.ended(a_call(path=f"/orders/{number}"), UNKNOWN)
    assert len(caplog.records) == 100
    assert len(observers._logged) == 100


def test_a_hostile_path_stays_on_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """Line breaks and escape sequences are written out (CWE-117)."""
    Observers(None).ended(a_call(path="/a\r\nERROR forged \x1b[2J"), UNKNOWN)
    assert len(caplog.messages) == 1
    assert "\n" not in caplog.messages[0]
    assert "\x1b" not in caplog.messages[0]


def test_keyless_requests_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Every one of them, and logged once per route."""
    told: list[Event] = []
    observers = Observers(told.append)
    for _ in range(3):
        observers.keyless("POST", "/a/1", "/a/*", warn=True)
    observers.keyless("POST", "/b", "", warn=False)
    warned = Event("keyless", "request", "POST", "/a/1", None, route="/a/*")
    assert told == [*[warned] * 3, Event("keyless", "request", "POST", "/b", None)]
    assert len(caplog.records) == 1
    assert "'/a/*'" in caplog.text


@pytest.mark.parametrize(
    ("background", "seconds", "logged"),
    [("before", 0.6, True), ("before", 0.4, False), ("after", 9.0, False)],
)
def test_slow_work_after_the_answer_is_remarked_on(
    background: str, seconds: float, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The client waits for it, and the log names the option; where it does not, there is nothing to say."""
    runtime = Runtime(MemoryStore(), Observers(None), b"secret")
    exchange = Exchange(a_request(), a_route(the_rules(background=background)))
    exchange.start(200, [])
    exchange.hold(b"", last=True)
    exchange._complete_at -= seconds
    exchange.outcome()
    runtime.end(exchange, Result("completed", Response(200)))
    runtime.close()
    assert ("background=" in caplog.text) is logged


def test_slow_work_is_remarked_on_once_per_route(caplog: pytest.LogCaptureFixture) -> None:
    """However long it took each time: one line, which leaves room for other remarks."""
    runtime = Runtime(MemoryStore(), Observers(None), b"secret")
    for tenths in range(6, 20):
        exchange = Exchange(a_request(), a_route())
        exchange.background = tenths / 10
        runtime.end(exchange, Result("completed", Response(200)))
    runtime.close()
    assert len(caplog.records) == 1
