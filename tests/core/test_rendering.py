"""What clients are told: replays, refusals, and the handler's own answers."""

import json
import logging
from typing import Any

import pytest

from retrysafe import Guard, scopes
from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import settle
from retrysafe._core.model import Header, Headers, Record, Response
from retrysafe._core.problems import Code, Problem, ProblemDetails
from retrysafe._core.steps import Call, Responded, Result, ToStore
from retrysafe._http.exchange import Exchange
from retrysafe._http.render import describe, problem_status
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


def described(exchange: Exchange, problem: Problem) -> Response:
    return describe(exchange.request, exchange.rules, problem)


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


# --- Whether a failure may be retried


HINTED: Headers = (
    (b"etag", b'"1"'),
    (b"retry-after", b"5"),
    (b"retry-after-ms", b"5000"),
    (b"x-should-retry", b"maybe"),
)


def first(result: Result, *headers: Header, rules: Rules = RULES) -> Response:
    response = exchange(*headers, rules=rules).render(result)
    assert response is not None
    return response


@pytest.mark.parametrize(
    ("verdict", "options", "word"),
    [
        ("failed", {}, b"false"),
        ("failed", {"failed": "conflict"}, b"false"),
        ("failed", {"failed": "retry"}, b"true"),
        ("failed", {"effects": "repeatable"}, b"true"),
        ("completed", {}, b"false"),  # a large one, whose head goes out before its end is known
        ("completed", {"failed": "retry"}, b"true"),
        ("released", {}, b"true"),
        ("released", {"effects": "database"}, b"true"),
        ("unstored", {}, b"false"),
        ("unstored", {"failed": "retry"}, b"false"),
        ("unprotected", {}, b"false"),
        ("unprotected", {"failed": "retry"}, b"true"),
        ("unprotected", {"effects": "database"}, b"false"),
    ],
)
@pytest.mark.parametrize("status", [500, 502, 503, 599])
def test_a_first_failure_says_whether_to_retry(
    verdict: Any, options: dict[str, Any], word: bytes, status: int
) -> None:
    """Stored or of unknown effect: no. Rolled back, released, or harmless to run again: yes.

    The handler's own hints are replaced: it does not know what becomes of its key.  How long to wait is its
    to say, where there is something to wait for.
    """
    response = first(Result(verdict, Response(status, HINTED, b"x")), rules=the_rules(**options))
    assert values(response, b"x-should-retry") == [word]
    assert values(response, b"retry-after") == ([b"5"] if word == b"true" else [])
    assert values(response, b"retry-after-ms") == ([b"5000"] if word == b"true" else [])
    assert values(response, b"etag") == [b'"1"']


@pytest.mark.parametrize("verdict", ["completed", "released", "unstored", "unprotected"])
@pytest.mark.parametrize("status", [200, 303, 404, 429])
def test_other_first_responses_get_no_hint(verdict: Any, status: int) -> None:
    """What they say about a retry is the application's."""
    response = first(Result(verdict, Response(status, HINTED)))
    assert response.headers[: len(HINTED)] == HINTED
    assert values(response, b"x-should-retry") == [b"maybe"]


@pytest.mark.parametrize(
    ("failed", "word"), [("replay", b"false"), ("conflict", b"false"), ("retry", b"true")]
)
def test_a_raised_exception_says_whether_to_retry(failed: str, word: bytes) -> None:
    """`handler-failed` as it is made for the record, and as it goes out: once each, and the same."""
    rules = the_rules(failed=failed)
    made = described(exchange(rules=rules), Problem("handler-failed", "It failed."))
    assert values(made, b"x-should-retry") == [word]
    assert values(first(Result("failed", made), rules=rules), b"x-should-retry") == [word]


def test_a_failure_with_another_status_is_still_one() -> None:
    """A wire may send `handler-failed` as a 4xx: first response and replay say the same."""
    rules = the_rules(Wire(statuses={"handler-failed": 422}))
    made = described(exchange(rules=rules), Problem("handler-failed", "It failed."))
    assert made.status == 422
    assert values(first(Result("failed", made), rules=rules), b"x-should-retry") == [b"false"]
    again = replayed(a_record(Response(422, HINTED), failed=True), rules=rules)
    assert values(again, b"x-should-retry") == [b"false"]
    assert values(again, b"retry-after") == []


