"""What a service publishes about its keys, made from the rules that are in force."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from retrysafe import scopes
from retrysafe._core.model import Request
from retrysafe._core.problems import CATALOGUE
from retrysafe._http import specification
from retrysafe.policy import Rules, Wire
from tests.core.values import a_request, the_rules

JSON = (b"accept", b"application/json")


def document(rules: Rules) -> Any:
    response = specification.respond(a_request(JSON, method="GET"), rules)
    assert dict(response.headers)[b"content-type"] == b"application/json"
    return json.loads(response.body)


def page(rules: Rules) -> str:
    response = specification.respond(a_request((b"accept", b"text/html"), method="GET"), rules)
    assert dict(response.headers)[b"content-type"] == b"text/html; charset=utf-8"
    return response.body.decode()


class Reader(HTMLParser):
    """Collects ids and tags, and complains about tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids.extend(value for name, value in attrs if name == "id" and value is not None)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_both_forms() -> None:
    """A page for people, JSON for programs, and caches are told that they differ."""
    for headers in ((), (JSON,), ((b"accept", b"*/*"),)):
        response = specification.respond(a_request(*headers, method="GET"), the_rules())
        told = dict(response.headers)
        assert response.status == 200
        assert told[b"content-length"] == b"%d" % len(response.body)
        assert told[b"vary"] == b"accept"


def allows(_: Request) -> bool:
    return True


# Under these, every problem that there is may be sent.
EVERYTHING: dict[str, Any] = {
    "scope": scopes.header("X-Tenant"),
    "required": True,
    "failed": "conflict",
    "reauthorise": allows,
}


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_problem_is_in_it(code: str) -> None:
    """With its status, title and advice; and the page has the anchor that `type` points to."""
    kind = CATALOGUE[code]  # type: ignore[index]
    rules = the_rules(**EVERYTHING)
    assert document(rules)["problems"][code] == {
        "status": kind.status,
        "title": kind.title,
        "retry": bool(kind.retry),
        "advice": kind.advice,
    }
    text = page(rules)
    assert code in read(text).ids
    assert kind.title in text


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("key-missing", {"required": False}),
        ("key-missing", {"required": "warn"}),
        ("principal-required", {"scope": scopes.public()}),
        ("principal-required", {"scope": scopes.first_of(scopes.user, scopes.public())}),
        ("replay-forbidden", {"reauthorise": None}),
        ("previously-failed", {"failed": "replay"}),
        ("previously-failed", {"failed": "retry"}),
        ("outcome-unknown", {"effects": "database", "failed": "retry"}),
        ("previously-failed", {"effects": "database", "failed": "retry"}),
    ],
)
def test_a_problem_that_cannot_happen_is_not_in_it(code: str, options: dict[str, Any]) -> None:
    """A client need not prepare for what it is never sent."""
    rules = the_rules(**EVERYTHING | options)
    assert code not in document(rules)["problems"]
    assert code not in read(page(rules)).ids


def with_routes(rules: Rules, routes: dict[str, Rules]) -> Any:
    return json.loads(specification.respond(a_request(JSON, method="GET"), rules, routes).body)


def test_routes_say_what_they_do_differently() -> None:
    """And nothing else; but each problem of theirs is listed, because its `type` leads to the same page."""
    routes = {
        "/payments": the_rules(required=True, failed="conflict"),
        "/search": the_rules(effects="repeatable"),
        "/same": the_rules(),
    }
    told = with_routes(the_rules(), routes)
    assert {path: sorted(section) for path, section in told["routes"].items()} == {
        "/payments": ["key", "states", "stored"],
        "/search": ["states", "stored"],
        "/same": [],
    }
    assert told["routes"]["/payments"]["key"]["required"] is True
    assert {"key-missing", "previously-failed"} <= set(told["problems"])
    assert "replay-forbidden" not in told["problems"]
    text = specification.respond(a_request(method="GET"), the_rules(), routes).body.decode()
    ids = read(text).ids
    assert sorted(ids) == sorted(told["problems"])


