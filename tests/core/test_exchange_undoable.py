"""An exchange whose effects are committed with its answer: nothing of it leaves before."""

import pytest

from retrysafe._core.model import Response
from retrysafe._core.steps import Raised, Responded, Result
from retrysafe._http.body import IN_MEMORY
from retrysafe._http.exchange import Exchange
from tests.core.values import a_request, a_route, the_rules

RULES = the_rules(effects="database", max_response=8)

TEXT = ((b"content-type", b"text/plain"),)


def answering(*pieces: bytes) -> Exchange:
    exchange = Exchange(a_request(), a_route(RULES))
    exchange.start(200, [(b"content-type", b"text/plain")])
    for piece in pieces:
        assert exchange.hold(piece, last=False)
    assert exchange.hold(b"", last=True)
    return exchange


def sent(exchange: Exchange, answer: Result) -> bytes:
    pieces = exchange.spooled(answer)
    response = exchange.render(answer)
    assert response is not None
    return response.body if pieces is None else b"".join(pieces)


def test_a_small_one_is_held_as_ever() -> None:
    exchange = answering(b"small")
    outcome = exchange.outcome()
    assert outcome == Responded(Response(200, TEXT, b"small"), storable=TEXT)


@pytest.mark.parametrize("size", [9, IN_MEMORY + 1, 3 * IN_MEMORY])
def test_a_large_one_waits_as_a_whole(size: int) -> None:
    """In memory or on disk; and is sent as it is when its turn has come."""
    whole = bytes(number % 251 for number in range(size))
    exchange = answering(whole[: size // 2], whole[size // 2 :])
    outcome = exchange.outcome()
    assert isinstance(outcome, Responded)
    assert (outcome.omitted, outcome.response.body, exchange.stage) == (True, b"", "held")
    assert sent(exchange, Result("completed", outcome.response)) == whole


def test_what_waits_is_not_sent_with_another_answer() -> None:
    """Overtaken, refused, or failed after its last byte: what is told has a body of its own."""
    exchange = answering(b"much too large")
    exchange.outcome()
    assert sent(exchange, Result("replayed", Response(200, (), b"theirs"))) == b"theirs"
    assert exchange.spooled(Result("completed", None)) is None


def test_an_error_page_may_be_large_too() -> None:
    exchange = Exchange(a_request(), a_route(RULES))
    exchange.start(500, [])
    exchange.hold(b"a large page", last=False)
    exchange.hold(b"", last=True)
    outcome = exchange.outcome(RuntimeError("broke"))
    assert isinstance(outcome, Raised)
    assert outcome.page is not None
    assert sent(exchange, Result("released", outcome.page)) == b"a large page"


def test_an_event_stream_is_refused() -> None:
    """It has no end at which it could be committed; the message says what to do."""
    exchange = Exchange(a_request(), a_route(RULES))
    with pytest.raises(ValueError, match="event stream") as error:
        exchange.start(200, [(b"content-type", b"text/event-stream")])
    assert 'effects="outside"' in str(error.value)


def test_an_event_stream_elsewhere_is_not_our_business() -> None:
    exchange = Exchange(a_request(), a_route())
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    assert exchange.head is not None