def test_hints_by_the_names_of_the_wire() -> None:
    """On first failures, replays and problems; a handler's own of either name are replaced."""
    rules = the_rules(Wire(should_retry_headers=("X-Should-Retry", "Stripe-Should-Retry")))
    stored = Response(500, ((b"stripe-should-retry", b"maybe"), (b"x-should-retry", b"maybe")), b"x")
    for response in (
        first(Result("failed", stored), rules=rules),
        replayed(a_record(stored, failed=True), rules=rules),
        first(Result("key-reused", Problem("key-reused", "x")), rules=rules),
    ):
        assert values(response, b"x-should-retry") == values(response, b"stripe-should-retry") == [b"false"]
    renamed = the_rules(Wire(should_retry_headers=("Retry-Wanted",)))
    response = first(Result("failed", Response(500)), rules=renamed)
    assert values(response, b"retry-wanted") == [b"false"]
    assert values(response, b"x-should-retry") == []


# --- What a wire adds


@pytest.mark.parametrize("sent", [b"k-1", b'"k-1"', b'"k 1";a=1'])
def test_the_key_is_sent_back_as_it_came(sent: bytes) -> None:
    """On first responses, failures and tombstones included, and on replays; in the client's own form."""
    rules = the_rules(Wire(echo_key=True))
    key = (b"idempotency-key", sent)
    own = Response(201, ((b"idempotency-key", b"the application's"),), b"x")
    for response in (
        first(Result("completed", own), key, rules=rules),
        first(Result("failed", own._replace(status=500)), key, rules=rules),
        first(Result("released", own._replace(status=429)), key, rules=rules),
        replayed(a_record(own), key, rules=rules),
        replayed(a_record(own, omitted=True), key, rules=rules),
    ):
        assert values(response, b"idempotency-key") == [sent]


@pytest.mark.parametrize("code", ["in-flight", "key-reused", "key-invalid", "store-unavailable"])
def test_problems_do_not_send_the_key_back(code: Code) -> None:
    """It may be another request's, or no key at all."""
    rules = the_rules(Wire(echo_key=True))
    response = first(Result(code, Problem(code, "x")), (b"idempotency-key", b"k-1"), rules=rules)
    assert values(response, b"idempotency-key") == []


def test_the_key_is_not_sent_back_unless_asked_for() -> None:
    """The default."""
    key = (b"idempotency-key", b"k-1")
    assert values(first(Result("completed", Response(200)), key), b"idempotency-key") == []
    assert values(replayed(a_record(Response(200)), key), b"idempotency-key") == []


def test_the_original_id_on_every_keyed_response() -> None:
    """A first response has its own id there, a replay that of the first; by one name or by two."""
    for wire, on_first, on_replay in [
        (Wire(keyed_id_header="Original-Request"), [b"original-request"],
         [b"original-request-id", b"original-request"]),
        (Wire(original_id_header="Original-Request", keyed_id_header="Original-Request"),
         [b"original-request"], [b"original-request"]),
        (Wire(), [], [b"original-request-id"]),
    ]:  # fmt: skip
        rules = the_rules(wire)
        sent = (b"x-request-id", b"this")
        own = first(Result("completed", Response(201)), sent, rules=rules)
        assert [(name, value) for name, value in own.headers if b"original" in name] == [
            (name, b"this") for name in on_first
        ]
        again = replayed(a_record(Response(201)), sent, rules=rules)
        assert [(name, value) for name, value in again.headers if b"original" in name] == [
            (name, b"first") for name in on_replay
        ]
        running = Problem("in-flight", "x", first=a_record(None))
        refused = first(Result("in-flight", running), sent, (b"idempotency-key", b"k"), rules=rules)
        assert [(name, value) for name, value in refused.headers if b"original" in name] == [
            (name, b"first") for name in on_first
        ]


@pytest.mark.parametrize(
    ("record", "id_sent"),
    [
        (None, [b"this"]),
        (a_record(Response(201, ((b"original-request-id", b"own"),))), [b"own"]),
        (a_record(Response(201, ((b"request-id", b"own"),))), [b"own"]),
        (a_record(Response(201, ((b"request-id", b"\r\nevil: 1"),))), [b"first"]),
        (a_record(None)._replace(request_id="\r\nevil: 1"), []),
    ],
)
def test_the_original_id_on_problems(record: Record | None, id_sent: list[bytes]) -> None:
    """That of the first request, as its client has seen it; its own where there is none; nothing unfit."""
    rules = the_rules(Wire(keyed_id_header="Original-Request", request_id_header="Request-Id"))
    key = (b"idempotency-key", b"k")
    problem = Problem("key-reused", "x", first=record)
    refused = first(Result("key-reused", problem), (b"request-id", b"this"), key, rules=rules)
    assert values(refused, b"original-request") == id_sent
    missing = first(Result("key-missing", Problem("key-missing", "x")), rules=rules)
    assert values(missing, b"original-request") == []