@pytest.mark.parametrize(
    ("options", "retry"),
    [
        ({}, False),
        ({"failed": "retry"}, True),
        ({"effects": "database"}, True),
        ({"failed": "conflict"}, False),
    ],
)
def test_whether_a_failure_may_be_retried(options: dict[str, Any], retry: bool) -> None:
    """As its own hint says; where routes differ, only the response itself can say."""
    assert document(the_rules(**options))["problems"]["handler-failed"]["retry"] is retry
    told = with_routes(the_rules(**options), {"/other": the_rules(failed="retry")})
    assert told["problems"]["handler-failed"]["retry"] is retry


def test_anchors_are_unique() -> None:
    """A `type` leads to one place."""
    ids = read(page(the_rules(**EVERYTHING))).ids
    wanted = [id for id in ids if id in CATALOGUE]
    assert sorted(wanted) == sorted(CATALOGUE)


def test_it_says_what_is_in_force() -> None:
    """Change a rule, and the document changes with it."""
    rules = the_rules(
        Wire(
            key_header="X-Key",
            longest_key=99,
            shortest_public_key=33,
            methods=frozenset({"POST", "PUT"}),
            replayed_header="X-Again",
            body_header="X-Body",
        ),
        required=True,
        retention=7 * 86400,
        failed="conflict",
        abandoned="retry",
        max_response=12345,
        in_flight="wait",
        wait_for=5,
        fingerprint="json",
    )
    said = document(rules)
    assert said["key"]["header"] == "X-Key"
    assert said["key"]["methods"] == ["POST", "PUT"]
    assert said["key"]["required"] is True
    assert "99" in said["key"]["format"]
    assert "33" in said["key"]["public"]
    assert said["retention"]["seconds"] == 7 * 86400
    assert "7 days" in said["retention"]["text"]
    assert "previously-failed" in said["stored"]["other 5xx"]
    assert "runs again" in said["stored"]["abandoned"]
    assert "12345" in said["stored"]["bodies"]
    assert "X-Body" in said["stored"]["bodies"]
    assert "5 seconds" in said["concurrent"]
    assert "RFC 8785" in said["comparison"]
    assert "X-Again" in said["headers"]


def test_the_defaults() -> None:
    """What most services will publish."""
    said = document(the_rules())
    assert said["key"]["required"] is False
    assert "24 hours" in said["retention"]["text"]
    assert "409" in said["concurrent"]
    assert "same response" in said["stored"]["other 5xx"]
    assert "outcome-unknown" in said["stored"]["abandoned"]
    assert "30 days" in said["stored"]["abandoned"]
    assert "exact bytes" in said["comparison"]
    assert said["states"].keys() == {"in_progress", "completed", "failed"}
    assert said["headers"].keys() == {
        "Idempotent-Replayed", "Original-Request-Id", "X-Request-Id", "Idempotency-Body",
        "Idempotency-Stored", "X-Should-Retry",
    }  # fmt: skip


def test_numbers_are_written_as_people_write_them() -> None:
    """86400, and not 86400.0."""
    text = json.dumps(document(the_rules()))
    assert '"seconds": 86400,' in text
    assert ".0" not in text
    assert document(the_rules(retention=1.5))["retention"]["seconds"] == 1.5


@pytest.mark.parametrize(
    ("scope", "public", "sentence"),
    [
        (scopes.header("X-Tenant"), None, "owner of the request"),
        (scopes.user, None, "owner of the request"),
        (scopes.public(), "At least 16 characters", "All clients share"),
        (
            scopes.first_of(scopes.user, scopes.public()),
            "Where the owner is not known, at least 16",
            "without a",
        ),
    ],
)
def test_public_keys_are_mentioned_where_there_are_any(scope: Any, public: str | None, sentence: str) -> None:
    """The rule about their length, and whose they are."""
    said = document(the_rules(scope=scope))
    assert (said["key"].get("public") or "").startswith(public or "")
    assert ("public" in said["key"]) is (public is not None)
    assert sentence in said["scope"]


