"""`settle`: the table of what is kept, line by line."""

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import settle
from retrysafe._core.model import Final, Headers, Response
from retrysafe._core.steps import Outcome, Raised, Responded, Streamed, ToRelease, ToStore
from retrysafe.errors import NotDone
from retrysafe.policy import OutcomeRules
from tests.protocol.values import CLAIM, CREATED, RULES, a_call

RETRY_AFTER: Headers = ((b"retry-after", b"5"),)
SMALL = RULES._replace(max_response=4)


class Unreachable(Exception):
    """What a handler's client library raises when it could not even connect."""


class StillUnreachable(Unreachable):
    """A more precise one."""


def an_attempt(*, derived: bool = False, checkpointed: bool = False, not_started: bool = False) -> Attempt:
    attempt = Attempt(CLAIM, 1)
    if derived:
        attempt.derive("charge")
    attempt.checkpointed = checkpointed
    if not_started:
        attempt.not_started()
    return attempt


def kept(outcome: Outcome, attempt: Attempt | None = None, rules: OutcomeRules = RULES) -> ToStore:
    settlement = settle(outcome, attempt or an_attempt(), a_call(rules=rules))
    assert isinstance(settlement, ToStore)
    return settlement


def let_go(outcome: Outcome, attempt: Attempt | None = None, rules: OutcomeRules = RULES) -> Response:
    settlement = settle(outcome, attempt or an_attempt(), a_call(rules=rules))
    assert isinstance(settlement, ToRelease)
    return settlement.reply


@pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429])
def test_not_begun_is_released(status: int) -> None:
    """By these a server says that it did not do it: the answer is sent and nothing is kept."""
    answer = Response(status, ((b"x-why", b"because"),), b"no")
    assert let_go(Responded(answer)) == answer


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize(
    ("path", "location", "free"),
    [
        ("/orders/", b"http://shop.example/orders", True),
        ("/orders", b"/orders/?a=1", True),
        ("/or ders", b"/or%20ders/", True),
        ("/orders", b"http://other.example/carts", False),
        ("/orders", b"/orders", False),
    ],
)
def test_a_redirect_to_the_other_form_of_a_path(status: int, path: str, location: bytes, free: bool) -> None:
    """A router sends it before any handler: the client follows with the same key.  Others are outcomes."""
    call = a_call(rules=RULES)
    call = call._replace(claim=call.claim._replace(target=path))
    settled = settle(Responded(Response(status, ((b"location", location),))), an_attempt(), call)
    assert isinstance(settled, ToRelease) == free


def test_503_with_retry_after_is_released() -> None:
    """Only a server that says when to come back says that it did nothing."""
    answer = Response(503, RETRY_AFTER, b"later")
    assert let_go(Responded(answer)) == answer


def test_503_without_retry_after_is_a_failure() -> None:
    """Nobody knows what happened before it gave up."""
    assert kept(Responded(Response(503))).final.state == "failed"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 400, 402, 404, 409])
@pytest.mark.parametrize("headers", [(), RETRY_AFTER])
def test_the_effect_is_settled(status: int, headers: Headers) -> None:
    """Every other 2xx, 3xx and 4xx is completed, with the very answer as its reply."""
    answer = Response(status, headers, b"body")
    settled = kept(Responded(answer))
    assert (settled.final.state, settled.final.omitted) == ("completed", False)
    assert settled.final.response == answer
    assert settled.reply == answer
    assert settled.error is None


@pytest.mark.parametrize("status", [405, 410, 411, 412, 414, 415, 416, 417, 418, 421, 422, 423, 424, 428])
def test_every_other_4xx_is_settled_too(status: int) -> None:
    """Only the listed ones mean that nothing was done."""
    assert kept(Responded(Response(status))).final.state == "completed"


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 505, 507, 511, 599])
def test_5xx_is_a_failure(status: int) -> None:
    """It is kept as it was answered, and not raised: the handler did answer."""
    answer = Response(status, (), b"broke")
    settled = kept(Responded(answer))
    assert (settled.final.state, settled.final.response) == ("failed", answer)
    assert settled.reply == answer
    assert settled.error is None


def test_an_exception_is_a_failure() -> None:
    """It is kept as `handler-failed`, told to the client, and raised again for the log (F38)."""
    error = RuntimeError("secret details")
    settled = kept(Raised(error))
    assert settled.final.state == "failed"
    assert settled.final.response.status == 500
    assert b'"handler-failed"' in settled.final.response.body
    assert b"secret" not in settled.final.response.body
    assert settled.reply is not None
    assert (settled.reply.status, settled.reply.body) == (500, settled.final.response.body)
    assert settled.error is error


def test_not_done_is_released() -> None:
    """The client is told why, and when to come back."""
    reply = let_go(Raised(NotDone("no stock yet", retry_after=2.5)))
    assert reply.status == 503
    assert b'"not-done"' in reply.body
    assert b"no stock yet" in reply.body
    assert (b"retry-after", b"3") in reply.headers
    assert (b"retry-after-ms", b"2500") in reply.headers
    assert (b"x-should-retry", b"true") in reply.headers


