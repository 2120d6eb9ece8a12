"""One HTTP exchange without any I/O: what is held, what is replayed, and what clients are told."""

from functools import partial

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Header, Record, Response
from retrysafe._core.steps import Call, Checkpoint, Raised, Responded, Result, Run, Streamed, TooLarge
from retrysafe._http.exchange import Exchange, IncompleteResponse
from retrysafe._http.render import describe, specification_url
from retrysafe.policy import Rules, Wire
from retrysafe.stores.memory import _Row
from tests.core.values import a_claim, a_request, a_route, the_rules

RULES = the_rules()
TEXT = ((b"content-type", b"text/plain"),)


def exchange(*headers: Header, rules: Rules = RULES, scheme: str = "http") -> Exchange:
    return Exchange(a_request(*headers, scheme=scheme), a_route(rules))


def a_run(exchange: Exchange, claim: Claim) -> Run:
    rules = exchange.rules
    return Run(
        Attempt(claim, 1),
        Call(claim, rules.policy, rules.outcome, partial(describe, request=exchange.request, rules=rules)),
    )


def a_record(response: Response | None, *, omitted: bool = False, failed: bool = False) -> Record:
    record = _Row(a_claim()._replace(request_id="first"), 1000.0).record()
    state = "failed" if failed else "completed"
    return record._replace(state=state, response=response, omitted=omitted)  # type: ignore[arg-type]


def replayed(record: Record, *headers: Header, rules: Rules = RULES) -> Response:
    response = exchange(*headers, rules=rules).render(Result("replayed", record))
    assert response is not None
    return response


def values(response: Response, name: bytes) -> list[bytes]:
    return [value for found, value in response.headers if found == name]


# --- Ids and addresses


@pytest.mark.parametrize("good", [b"r", b"x" * 128, b"!~", b"a-b_c.d:e/f"])
def test_a_usable_request_id_is_taken(good: bytes) -> None:
    """Anything that is fit for a log line and a header."""
    assert exchange((b"x-request-id", good)).request_id == good.decode()


@pytest.mark.parametrize("bad", [b"", b" ", b"a b", b"x" * 129, b"a\r\nb", b"\x1b[2J", b"\xe9", b"a\x00"])
def test_an_unusable_request_id_is_replaced(bad: bytes) -> None:
    """By a new one that nobody else has (CWE-117)."""
    one, other = exchange((b"x-request-id", bad)), exchange((b"x-request-id", bad))
    assert len(one.request_id) == 32
    assert one.request_id.isalnum()
    assert one.request_id != other.request_id


def test_without_a_request_id_there_is_a_new_one() -> None:
    """Every request can be found in the log."""
    assert exchange().request_id != exchange().request_id


def _url(exchange: Exchange) -> str:
    return specification_url(exchange.request, exchange.rules)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (b"api.test", "api.test"),
        (b"api.test:8080", "api.test:8080"),
        (b"[::1]:8080", "[::1]:8080"),
        (b"evil.test/path", "localhost"),
        (b"evil.test#", "localhost"),
        (b"evil.test?x", "localhost"),
        (b"user@evil.test", "localhost"),
        (b'"><script>', "localhost"),
        (b"a b", "localhost"),
        (b"a\r\nb", "localhost"),
        (b"", "localhost"),
        (b"x" * 256, "localhost"),
        (b"\xff", "localhost"),
    ],
)
def test_a_hostile_host_is_not_repeated(host: bytes, told: str) -> None:
    """It becomes part of a URL in the answer, so it must be a host."""
    assert _url(exchange((b"host", host))) == f"http://{told}/idempotency"


def test_without_a_host() -> None:
    """HTTP/1.0 knew none."""
    assert _url(exchange()) == "http://localhost/idempotency"


def test_somebody_elses_page() -> None:
    """An absolute address is used as it is, whatever the request says."""
    rules = the_rules(Wire(specification="https://docs.test/keys"))
    assert _url(exchange((b"host", b"evil.test"), rules=rules)) == "https://docs.test/keys"


# --- The request's body


@pytest.mark.parametrize(
    ("length", "refused"),
    [
        (b"10", False),
        (b"11", True),
        (b"99999999999999999999", True),
        (b"x", False),
        (b"-1", False),
        (b"", False),
    ],
)
def test_an_announced_body(length: bytes, refused: bool) -> None:
    """A body that says itself that it is too large is refused before any of it is read."""
    rules = the_rules(max_request=10)
    announced = exchange((b"content-length", length), rules=rules).announced()
    assert announced == (TooLarge(10) if refused else None)


def test_a_monstrous_announcement() -> None:
    """More digits than Python converts are still a number that is too large, and no 500."""
    rules = the_rules(max_request=10)
    assert exchange((b"content-length", b"9" * 5000), rules=rules).announced() == TooLarge(10)


def test_a_body_that_grows_too_large() -> None:
    """What was not announced is noticed as it arrives, and not a byte later (F33)."""
    arriving = exchange(rules=the_rules(max_request=10))
    assert arriving.announced() is None
    assert arriving.take(b"12345", last=False) is None
    assert arriving.take(b"67890", last=False) is None
    assert arriving.take(b"!", last=True) == TooLarge(10)
    assert arriving.body.size == 10
    arriving.body.close()


def test_the_fingerprint_is_of_the_body() -> None:
    """In however many pieces it came."""
    one, other, third = exchange(), exchange(), exchange()
    one.take(b"abc", last=True)
    other.take(b"a", last=False)
    other.take(b"bc", last=True)
    third.take(b"abd", last=True)
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != third.fingerprint()