def test_what_holds_in_a_transaction() -> None:
    """No failure is stored, nothing is left unknown, no stream is sent, no response goes out unstored."""
    said = document(the_rules(effects="database"))
    assert "Rolled back" in said["stored"]["other 5xx"]
    assert "rolled back" in said["stored"]["abandoned"]
    assert "unknown" not in json.dumps(said)
    assert "events" not in said["stored"]["bodies"]
    assert "failed" not in said["states"]
    assert "Idempotency-Stored" not in said["headers"]
    assert "Idempotency-Stored" in document(the_rules(effects="database", store_down="run"))["headers"]


def test_it_follows_the_wire() -> None:
    """Statuses, names of headers and the word for a completed record are those that clients will see."""
    wire = Wire(
        statuses={"key-reused": 400, "in-flight": 423},
        should_retry_headers=("Stripe-Should-Retry",),
        keyed_id_header="Original-Request",
        echo_key=True,
        completed_word="succeeded",
    )
    said = document(the_rules(wire))
    assert said["problems"]["key-reused"]["status"] == 400
    assert "423" in said["concurrent"]
    assert "409" not in said["concurrent"]
    assert {"Stripe-Should-Retry", "Original-Request", "Idempotency-Key"} <= said["headers"].keys()
    assert "X-Should-Retry" not in said["headers"]
    assert "succeeded" in said["states"]
    assert "completed" not in json.dumps(said)


def test_bodies_that_are_not_stored() -> None:
    """`no_store`: and so no limit is named."""
    bodies = document(the_rules(no_store=True))["stored"]["bodies"]
    assert bodies.startswith("Not stored")
    assert "bytes" not in bodies


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"effects": "database"}, {"in_flight": "wait"}])
def test_its_words(options: dict[str, Any]) -> None:
    """The words of the documentation, which a reader searches for."""
    text = json.dumps(document(the_rules(**options))).lower()
    for word in ("answer", "nobody", "somebody", "everybody", "whoever", "kept", "broken off", "told"):
        assert not re.search(rf"\b{word}\b", text), word


@pytest.mark.parametrize("kind", ["raw", "json", ("customer.id",), None, lambda request, body: body])
def test_every_fingerprint_is_described(kind: Any) -> None:
    """In words, and never as the name of a function."""
    comparison = document(the_rules(fingerprint=kind))["comparison"]
    assert comparison.endswith(".")
    assert "function" not in comparison
    assert "lambda" not in comparison


@pytest.mark.parametrize("failed", ["replay", "retry", "conflict"])
@pytest.mark.parametrize("abandoned", ["hold", "retry"])
def test_every_policy_is_described(failed: str, abandoned: str) -> None:
    """No combination of choices is without its sentences."""
    stored = document(the_rules(failed=failed, abandoned=abandoned))["stored"]
    assert stored["other 5xx"].endswith(".")
    assert stored["abandoned"].endswith(".")


def test_the_page_is_well_formed() -> None:
    """And has no script in it."""
    reader = read(page(the_rules()))
    assert {"section", "dl", "dt", "dd"} <= reader.tags
    assert "script" not in reader.tags


def test_the_page_says_what_the_document_says() -> None:
    """They are one document in two forms."""
    text = re.sub(r"<[^>]*>", "\0", page(the_rules(**EVERYTHING)))
    for kind in CATALOGUE.values():
        assert kind.advice.replace("'", "&#x27;") in text


def test_all_texts_are_escaped() -> None:
    """A name that an application chose cannot become markup (CWE-79)."""
    hostile = '"><script>alert(1)</script>&'
    wire = Wire()._replace(key_header=hostile, body_header=hostile, replayed_header=hostile)
    text = page(the_rules()._replace(wire=wire))
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text
    assert "script" not in read(text).tags
    assert hostile in str(document(the_rules()._replace(wire=wire)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.0, "1 second"),
        (2.0, "2 seconds"),
        (90.0, "1.5 minutes"),
        (60.0, "1 minute"),
        (3600.0, "1 hour"),
        (5400.0, "1.5 hours"),
        (86400.0, "24 hours"),
        (172800.0, "2 days"),
        (30 * 86400.0, "30 days"),
        (0.5, "0.5 seconds"),
    ],
)
def test_durations_read_like_sentences(seconds: float, text: str) -> None:
    """A day is said as 24 hours: that is how people compare it."""
    assert specification._duration(seconds) == text
