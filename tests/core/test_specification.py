"""What a service publishes about its keys, made from the rules that are in force."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

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


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_problem_is_in_it(code: str) -> None:
    """With its status, title and advice; and the page has the anchor that `type` points to."""
    kind = CATALOGUE[code]  # type: ignore[index]
    assert document(the_rules())["problems"][code] == {
        "status": kind.status,
        "title": kind.title,
        "retry": bool(kind.retry),
        "advice": kind.advice,
    }
    text = page(the_rules())
    assert code in read(text).ids
    assert kind.title in text


def test_anchors_are_unique() -> None:
    """A `type` leads to one place."""
    ids = read(page(the_rules())).ids
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
    assert "previously-failed" in said["kept"]["other 5xx"]
    assert "runs again" in said["kept"]["broken off"]
    assert "12345" in said["kept"]["bodies"]
    assert "X-Body" in said["kept"]["bodies"]
    assert "5 seconds" in said["concurrent"]
    assert "RFC 8785" in said["comparison"]
    assert "X-Again" in said["headers"]


def test_the_defaults() -> None:
    """What most services will publish."""
    said = document(the_rules())
    assert said["key"]["required"] is False
    assert "24 hours" in said["retention"]["text"]
    assert "409" in said["concurrent"]
    assert "same answer" in said["kept"]["other 5xx"]
    assert "outcome-unknown" in said["kept"]["broken off"]
    assert "exact bytes" in said["comparison"]


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
    kept = document(the_rules(failed=failed, abandoned=abandoned))["kept"]
    assert kept["other 5xx"].endswith(".")
    assert kept["broken off"].endswith(".")


def test_the_page_is_well_formed() -> None:
    """And has no script in it."""
    reader = read(page(the_rules()))
    assert {"section", "dl", "dt", "dd"} <= reader.tags
    assert "script" not in reader.tags


def test_the_page_says_what_the_document_says() -> None:
    """They are one document in two forms."""
    text = re.sub(r"<[^>]*>", "\0", page(the_rules()))
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
