"""What `assert_idempotent` says about applications that are not idempotent, to the letter."""

import re
from pathlib import Path
from typing import Any

import pytest

from retrysafe.testing import assert_idempotent
from tests.testing import broken_shops as shops

KEY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ALICE = {"X-User": "alice"}
BOB = {"headers": {"X-User": "bob"}}


def check(shop: shops.Shop, *, count: bool = True, **how: Any) -> Any:
    effects = (lambda: len(shop.runs)) if count else None
    how = {"json": {"amount": 5}, "headers": ALICE, **how}
    return assert_idempotent(shop.client, "POST", "/pay", effects=effects, **how)


def refused(shop: shops.Shop, **how: Any) -> list[str]:
    """The lines of what it says; keys, which are new each time, as `KEY`."""
    with pytest.raises(AssertionError) as caught:
        check(shop, **how)
    return KEY.sub("KEY", str(caught.value)).split("\n")


@pytest.mark.parametrize("count", [True, False])
def test_a_protection_that_is_right_is_found_right(count: bool) -> None:
    """So that what is said below is about the one thing that each of the others gets wrong."""
    shop = shops.Shop()
    response = check(shop, count=count, other=BOB)
    assert (response.status_code, response.get_json()) == (201, {"number": 1})
    assert shop.runs == ["alice", "alice", "alice", "bob"]


SENTENCES = [
    (
        shops.Unprotected,
        {},
        "the repeated request ran again: effects went from 1 to 2; is the route decorated with "
        "@idempotent, or is the middleware installed?",
    ),
    (
        shops.Unprotected,
        {"count": False},
        "the repeated request got another response than the first one, not marked as a replay "
        "(Idempotent-Replayed: true), so it probably ran again; is the route decorated with @idempotent, "
        "or is the middleware installed?",
    ),
    (
        shops.Constant,
        {"count": False},
        "the repeated request got the first response, but it is not marked as a replay: expected "
        "Idempotent-Replayed: true; if the API marks replays by another header, pass guard=, profile= or "
        "wire=, and otherwise: is the route decorated with @idempotent, or is the middleware installed?",
    ),
    (
        shops.StoresNothing,
        {},
        "the repeated request ran again: effects went from 1 to 2; is the route decorated with "
        "@idempotent, or is the middleware installed?",
    ),
    (
        shops.ForgetsMarker,
        {},
        "the repeated request got the first response, but it is not marked as a replay: expected "
        "Idempotent-Replayed: true; if the API marks replays by another header, pass guard=, profile= or "
        "wire=, and otherwise: is the route decorated with @idempotent, or is the middleware installed?",
    ),
    (
        shops.MarksEverything,
        {},
        "the first request was marked as a replay (Idempotent-Replayed: true), although its key was never "
        "sent before: is every response marked, or is the key ignored?",
    ),
    (
        shops.ChangesStatus,
        {},
        "the repeated request got 200, expected the first response again, 201",
    ),
    (
        shops.ChangesBody,
        {},
        "the repeated request got a replay with another body than the first response: it has 12 bytes and "
        "differs from byte 10 on, expected the same 13 bytes; does a layer in front of retrysafe change it?",
    ),
    (
        shops.ChangesHeader,
        {},
        "the repeated request got a replay with another header x-number than the first response: 'another', "
        "expected '1'; if a layer in front of retrysafe adds it to each response, pass "
        'ignore_headers=("x-number",)',
    ),
    (
        shops.LosesHeader,
        {},
        "the repeated request got a replay with another header x-number than the first response: none, "
        "expected '1'; if a layer in front of retrysafe adds it to each response, pass "
        'ignore_headers=("x-number",)',
    ),
    (
        shops.AddsHeader,
        {},
        "the repeated request got a replay with another header x-cache than the first response: 'hit', "
        "expected none; if a layer in front of retrysafe adds it to each response, pass "
        'ignore_headers=("x-cache",)',
    ),
    (
        shops.NeverEnds,
        {},
        "the repeated request got 409, expected the first response again, 201; the key is still held, "
        "although the first response was received: is its outcome stored?",
    ),
    (
        shops.ReplaysAnyBody,
        {},
        "another body with the same key got the first one's response, expected a refusal, 422 key-reused; if "
        "the route compares no bodies (fingerprint=None), pass changed=False, and if it compares chosen "
        "fields, pass changed={...} with another value in one of them",
    ),
    (
        shops.RunsAnotherBody,
        {},
        "another body with the same key ran: effects went from 1 to 2, expected a refusal, 422 key-reused; "
        "are bodies compared (fingerprint=)?",
    ),
    (
        shops.RunsAnotherBody,
        {"count": False},
        "another body with the same key got 201, expected a refusal, 422 key-reused; are bodies compared "
        "(fingerprint=)?",
    ),
    (
        shops.RefusesAnotherBodyItself,
        {},
        "another body with the same key was refused with 422, but not as a reused key, expected 422 "
        "key-reused; if the application refuses this body by itself, pass changed={...} with one that it "
        "accepts",
    ),
    (
        shops.ForgetsWhenMismatched,
        {},
        "the first request, repeated after another body, ran again: effects went from 1 to 2; is the route "
        "decorated with @idempotent, or is the middleware installed?",
    ),
    (
        shops.IgnoresKey,
        {},
        "the same request with a fresh key got a replay, expected a run of its own; is the key part of "
        "what is looked up?",
    ),
    (
        shops.RunsDuplicates,
        {},
        "of 5 concurrent requests with one key more than one ran: effects went from 2 to 7, expected 3; is "
        "the key reserved before the handler runs?",
    ),
    (
        shops.RunsDuplicates,
        {"count": False},
        "of 5 concurrent requests with one key 5 got a response that is not marked as a replay, expected "
        "one; is the key reserved before the handler runs?",
    ),
    (
        shops.RefusesWithoutTime,
        {},
        "of 5 concurrent requests with one key one was refused with 409 without Retry-After, expected the "
        "response of the one that ran, or a refusal that says when to come back",
    ),
    (
        shops.SharesKeys,
        {"other": BOB},
        "the other user's request with the first user's key got the first user's response, expected a run of "
        "its own; does scope= tell these two users apart?",
    ),
    (
        shops.RefusesOtherUser,
        {"other": BOB},
        "the other user's request with the first user's key was refused with 422 key-reused, expected a "
        "run of its own; does scope= tell these two users apart?",
    ),
    (
        shops.HoldsThirdKey,
        {},
        "of 5 concurrent requests with one key none ran: all were refused as in flight, expected one "
        "response; does another request hold the key?",
    ),
    (
        shops.ReplaysThirdKey,
        {},
        "of 5 concurrent requests with one key none ran: all got replays, although the key was never "
        "sent before; is the key part of what is looked up?",
    ),
    (
        shops.WorksTwice,
        {},
        "of 5 concurrent requests with one key none had the effect: effects went from 2 to 2, expected 3",
    ),
    (
        shops.WorksOnce,
        {},
        "the same request with a fresh key did not have the effect of one run: effects went from 1 to 1, "
        "expected 2",
    ),
    (
        shops.CannotStore,
        {},
        "the response to the first request could not be stored (Idempotency-Stored: false): is the store "
        "reachable? The log of the application says why",
    ),
    (
        shops.FilledTombstone,
        {"omitted": True},
        "the repeated request got a replay that says Idempotency-Body: omitted, and a body of 13 bytes; "
        "does a layer in front of retrysafe add it?",
    ),
]