@pytest.mark.parametrize("after", [float("inf"), float("nan"), -1.0, 0.0])
def test_not_done_with_an_odd_delay_is_still_released(after: float) -> None:
    """What a handler computed wrongly must not turn "nothing happened" into a held key."""
    assert let_go(Raised(NotDone(retry_after=after))).status == 503


def test_retry_on_is_released() -> None:
    """Exceptions that the route lists, and those derived from them, mean that nothing happened."""
    rules = RULES._replace(retry_on=(TimeoutError, Unreachable))
    for error in (TimeoutError(), Unreachable(), StillUnreachable()):
        reply = let_go(Raised(error), rules=rules)
        assert reply.status == 503
        assert b'"not-done"' in reply.body
    assert kept(Raised(RuntimeError()), rules=rules).final.state == "failed"


def test_not_started_is_released_with_its_own_answer() -> None:
    """After `not_started()` the handler's own answer is sent, whatever its status."""
    for status in (200, 400, 422, 500):
        answer = Response(status, (), b"own")
        assert let_go(Responded(answer), an_attempt(not_started=True)) == answer


@pytest.mark.parametrize("why", ["derived", "checkpointed"])
def test_not_done_is_not_believed_afterwards(why: str) -> None:
    """A derived key may have been used, and bytes that were sent cannot be unsaid: that is a failure."""
    attempt = an_attempt(derived=why == "derived", checkpointed=why == "checkpointed")
    settled = kept(Raised(NotDone("really")), attempt)
    assert settled.final.state == "failed"
    assert b'"handler-failed"' in settled.final.response.body
    assert isinstance(settled.error, NotDone)
    rules = RULES._replace(retry_on=(Unreachable,))
    assert kept(Raised(Unreachable()), attempt, rules).final.state == "failed"


@pytest.mark.parametrize("why", ["derived", "checkpointed"])
def test_not_started_is_not_believed_afterwards(why: str) -> None:
    """The answer is kept as if nothing had been said."""
    attempt = an_attempt(derived=why == "derived", checkpointed=why == "checkpointed", not_started=True)
    assert kept(Responded(Response(400)), attempt).final.state == "completed"
    assert kept(Responded(Response(500)), attempt).final.state == "failed"


def test_a_streamed_answer_leaves_a_tombstone() -> None:
    """It has gone out already: status and headers are kept, and nothing is left to send (F34)."""
    settled = kept(Streamed(CREATED._replace(body=b"")), an_attempt(checkpointed=True))
    assert (settled.final.state, settled.final.omitted) == ("completed", True)
    assert settled.final.response == CREATED._replace(body=b"")
    assert settled.reply is None
    assert settled.error is None


def test_a_streamed_failure_leaves_a_failed_tombstone() -> None:
    """A 5xx that was too large to hold is still a failure."""
    settled = kept(Streamed(Response(502)), an_attempt(checkpointed=True))
    assert (settled.final.state, settled.final.omitted) == ("failed", True)


def test_a_stream_that_broke_off_is_never_a_success() -> None:
    """What promised 200 and broke is kept as a failure, and its error is raised again (F35)."""
    error = ConnectionError("upstream")
    settled = kept(Streamed(Response(200), error), an_attempt(checkpointed=True))
    assert (settled.final.state, settled.final.omitted) == ("failed", False)
    assert settled.final.response.status == 500
    assert settled.reply is None
    assert settled.error is error


@pytest.mark.parametrize(
    ("answer", "rules"),
    [
        (Response(200, (), b"12345"), SMALL),
        (Response(200, ((b"content-type", b"text/event-stream"),), b"data: 1"), RULES),
        (Response(200, ((b"content-type", b"Text/Event-Stream; charset=utf-8"),), b"data: 1"), RULES),
        (Response(200, (), b"secret"), RULES._replace(no_store=True)),
    ],
    ids=["too large", "event stream", "event stream with parameters", "no_store"],
)
def test_what_cannot_be_stored_leaves_a_tombstone(answer: Response, rules: OutcomeRules) -> None:
    """The client gets all of it now; the record gets its head, and blocks another execution."""
    settled = kept(Responded(answer), rules=rules)
    assert settled.final == Final("completed", answer._replace(body=b""), omitted=True)
    assert settled.reply == answer


def test_exactly_the_limit_is_kept() -> None:
    """The limit is the last size that fits."""
    settled = kept(Responded(Response(200, (), b"1234")), rules=SMALL)
    assert (settled.final.response.body, settled.final.omitted) == (b"1234", False)


def test_a_failure_is_a_tombstone_too() -> None:
    """An error page under `no_store` is not kept either, and is still a failure."""
    settled = kept(Responded(Response(500, (), b"trace")), rules=RULES._replace(no_store=True))
    assert settled.final == Final("failed", Response(500), omitted=True)


def test_what_is_kept_is_filtered() -> None:
    """The client gets its cookie; the record does not (S9)."""
    answer = Response(200, ((b"set-cookie", b"s=1"), (b"etag", b'"1"')), b"x")
    settled = kept(Responded(answer))
    assert settled.final.response.headers == ((b"etag", b'"1"'),)
    assert settled.reply == answer
    streamed = kept(Streamed(answer))
    assert streamed.final.response.headers == ((b"etag", b'"1"'),)
