"""What clients are told: replays, refusals, and the handler's own answers."""

import json

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import settle
from retrysafe._core.model import Header, Headers, Record, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Call, Responded, Result, ToStore
from retrysafe._http.exchange import Exchange
from retrysafe.policy import Rules, Wire
from retrysafe.stores.memory import _Row
from tests.core.values import a_claim, a_request, a_route, the_rules

RULES = the_rules()


def exchange(*headers: Header, rules: Rules = RULES, scheme: str = "http") -> Exchange:
    return Exchange(a_request(*headers, scheme=scheme), a_route(rules))


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


# --- Replays


def test_a_replay_is_what_was_kept() -> None:
    """Status, headers in their order and number, and the exact bytes; marked, with both ids (I4)."""
    stored: Headers = ((b"content-type", b"image/png"), (b"link", b"<a>"), (b"link", b"<b>"))
    response = replayed(a_record(Response(201, stored, b"\x89PNG\x00\xff")), (b"x-request-id", b"second"))
    assert response.status == 201
    assert response.body == b"\x89PNG\x00\xff"
    assert response.headers == (
        *stored,
        (b"content-length", b"6"),
        (b"idempotent-replayed", b"true"),
        (b"original-request-id", b"first"),
        (b"x-request-id", b"second"),
    )


@pytest.mark.parametrize("status", [204, 304])
def test_no_content_has_no_length(status: int) -> None:
    """RFC 9110 section 8.6."""
    assert values(replayed(a_record(Response(status))), b"content-length") == []


@pytest.mark.parametrize("status", [200, 303, 404])
def test_an_empty_body_has_one(status: int) -> None:
    """Zero is a length too."""
    assert values(replayed(a_record(Response(status))), b"content-length") == [b"0"]


def test_the_original_id_is_the_handlers_own() -> None:
    """If the application gave its answer an id, that is the one its client has seen."""
    stored = Response(200, ((b"original-request-id", b"from the handler"),))
    assert values(replayed(a_record(stored)), b"original-request-id") == [b"from the handler"]


def test_a_tombstone() -> None:
    """The original status and headers, an empty body, and a header that says why (F34)."""
    stored = Response(200, ((b"content-type", b"text/csv"),))
    response = replayed(a_record(stored, omitted=True))
    assert (response.status, response.body) == (200, b"")
    assert values(response, b"idempotency-body") == [b"omitted"]
    assert values(response, b"content-type") == [b"text/csv"]
    assert values(replayed(a_record(stored)), b"idempotency-body") == []


def test_a_replayed_failure_is_not_to_be_retried() -> None:
    """A retry would get the same answer again, so the hints that were kept with it are withdrawn."""
    hints: Headers = ((b"retry-after", b"5"), (b"retry-after-ms", b"5000"), (b"x-should-retry", b"true"))
    response = replayed(a_record(Response(502, ((b"etag", b'"1"'), *hints), b"x"), failed=True))
    assert values(response, b"x-should-retry") == [b"false"]
    assert values(response, b"retry-after") == values(response, b"retry-after-ms") == []
    assert values(response, b"etag") == [b'"1"']


def test_hints_of_other_answers_are_the_applications() -> None:
    """A 202 with `Retry-After` means something else, and keeps it."""
    response = replayed(a_record(Response(202, ((b"retry-after", b"5"),))))
    assert values(response, b"retry-after") == [b"5"]
    assert values(response, b"x-should-retry") == []


def test_a_record_without_a_response_is_a_failure() -> None:
    """A final record that lost its response does not bring the server down."""
    assert replayed(a_record(None, failed=True)).status == 500


def test_names_are_wire_policy() -> None:
    """A profile may call them otherwise."""
    wire = Wire(
        replayed_header="X-Again",
        original_id_header="X-First",
        request_id_header="X-Trace",
        body_header="X-Body",
    )
    response = replayed(a_record(Response(200), omitted=True), (b"x-trace", b"t-2"), rules=the_rules(wire))
    assert [name for name, _ in response.headers] == [
        b"content-length", b"x-again", b"x-first", b"x-body", b"x-trace"
    ]  # fmt: skip
    assert values(response, b"x-trace") == [b"t-2"]


def test_a_renamed_request_id_is_refreshed_too() -> None:
    """Every replay has an id of its own, by whichever name; what the handler sent is the original."""
    rules = the_rules(Wire(request_id_header="X-Trace"))
    first = exchange((b"x-trace", b"t-1"), rules=rules)
    first.start(200, [(b"X-Trace", b"t-1")])
    first.hold(b"x", last=True)
    outcome = first.outcome()
    assert isinstance(outcome, Responded)
    call = Call(a_claim(), rules.policy, rules.outcome, lambda _: Response(500))
    settled = settle(outcome, Attempt(call.claim, 1), call)
    assert isinstance(settled, ToStore)
    response = replayed(a_record(settled.final.response), (b"x-trace", b"t-2"), rules=rules)
    assert values(response, b"x-trace") == [b"t-2"]


# --- Other answers


def test_our_own_answer_is_sent_as_it_is() -> None:
    """With an id, if it has none."""
    own = Response(201, ((b"set-cookie", b"s=1"),), b"x")
    response = exchange((b"x-request-id", b"r")).render(Result("completed", own))
    assert response == Response(201, ((b"set-cookie", b"s=1"), (b"x-request-id", b"r")), b"x")


def test_the_handlers_request_id_is_respected() -> None:
    """There is one, and it is the handler's."""
    own = Response(200, ((b"x-request-id", b"own"),))
    response = exchange((b"x-request-id", b"r")).render(Result("completed", own))
    assert response == own


def test_an_unstored_answer_is_marked() -> None:
    """`Idempotency-Stored: false`, and only there."""
    unstored = exchange().render(Result("unstored", Response(200), stored=False))
    assert unstored is not None
    assert values(unstored, b"idempotency-stored") == [b"false"]
    stored = exchange().render(Result("completed", Response(200)))
    assert stored is not None
    assert values(stored, b"idempotency-stored") == []


def test_nothing_to_tell() -> None:
    """It has gone out already, or nobody listens."""
    assert exchange().render(Result("gone", None)) is None


def test_a_problem_is_described() -> None:
    """With the address of this service's own specification, and the request's id."""
    response = exchange((b"host", b"api.test"), (b"x-request-id", b"r"), scheme="https").render(
        Result("in-flight", Problem("in-flight", "It runs."))
    )
    assert response is not None
    assert response.status == 409
    assert json.loads(response.body)["type"] == "https://api.test/idempotency#in-flight"
    assert values(response, b"x-request-id") == [b"r"]
    assert values(response, b"idempotent-replayed") == []