def test_a_tombstone_by_the_wire() -> None:
    """With its own status; or, if the wire says so, as 200 if it was a success."""
    for tombstone, shown in [("status", [201, 204, 303, 404, 500]), ("empty-200", [200, 200, 200, 404, 500])]:
        rules = the_rules(Wire(tombstone=tombstone))  # type: ignore[arg-type]  # one of them
        for status, expected in zip([201, 204, 303, 404, 500], shown, strict=True):
            record = a_record(Response(status), omitted=True, failed=status == 500)
            response = replayed(record, rules=rules)
            assert (response.status, values(response, b"idempotency-body")) == (expected, [b"omitted"])
            assert exchange(rules=rules).status(Result("replayed", record)) == expected
            assert replayed(record._replace(omitted=False), rules=rules).status == status


def test_the_original_id_is_the_one_that_the_handler_gave() -> None:
    """It is what the client has seen, on the first response and on every replay."""
    rules = the_rules(Wire(keyed_id_header="Original-Request"))
    own = Response(201, ((b"x-request-id", b"own"), (b"original-request", b"another's")))
    assert values(first(Result("completed", own), rules=rules), b"original-request") == [b"own"]
    stored = Response(201, ((b"original-request-id", b"own"), (b"original-request", b"another's")))
    assert values(replayed(a_record(stored), rules=rules), b"original-request") == [b"own"]


def test_headers_that_a_guard_drops_are_not_replayed() -> None:
    """Even if they were stored before it said so."""
    stored = Response(200, ((b"x-session", b"s"), (b"etag", b'"1"')))
    response = replayed(a_record(stored), rules=the_rules(drop_headers=("X-Session",)))
    assert values(response, b"x-session") == []
    assert values(response, b"etag") == [b'"1"']
    assert values(replayed(a_record(stored)), b"x-session") == [b"s"]


# --- Problems by the wire


def test_statuses_and_texts_are_wire_policy() -> None:
    """Another number and another text; the code, the type and the hints stay."""
    rules = the_rules(Wire(statuses={"key-reused": 400}, details={"in-flight": "Request is being processed"}))
    reused = Problem("key-reused", "It was used.")
    response = first(Result("key-reused", reused), rules=rules)
    assert response.status == json.loads(response.body)["status"] == problem_status(reused, rules) == 400
    assert json.loads(response.body)["detail"] == "It was used."
    assert values(response, b"x-should-retry") == [b"false"]
    response = first(Result("in-flight", Problem("in-flight", "It runs.")), rules=rules)
    assert (response.status, json.loads(response.body)["detail"]) == (409, "Request is being processed")


def test_a_missing_owner_is_told_which_header_to_send() -> None:
    """Unless the wire has a text of its own."""
    by_tenant = scopes.header("X-Tenant")
    problem = Problem("principal-required", "It is not known whose key this is.")
    response = first(Result("principal-required", problem), rules=the_rules(scope=by_tenant))
    assert "the header X-Tenant" in json.loads(response.body)["detail"]
    wire = Wire(details={"principal-required": "Sign in."})
    response = first(Result("principal-required", problem), rules=the_rules(wire, scope=by_tenant))
    assert json.loads(response.body)["detail"] == "Sign in."


def envelope(problem: ProblemDetails) -> dict[str, object]:
    return {"error": {"type": "idempotency_error", "message": problem.detail}}


def test_a_body_in_the_applications_own_form() -> None:
    """Of refusals, and of the failure that is made for the record."""
    rules = the_rules(Wire(render_problem=envelope))
    refused = first(Result("key-reused", Problem("key-reused", "It was used.")), rules=rules)
    failed = described(exchange(rules=rules), Problem("handler-failed", "It failed."))
    for response, message in ((refused, "It was used."), (failed, "It failed.")):
        assert json.loads(response.body) == {"error": {"type": "idempotency_error", "message": message}}
        assert values(response, b"content-type") == [b"application/json"]


def test_a_mistake_in_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Clients get the standard problem, all of them; the log has one line with the reason."""

    def broken(problem: ProblemDetails) -> dict[str, object]:
        raise KeyError(problem.code)

    guard = Guard("memory:", scope=scopes.public(), wire=Wire(render_problem=broken))
    with caplog.at_level(logging.ERROR, "retrysafe"):
        for rules in (guard.rules, guard.compile({"lease": 5}), guard.rules):
            response = first(Result("draining", Problem("draining", "It stops.")), rules=rules)
            assert json.loads(response.body)["code"] == "draining"
            assert values(response, b"content-type") == [b"application/problem+json"]
    assert len(caplog.records) == 1
    assert "render_problem" in caplog.text
    assert "KeyError('draining')" in caplog.text
