"""The catalogue of refusals, and how one of them is written on the wire."""

import json
from typing import Any, get_args

import pytest

from retrysafe._core.problems import (
    CATALOGUE,
    STANDARD,
    WAITS,
    Code,
    Previous,
    Problem,
    ProblemDetails,
    render,
    retry_hints,
    stored_code,
)

SPECIFICATION = "https://api.test/idempotency"

# The table of the design, once more and by hand.
STATUS_AND_RETRY: dict[Code, tuple[int, bool | None]] = {
    "key-missing": (400, None),
    "key-invalid": (400, None),
    "principal-required": (400, None),
    "replay-forbidden": (403, None),
    "body-too-large": (413, None),
    "in-flight": (409, True),
    "outcome-unknown": (409, False),
    "previously-failed": (409, False),
    "key-reused": (422, False),
    "handler-failed": (500, False),
    "not-done": (503, True),
    "store-unavailable": (503, True),
    "store-reset": (503, True),
    "draining": (503, True),
    "signature-invalid": (401, None),
    "payload-invalid": (422, None),
    "subject-unknown": (404, None),
}


def test_every_code_is_in_the_catalogue() -> None:
    """And has the status and the hint that the design gives it."""
    assert set(CATALOGUE) == set(get_args(Code))
    assert {code: (kind.status, kind.retry) for code, kind in CATALOGUE.items()} == STATUS_AND_RETRY


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_problem_on_the_wire(code: Code) -> None:
    """RFC 9457: type, constant title, status, detail; and our code, uncached."""
    response = render(Problem(code, "What happened.", 2.0), SPECIFICATION)
    kind = CATALOGUE[code]
    assert response.status == kind.status
    assert json.loads(response.body) == {
        "type": f"{SPECIFICATION}#{code}",
        "title": kind.title,
        "status": kind.status,
        "detail": "What happened.",
        "code": code,
    }
    headers = dict(response.headers)
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"content-length"] == b"%d" % len(response.body)
    assert headers[b"cache-control"] == b"no-store"
    hints = {name: value for name, value in headers.items() if name in (*WAITS, b"x-should-retry")}
    match kind.retry:
        case None:
            assert hints == {}
        case False:
            assert hints == {b"x-should-retry": b"false"}
        case True:
            assert hints == {
                b"retry-after": b"2",
                b"retry-after-ms": b"2000",
                b"x-should-retry": b"true",
            }


@pytest.mark.parametrize("code", CATALOGUE)
def test_titles_and_advice_are_there(code: Code) -> None:
    """Short titles without a full stop, and advice in sentences."""
    kind = CATALOGUE[code]
    assert kind.title
    assert not kind.title.endswith(".")
    assert kind.advice.endswith(".")


def test_titles_tell_problems_apart() -> None:
    """A client that shows only the title shows which problem it was."""
    assert len({kind.title for kind in CATALOGUE.values()}) == len(CATALOGUE)


def test_a_conflict_carries_the_previous_failure() -> None:
    """The status that the first request was answered with, which problem it was if it was ours, and when."""
    at = "2026-01-02T03:04:05.678Z"
    for previous, shown in [
        (Previous(500, "handler-failed", at), {"status": 500, "code": "handler-failed", "at": at}),
        (Previous(502, None, at), {"status": 502, "at": at}),
        (Previous(None, None, None), {}),
    ]:
        response = render(Problem("previously-failed", "It failed.", previous=previous), SPECIFICATION)
        assert json.loads(response.body)["previous"] == shown


def test_other_problems_have_no_previous_failure() -> None:
    """There was none, or it is not known."""
    assert "previous" not in json.loads(render(Problem("in-flight", "It runs."), SPECIFICATION).body)


@pytest.mark.parametrize(
    ("after", "seconds", "milliseconds"),
    [
        (0.0, b"1", b"1"),
        (-5.0, b"1", b"1"),
        (0.0001, b"1", b"1"),
        (0.2, b"1", b"200"),
        (1.0, b"1", b"1000"),
        (1.001, b"2", b"1001"),
        (29.5, b"30", b"29500"),
    ],
)
def test_hints_are_whole_and_never_zero(after: float, seconds: bytes, milliseconds: bytes) -> None:
    """RFC 9110 section 10.2.3 knows whole seconds only; rounded up, and zero would be a busy loop."""
    hints = dict(retry_hints(True, after))
    assert (hints[b"retry-after"], hints[b"retry-after-ms"]) == (seconds, milliseconds)