@pytest.mark.parametrize(
    ("kind", "how", "sentence"),
    [pytest.param(*case, id=f"{case[0].__name__}-{n}") for n, case in enumerate(SENTENCES)],
)
def test_what_is_wrong_is_said_in_a_sentence(
    kind: type[shops.Shop], how: dict[str, Any], sentence: str
) -> None:
    assert refused(kind(), **how)[0] == sentence


def test_what_is_not_counted_is_said() -> None:
    """An `effects` that stays as it is would find every application right."""
    shop = shops.Shop()
    with pytest.raises(AssertionError) as caught:
        assert_idempotent(shop.client, "POST", "/pay", json={"amount": 5}, effects=lambda: 7)
    assert str(caught.value).split("\n")[0] == (
        "effects does not count what the first request did: it returned 7 before and 7 after it, expected "
        "more; count what the handler does, such as the rows that it inserts, by a connection that sees what "
        "was committed since"
    )
    assert len(shop.runs) == 1


def test_below_the_sentence_stands_what_was_sent_and_received() -> None:
    """With the key, to find its record; without credentials."""
    assert refused(shops.Unprotected(), params={"now": "yes"})[1:] == [
        '  sent: POST /pay?now=yes, Idempotency-Key: KEY, {"amount": 5}',
        '  received: 201 {"number": 2}',
        '  first: 201 {"number": 1}',
    ]


def test_of_concurrent_requests_every_response_is_shown() -> None:
    lines = refused(shops.RunsDuplicates())[2:]
    assert sorted(lines) == [f'  received: 201 {{"number": {number}}}' for number in range(3, 8)]


def test_a_long_body_is_cut() -> None:
    class Talkative(shops.Unprotected):
        def handle(self, request: Any) -> Any:
            response = super().handle(request)
            response.set_data("é" * 300)
            return response

    assert refused(Talkative())[2] == "  received: 201 " + "é" * 200 + "…"


def test_the_traceback_ends_in_the_test() -> None:
    """None of our frames is shown: the line that failed is the test's own."""
    with pytest.raises(AssertionError) as caught:
        check(shops.Unprotected())
    shown = caught.traceback.filter(caught)
    assert shown[-1].path == Path(__file__)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
