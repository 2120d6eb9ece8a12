"""The catalogue of refusals, and how one of them is written on the wire."""

import json
from typing import get_args

import pytest

from retrysafe._core.problems import CATALOGUE, HINTS, Code, Problem, render, retry_hints

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
    "draining": (503, True),
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
    hints = {name: value for name, value in headers.items() if name in HINTS}
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
    """The status that the first request was answered with."""
    response = render(Problem("previously-failed", "It failed.", previous_status=502), SPECIFICATION)
    assert json.loads(response.body)["previous_status"] == 502


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