def test_a_hostile_detail_stays_inside_the_body() -> None:
    """Whatever a handler says becomes one JSON string, in ASCII."""
    detail = 'a "quote", a line\r\nbreak, \x00, é and a lone \ud800'
    response = render(Problem("not-done", detail), SPECIFICATION)
    assert json.loads(response.body)["detail"] == detail
    assert response.body.isascii()
    assert b"\n" not in response.body


# --- a wire's own presentation


def test_a_text_of_the_wire_replaces_the_occurrences() -> None:
    """A profile whose clients read the text sends the text that they know."""
    presentation = STANDARD._replace(details={"in-flight": "Request is being processed"})
    told = json.loads(render(Problem("in-flight", "It runs."), SPECIFICATION, presentation).body)
    assert told["detail"] == "Request is being processed"
    told = json.loads(render(Problem("draining", "It stops."), SPECIFICATION, presentation).body)
    assert told["detail"] == "It stops."


def test_hints_by_other_names() -> None:
    """Each name of the wire says the same."""
    names = (b"x-should-retry", b"stripe-should-retry")
    presentation = STANDARD._replace(should_retry=names)
    for code, word in (("in-flight", b"true"), ("key-reused", b"false")):
        sent = dict(render(Problem(code, "x"), SPECIFICATION, presentation).headers)  # type: ignore[arg-type]
        assert [sent[name] for name in names] == [word, word]
    assert retry_hints(False, 0.0, ()) == ()


def test_an_envelope_of_the_applications_own() -> None:
    """It is given all that there is to say, and what it returns is the body, as plain JSON."""
    given: list[ProblemDetails] = []

    def envelope(problem: ProblemDetails) -> dict[str, object]:
        given.append(problem)
        return {"error": {"type": "idempotency_error", "message": problem.detail}}

    presentation = STANDARD._replace(envelope=envelope)
    response = render(Problem("key-reused", "It was used."), SPECIFICATION, presentation)
    assert json.loads(response.body) == {"error": {"type": "idempotency_error", "message": "It was used."}}
    sent = dict(response.headers)
    assert sent[b"content-type"] == b"application/json"
    assert sent[b"content-length"] == b"%d" % len(response.body)
    assert sent[b"cache-control"] == b"no-store"
    assert sent[b"x-should-retry"] == b"false"
    title = CATALOGUE["key-reused"].title
    url = f"{SPECIFICATION}#key-reused"
    assert given == [ProblemDetails("key-reused", 422, title, "It was used.", url, False, None, None)]
    previous = Previous(500, None, None)
    render(Problem("in-flight", "It runs.", 2.5, previous), SPECIFICATION, presentation)
    assert (given[1].retry, given[1].retry_after, given[1].previous) == (True, 2.5, previous)


def raises(_: ProblemDetails) -> dict[str, object]:
    raise KeyError("a mistake in the application")


@pytest.mark.parametrize(
    "envelope",
    [
        raises,
        lambda _: None,
        lambda _: "text",
        lambda _: [1],
        lambda _: {"at": object()},
        lambda _: {"wait": float("nan")},
        lambda _: {(1, 2): "x"},
    ],
)
def test_an_envelope_that_fails_costs_nothing(envelope: Any) -> None:
    """The client gets the standard problem, and the mistake is reported."""
    reported: list[Exception] = []
    presentation = STANDARD._replace(envelope=envelope, report=reported.append)
    problem = Problem("in-flight", "It runs.")
    assert render(problem, SPECIFICATION, presentation) == render(problem, SPECIFICATION)
    assert len(reported) == 1


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_stored_problem_is_recognised(code: Code) -> None:
    """So that a conflict can say which one it was."""
    assert stored_code(render(Problem(code, "x"), SPECIFICATION)) == code


def test_a_response_of_the_applications_own_is_not_taken_for_ours() -> None:
    """Whatever it looks like, and however large it is."""
    ours = render(Problem("handler-failed", "x"), SPECIFICATION)
    for headers, body in [
        (((b"content-type", b"application/json"),), ours.body),
        ((), ours.body),
        (ours.headers, b"not JSON"),
        (ours.headers, b"\xff"),
        (ours.headers, b"[]"),
        (ours.headers, b"[" * 4096),
        (ours.headers, b'{"code": "out-of-stock", "type": "https://shop.example/problems#out-of-stock"}'),
        (ours.headers, b'{"code": "handler-failed", "type": "about:blank"}'),
        (ours.headers, b'{"code": ["handler-failed"]}'),
        (ours.headers, ours.body + b" " * 4096),
    ]:
        assert stored_code(ours._replace(headers=headers, body=body)) is None