# --- The handler's response


def test_a_response_is_held_until_it_is_complete() -> None:
    """Names in lower case, pieces joined."""
    held = exchange()
    held.start(201, [(b"Content-Type", b"text/plain")])
    assert held.hold(b"a", last=False)
    assert not held.is_complete
    assert held.hold(b"b", last=True)
    assert held.is_complete
    assert held.outcome() == Responded(Response(201, TEXT, b"ab"), storable=TEXT)


def test_what_does_not_fit_has_to_flow() -> None:
    """Beyond the limit, if more is to come; the last piece needs not."""
    held = exchange(rules=the_rules(max_response=4))
    held.start(200, [])
    assert held.hold(b"1234", last=False)
    assert not held.hold(b"5", last=False)
    assert held.pour() == b"12345"
    assert held.pour() == b""
    whole = exchange(rules=the_rules(max_response=4))
    whole.start(200, [])
    assert whole.hold(b"12345", last=True)
    assert whole.outcome() == Responded(Response(200, (), b"12345"), storable=())


def test_what_completes_an_answer_is_held() -> None:
    """A client that has counted the bytes may come back at once: it must find them stored."""
    held = exchange(rules=the_rules(max_response=1))
    held.start(200, [(b"Content-Length", b"4")])
    assert not held.hold(b"12", last=False)
    held.stage = "flowing"
    assert held.pour() == b"12"
    assert held.hold(b"34", last=False)
    assert not held.is_complete
    assert held.hold(b"", last=True)
    assert held.pour() == b"34"


def test_an_event_stream_flows_at_once() -> None:
    """It has no end to wait for."""
    held = exchange()
    held.start(200, [(b"content-type", b"text/event-stream")])
    assert not held.hold(b"data: 1\n\n", last=False)


def test_flowing() -> None:
    """The checkpoint is made first; then every piece is poured out but the last, which is held."""
    held = exchange((b"x-request-id", b"r"), rules=the_rules(max_response=1))
    claim = a_claim()
    held.start(200, [])
    assert not held.hold(b"12", last=False)
    flow = held.let_flow(a_run(held, claim))
    assert next(flow) == Checkpoint(claim._replace(hold=held.rules.policy.unknown_retention), Response(200))
    assert held.stage == "held", "not a byte before the checkpoint"
    with pytest.raises(StopIteration):
        flow.send(True)
    assert (held.stage, held.opening) == ("flowing", Response(200, ((b"x-request-id", b"r"),)))
    assert held.pour() == b"12"
    assert not held.hold(b"3", last=False)
    assert held.pour() == b"3"
    assert held.hold(b"4", last=True)
    assert held.pour() == b"4"
    assert held.outcome() == Streamed(Response(200))


def test_an_overtaken_response_does_not_flow() -> None:
    """It must not be sent at all."""
    held = exchange(rules=the_rules(max_response=1))
    claim = a_claim()
    held.start(200, [])
    flow = held.let_flow(a_run(held, claim))
    next(flow)
    with pytest.raises(StopIteration):
        flow.send(False)
    assert (held.stage, held.opening) == ("discarded", None)


def test_what_no_server_could_send() -> None:
    """Two starts, a body before one, more or less than was announced: the handler's failure, never kept."""
    held = exchange()
    with pytest.raises(RuntimeError):
        held.hold(b"x", last=True)
    with pytest.raises(ValueError, match="999"):
        held.start(999, [])
    with pytest.raises(TypeError):
        held.start(200, [("content-type", "text/plain")])  # type: ignore[list-item]
    held.start(200, [(b"content-length", b"4")])
    with pytest.raises(RuntimeError):
        held.start(500, [])
    assert held.hold(b"123", last=True)
    outcome = held.outcome()
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, IncompleteResponse)
    with pytest.raises(RuntimeError):
        held.hold(b"45", last=True)


def test_a_buffer_that_is_used_again() -> None:
    """What an application sends is its own to change afterwards; what was held is not."""
    held, buffer = exchange(), bytearray(b"AAAA")
    held.start(200, [])
    held.hold(buffer, last=False)
    buffer[:] = b"BBBB"
    held.hold(buffer, last=True)
    assert held.pour() == b"AAAABBBB"


def test_an_error_page_of_its_own_is_kept() -> None:
    """Frameworks complete a 500 and raise then; a success that raised later is no page."""
    for status, said in ((500, True), (201, False)):
        held = exchange()
        held.start(status, [])
        held.hold(b"page", last=True)
        outcome = held.outcome(ValueError("x"))
        assert isinstance(outcome, Raised)
        assert (outcome.page == Response(status, (), b"page")) is said


@pytest.mark.parametrize("started", [False, True])
def test_an_incomplete_response_is_a_failure(started: bool) -> None:
    """An application that returns too early has failed, and half an answer is never kept."""
    held = exchange()
    if started:
        held.start(200, [])
        held.hold(b"half", last=False)
    outcome = held.outcome()
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, IncompleteResponse)


def test_a_stream_that_stops_is_broken() -> None:
    """It cannot be called back, and is no success either."""
    held = exchange()
    held.start(200, [])
    held.stage = "flowing"
    outcome = held.outcome()
    assert isinstance(outcome, Streamed)
    assert isinstance(outcome.error, IncompleteResponse)


def test_an_exception_after_the_answer_counts() -> None:
    """What fails before the application returns belongs to the request: it may have rolled it back."""
    held, error = exchange(), RuntimeError()
    held.start(201, [])
    held.hold(b"x", last=True)
    assert held.outcome(error) == Raised(error)
