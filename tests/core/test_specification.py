"""What a service publishes about its keys: made from the rules that are in force, and from nothing else."""

import json
import re
import shlex
from itertools import product
from typing import Any

import pytest

from retrysafe import profiles, scopes
from retrysafe._core.model import Request
from retrysafe._core.problems import CATALOGUE, COMMON
from retrysafe._http import specification
from retrysafe._http.routes import Protected
from retrysafe.policy import Rules, Wire
from tests.core.published import document, in_force, markdown, page
from tests.core.values import the_rules

POST = frozenset({"POST"})


def allows(_: Request) -> bool:
    return True


# Under these, every problem that there is may be sent.
EVERYTHING: dict[str, Any] = {
    "scope": scopes.header("X-Tenant"),
    "required": True,
    "failed": "conflict",
    "reauthorise": allows,
}


# --- problems


@pytest.mark.parametrize("code", COMMON)
def test_every_problem_is_in_it(code: str) -> None:
    """With its status, its title, what happened and what to do."""
    kind = CATALOGUE[code]  # type: ignore[index]
    entry = document(the_rules(**EVERYTHING))["problems"][code]
    assert (entry["status"], entry["title"], entry["retry"]) == (kind.status, kind.title, bool(kind.retry))
    assert entry["meaning"].endswith(".")
    assert entry["advice"].endswith(".")
    if code != "handler-failed":  # which depends on the policy
        assert (entry["meaning"], entry["advice"]) == (kind.meaning, kind.advice)


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
    """A client need not prepare for what it is never sent; no form of the document names it."""
    rules = the_rules(**EVERYTHING | options)
    assert code not in document(rules)["problems"]
    assert code not in json.dumps(document(rules))
    assert code not in page(rules)
    assert code not in markdown(rules)


@pytest.mark.parametrize(
    ("options", "retry", "advice"),
    [
        ({}, False, "check the resource"),
        ({"failed": "retry"}, True, "unless the response has X-Should-Retry: false"),
        ({"effects": "database"}, True, "Send the same request again, with the same key."),
        ({"failed": "conflict"}, False, "check the resource"),
    ],
)
def test_what_to_do_about_a_failure(options: dict[str, Any], retry: bool, advice: str) -> None:
    """As its own hint says; where routes differ, only the response itself can say."""
    said = document(the_rules(**options))
    problem = said["problems"]["handler-failed"]
    assert problem["retry"] is retry
    assert advice in problem["advice"]
    assert {name: problem[name] for name in ("meaning", "advice")} == said["responses"]["Any other 5xx"]
    other = Protected("/other", the_rules(failed="retry"))
    told = document(in_force(the_rules(**options), [other]))["problems"]["handler-failed"]
    assert told["retry"] is retry
    if options != {"failed": "retry"}:
        assert told["advice"] == CATALOGUE["handler-failed"].advice


def test_a_text_that_is_always_the_same() -> None:
    """Clients that look for it find it."""
    wire = Wire(details={"in-flight": "Request is being processed"})
    said = document(the_rules(wire))["problems"]
    assert said["in-flight"]["detail"] == "Request is being processed"
    assert "detail" not in said["key-reused"]
    assert "Request is being processed" in page(the_rules(wire))


def enveloped(problem: Any) -> dict[str, object]:
    return {"oops": {"kind": problem.code.upper(), "text": problem.detail}}


def fails(problem: Any) -> dict[str, object]:
    raise RuntimeError("a bug in the application")


def test_a_form_of_ones_own() -> None:
    """A body is shown as it is sent: our codes would not be found in it."""
    said = document(the_rules(Wire(render_problem=enveloped)))
    entry = said["problems"]["in-flight"]
    assert entry["media_type"] == "application/json"
    assert entry["body"] == {"oops": {"kind": "IN-FLIGHT", "text": "…"}}
    assert "RFC 9457" not in said["form"]
    assert "&quot;IN-FLIGHT&quot;" in page(the_rules(Wire(render_problem=enveloped)))
    assert "body" not in document(the_rules())["problems"]["in-flight"]
    assert "RFC 9457" in document(the_rules())["form"]


def test_a_form_of_ones_own_that_fails() -> None:
    """The page says what clients then get, which is the standard form; it does not fail itself."""
    entry = document(the_rules(Wire(render_problem=fails)))["problems"]["in-flight"]
    assert entry["media_type"] == "application/problem+json"
    assert entry["body"]["type"] == "http://shop.test/idempotency#in-flight"


# --- routes


def test_routes_say_what_they_do_differently() -> None:
    """And nothing else; but each problem of theirs is listed, because its `type` leads to the same page."""
    routes = [
        Protected("/payments", the_rules(required=True, failed="conflict")),
        Protected("/search", the_rules(effects="repeatable")),
        Protected("/same", the_rules()),
    ]
    told = document(in_force(the_rules(), routes))
    entries = {entry["path"]: entry for entry in told["routes"]}
    assert {path: sorted(entry["differs"]) for path, entry in entries.items()} == {
        "/payments": ["key", "responses"],
        "/search": ["guarantee", "interrupted", "responses"],
        "/same": [],
    }
    assert entries["/payments"]["differs"]["key"] == {"required": True}
    assert [entry["required"] for entry in told["routes"]] == [True, False, False]
    assert {"key-missing", "previously-failed"} <= set(told["problems"])
    assert "replay-forbidden" not in told["problems"]
    assert "to any path may have a key; these routes have terms of their own." in told["coverage"]


def test_what_does_not_hold_on_a_route() -> None:
    """It is null for programs, and said in words for people."""
    routes = [Protected("/tx", the_rules(effects="database"))]
    told = document(in_force(the_rules(), routes))["routes"][0]["differs"]
    assert told["headers"] == {"Idempotency-Stored": None}
    assert told["states"] == {"failed": None}
    text = markdown(in_force(the_rules(), routes))
    assert "`Idempotency-Stored` is not sent." in text
    assert "None" not in text.replace("None, or", "")


def test_one_path_by_two_methods() -> None:
    """Each endpoint is listed, with what holds for it."""
    routes = [
        Protected("/orders/{id}", the_rules(required=True), frozenset({"PUT"})),
        Protected("/orders/{id}", the_rules(), frozenset({"DELETE", "GET"})),
        Protected("/orders/{id}", the_rules(), frozenset({"GET", "HEAD"})),
    ]
    told = document(in_force(the_rules(), routes, paths=(), endpoints=True))["routes"]
    assert [(entry["methods"], entry["required"]) for entry in told] == [(["PUT"], True), (["DELETE"], False)]


def test_endpoints_with_rules_of_their_own() -> None:
    """The guard's own rules hold for none of them: what they have in common is the base, and no more."""
    in_database = the_rules(effects="database", retention="2d")
    routes = [Protected(f"/{number}", in_database, POST) for number in range(3)]
    routes.append(Protected("/other", the_rules(effects="database"), POST))
    guards_own = the_rules(required=True, failed="conflict")
    told = document(in_force(guards_own, routes, paths=(), endpoints=True))
    assert told["coverage"] == "These routes take keys, and no others."
    assert told["retention"]["seconds"] == 2 * 86400
    assert [sorted(entry["differs"]) for entry in told["routes"]] == [[], [], [], ["retention"]]
    assert {"key-missing", "previously-failed", "outcome-unknown"}.isdisjoint(told["problems"])
    assert "unknown" not in json.dumps(told)


def test_endpoints_claim_late() -> None:
    """A refused validation leaves the key free there, and only there."""
    routes = [Protected("/orders", the_rules(), POST)]
    refusal = "A refusal before the endpoint runs, such as a failed validation"
    assert refusal in document(in_force(the_rules(), routes, paths=(), endpoints=True))["responses"]
    assert refusal not in document(in_force(the_rules(), routes))["responses"]


def test_no_route_at_all() -> None:
    """An application that protects nothing says so."""
    told = document(in_force(the_rules(), paths=(), endpoints=True))
    assert (told["coverage"], told["routes"]) == ("No route takes keys.", [])


def test_no_method_at_all() -> None:
    """A wire that covers nothing is described, too."""
    told = document(the_rules(Wire(methods=frozenset())))
    assert (told["coverage"], told["key"]["methods"]) == ("No route takes keys.", [])


def test_listed_paths() -> None:
    """What a middleware covers is listed with what single routes say."""
    routes = [Protected("/api/search", the_rules(required=True))]
    told = document(in_force(the_rules(), routes, paths=("/api/*", "/orders")))
    assert told["coverage"] == "These routes take keys, and no others."
    assert [entry["path"] for entry in told["routes"]] == ["/api/search", "/api/*", "/orders"]
    assert told["key"]["required"] is False


def test_the_guards_own_rules_come_first() -> None:
    """Where they hold for a prefix, they hold for more than the routes that are listed one by one."""
    routes = [Protected(f"/api/{number}", the_rules(required=True)) for number in range(3)]
    told = document(in_force(the_rules(), routes, paths=("/api/*",)))
    assert told["key"]["required"] is False
    assert [sorted(entry["differs"]) for entry in told["routes"]] == [["key"], ["key"], ["key"], []]


def test_paths_that_a_function_chooses() -> None:
    """They cannot be listed, and nothing is made up."""
    told = document(in_force(the_rules(required=True), paths=(), unnamed=True))
    assert "to one of the paths that the service has chosen needs a key." in told["coverage"]
    assert told["routes"] == []


def test_sentences_about_all_routes() -> None:
    """How it works is said once, so it must hold for every one of them."""
    routes = [Protected("/search", the_rules(effects="repeatable"))]
    assert "once the first one has run" in document(the_rules())["how"][1]
    assert "once the first one has succeeded" in document(in_force(the_rules(), routes))["how"][1]


def test_thousands_of_routes() -> None:
    """They are all listed, and few kinds of them are described once each."""
    kinds = [the_rules(), the_rules(required=True), the_rules(effects="repeatable")]
    routes = [Protected(f"/r/{number}/{{id}}", kinds[number % 3], POST) for number in range(3000)]
    published = in_force(the_rules(), routes, paths=(), endpoints=True)
    told = document(published)
    assert len(told["routes"]) == 3000
    assert page(published).count("<tr") > 3000
    assert len({json.dumps(entry["differs"]) for entry in told["routes"]}) == 3


# --- what is in force


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
        max_request=2048,
        drop_headers=["X-Session"],
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
    assert "previously-failed" in said["responses"]["Any other 5xx"]["meaning"]
    assert "runs again" in said["interrupted"]
    assert "12345 bytes" in said["stored"]["bodies"]
    assert "X-Body" in said["stored"]["bodies"]
    assert "2 KiB" in said["stored"]["request"]
    assert "x-session" in said["stored"]["headers"]
    assert "5 seconds" in said["concurrent"]
    assert "RFC 8785" in said["comparison"]
    assert "X-Again" in said["headers"]
    assert "X-Key" in said["how"][0]
    assert "X-Again: true" in said["how"][1]


def test_the_defaults() -> None:
    """What most services will publish."""
    said = document(the_rules())
    assert said["key"]["required"] is False
    assert "24 hours from the first request" in said["retention"]["text"]
    assert "409" in said["concurrent"]
    assert "gets the same response" in said["responses"]["Any other 5xx"]["meaning"]
    assert "outcome-unknown" in said["interrupted"]
    assert "30 days" in said["interrupted"]
    assert "exact bytes" in said["comparison"]
    assert said["guarantee"] == "While its key is stored, a request takes effect at most once."
    assert said["states"].keys() == {"in_progress", "completed", "failed"}
    assert said["headers"].keys() == {
        "Idempotent-Replayed", "Original-Request-Id", "X-Request-Id", "Idempotency-Body",
        "Idempotency-Stored", "X-Should-Retry",
    }  # fmt: skip
    assert len(said["how"]) == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"retention_from": "update"}, "24 hours from their completion"),
        ({"keep_key": False}, "Of keys, only a digest is stored."),
        ({"keep_key": True}, "Keys are stored as they were sent"),
        ({"store_down": "run"}, "This does not hold while the service cannot use its store"),
        ({"effects": "repeatable"}, "One that failed or was interrupted may be run again"),
        ({"effects": "repeatable", "abandoned": "hold"}, "One that failed may be run again"),
        ({"abandoned": "retry"}, "One that was interrupted may be run again"),
        ({"effects": "database"}, "is committed together with its response"),
        ({"no_store": True}, "its stored response without the body"),
        ({"failed": "conflict"}, "once the first one has succeeded"),
        ({"max_response": 3 * 1024**3}, "up to 3 GiB"),
        ({"max_response": 1}, "up to 1 byte."),
    ],
)
def test_every_choice_has_its_sentence(options: dict[str, Any], sentence: str) -> None:
    """And the sentence is not there without the choice; it is in all three forms."""
    other: dict[str, Any] = {"keep_key": not options["keep_key"]} if "keep_key" in options else {}
    plain = re.escape(sentence)
    assert sentence in json.dumps(document(the_rules(**options)))
    assert re.search(plain, re.sub("<[^>]*>", "", page(the_rules(**options))))
    assert sentence in markdown(the_rules(**options))
    assert sentence not in json.dumps(document(the_rules(**other)))


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
    assert "rolled back" in said["responses"]["Any other 5xx"]["meaning"]
    assert "rolled back" in said["interrupted"]
    assert "outcome-unknown" not in json.dumps(said)
    assert "events" not in said["stored"]["bodies"]
    assert "failed" not in said["states"]
    assert "Idempotency-Stored" not in json.dumps(said)
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
    assert "X-Should-Retry" not in json.dumps(said)
    assert "succeeded" in said["states"]
    assert "completed" not in json.dumps(said)


def test_a_wire_without_hints() -> None:
    """There is no header to look for, and none is named."""
    for failed in ("replay", "retry", "conflict"):
        said = document(the_rules(Wire(should_retry_headers=()), failed=failed))
        assert "Retry:" not in json.dumps(said)
        assert "None, 502 or 504" in said["responses"]


def test_bodies_that_are_not_stored() -> None:
    """`no_store`: and so no limit is named."""
    bodies = document(the_rules(no_store=True))["stored"]["bodies"]
    assert bodies.startswith("Bodies of responses are not stored")
    assert "MiB" not in bodies
    erp = document(the_rules(Wire(tombstone="empty-200")))["stored"]["bodies"]
    assert "an empty 200 if it was a success" in erp


RULES = [
    *(
        {"effects": "outside", "failed": failed, "abandoned": abandoned}
        for failed, abandoned in product(("replay", "retry", "conflict"), ("hold", "retry"))
    ),
    {"effects": "repeatable"},
    {"effects": "database"},
]


@pytest.mark.parametrize("options", RULES, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("store_down", ["refuse", "run"])
@pytest.mark.parametrize("in_flight", ["reject", "wait"])
def test_no_sentence_contradicts_the_policy(options: dict[str, Any], store_down: str, in_flight: str) -> None:
    """Each claim about runs, outcomes and retries is there exactly where the policy makes it true."""
    rules = the_rules(**options, store_down=store_down, in_flight=in_flight)
    policy = rules.policy
    in_database, runs_again = policy.effects == "database", "retry" in (policy.failed, policy.abandoned)
    text = markdown(rules)
    expected = {
        "takes effect at most once": not in_database and not runs_again,
        "takes effect once, however often": in_database,
        "may be run again by a retry": not in_database and runs_again,
        "requests are then run unprotected": store_down == "run",
        "`Idempotency-Stored`": not in_database or store_down == "run",
        "`outcome-unknown`": not in_database,
        "the outcome is unknown": not in_database and policy.abandoned == "hold",
        "`previously-failed`": policy.failed == "conflict",
        "what it did is not known": policy.failed != "retry",
        "a retry gets the same response": policy.failed == "replay",
        "runs it again": policy.failed == "retry",
        "rolled back": in_database,
        "waits for it, up to 10 seconds": in_flight == "wait",
        "streams of events": not in_database,
    }
    assert {claim: claim in text for claim in expected} == expected


@pytest.mark.parametrize("profile", profiles.PROFILES.values(), ids=list(profiles.PROFILES))
def test_profiles(profile: profiles.Profile) -> None:
    """Each names its own header, its statuses and the headers that it adds."""
    said = document(the_rules(profile.wire, **{**profile.options, "scope": scopes.user}))
    assert said["key"]["header"] == profile.wire.key_header
    assert profile.wire.key_header in said["example"]["command"]
    assert profile.wire.replayed_header in said["headers"]
    for code, status in profile.wire.statuses.items():
        assert said["problems"][code]["status"] == status
    assert ("body" in said["problems"]["in-flight"]) is (profile.wire.render_problem is not None)
    assert (profile.wire.key_header in said["headers"]) is profile.wire.echo_key
    assert (profile.wire.keyed_id_header in said["headers"]) is (profile.wire.keyed_id_header is not None)


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


# --- the example


def example_of(rules: Rules, path: str = "/orders", methods: frozenset[str] = POST, **request: Any) -> Any:
    published = in_force(rules, [Protected(path, rules, methods)], paths=(), endpoints=True)
    return document(published, **request)["example"]


def words(command: str) -> tuple[str, list[str]]:
    """How the key is made, and what curl is called with; the shell puts the key in."""
    make, curl = command.replace("\\\n", " ").split("\n")
    return make.partition("=")[2].partition("  #")[0], shlex.split(curl)


def test_the_example_is_a_request_to_this_service() -> None:
    """A protected route at the address by which the service was reached, with the headers that it needs."""
    rules = the_rules(Wire(key_header="X-Key"), scope=scopes.all_of(scopes.header("X-Tenant"), scopes.user))
    said = example_of(rules, root="/v1")
    assert (said["method"], said["url"]) == ("POST", "http://shop.test/v1/orders")
    make, curl = words(said["command"])
    assert make == "$(openssl rand -hex 16)"
    assert curl[:4] == ["curl", "-X", "POST", "http://shop.test/v1/orders"]
    assert {"X-Key: $KEY", "X-Tenant: ...", "Content-Type: application/json"} <= set(curl)


@pytest.mark.parametrize(
    ("path", "methods", "shown"),
    [
        ("/orders/{order_id}/lines/{n:int}", {"PUT"}, "PUT http://shop.test/orders/ORDER_ID/lines/N"),
        ("/files/<path:name>", {"POST"}, "POST http://shop.test/files/NAME"),
        ("/api/*", {"PATCH", "POST"}, "POST http://shop.test/api/PATH"),
        ("/caf\xe9 & more", {"DELETE"}, "DELETE http://shop.test/caf%C3%A9%20&%20more"),
        (
            "/a'; rm -rf $HOME `x` \udcff",
            {"POST"},
            "POST http://shop.test/a';%20rm%20-rf%20$HOME%20%60x%60%20%3F",
        ),
    ],
)
def test_paths_in_the_example(path: str, methods: set[str], shown: str) -> None:
    """What a reader has to replace is in capitals; the rest is what a shell and a URL take as it is."""
    said = example_of(the_rules(), path, frozenset(methods))
    assert f"{said['method']} {said['url']}" == shown
    assert words(said["command"])[1][:4] == ["curl", "-X", said["method"], said["url"]]
    assert ("request.json" in said["command"]) is ("DELETE" not in methods)


def test_the_simplest_route_is_the_example() -> None:
    """One whose path is known in full comes before one of which a part has to be filled in."""
    routes = [
        Protected("/api/*", the_rules()),
        Protected("/orders/{id}", the_rules(), POST),
        Protected("/orders", the_rules(), frozenset({"PUT"})),
        Protected("/payments", the_rules(), POST),
    ]
    assert document(in_force(the_rules(), routes))["example"]["url"] == "http://shop.test/payments"
    assert document(the_rules())["example"]["url"] == "http://shop.test/PATH"


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        (b"shop.test:8443", "shop.test:8443"),
        (b"[::1]:8000", "[::1]:8000"),
        (b"x'; rm -rf ~ #", "localhost"),
        (b'"><script>alert(1)</script>', "localhost"),
        (b"evil.test/path", "localhost"),
        (b"a\r\nX-Injected: 1", "localhost"),
        (b"user:secret@evil.test", "localhost"),
        (b"caf\xe9.test", "localhost"),
        (b"", "localhost"),
        (b"h" * 256, "localhost"),
    ],
)
def test_a_hostile_host(host: bytes, shown: str) -> None:
    """What is not the name of a host is not repeated, in none of the forms."""
    said = document(the_rules(), (b"host", host))
    assert said["service"] == f"http://{shown}"
    assert said["url"] == f"http://{shown}/idempotency"
    if shown == "localhost":
        for text in (page(the_rules(), (b"host", host)), markdown(the_rules(), (b"host", host))):
            assert "script" not in text
            assert "evil" not in text
            assert "http://localhost/PATH" in text


@pytest.mark.parametrize("root", ["/<script>", "/it's", "/`id`", "/a b|c"])
def test_a_hostile_mount(root: str) -> None:
    """Where an application is mounted at a template, a client chooses a part of its address."""
    said = document(the_rules(), root=root)
    assert re.fullmatch(r"http://shop\.test/[\w%'-]+", said["service"])
    assert root[1:] not in page(the_rules(), root=root)
    assert said["problems"].keys() == document(the_rules())["problems"].keys()


def test_a_scheme_that_is_not_ours() -> None:
    """Whatever a proxy said: the address is one of HTTP."""
    assert document(the_rules(), scheme="javascript")["service"] == "http://shop.test"
    assert document(the_rules(), scheme="https")["service"] == "https://shop.test"


@pytest.mark.parametrize(
    ("wire", "scope", "made"),
    [
        (Wire(), scopes.user, 32),
        (Wire(longest_key=20), scopes.user, 20),
        (Wire(longest_key=200, shortest_public_key=100), scopes.public(), 100),
        (Wire(longest_key=200, shortest_public_key=100), scopes.user, 32),
        (Wire(longest_key=1), scopes.user, 1),
    ],
)
def test_the_key_of_the_example(wire: Wire, scope: Any, made: int) -> None:
    """It is as long as the service asks for; a UUID is recommended where one would be taken."""
    said = document(the_rules(wire, scope=scope))
    expected = "$(openssl rand -hex 16)" if made == 32 else f"$(openssl rand -hex {made} | cut -c 1-{made})"
    assert words(said["example"]["command"])[0] == expected
    assert ("UUID" in said["how"][0]) is (made == 32)


@pytest.mark.parametrize(
    ("name", "strict", "sent"),
    [
        ("Idempotency-Key", False, "Idempotency-Key: $KEY"),
        ("Idempotency-Key", True, 'Idempotency-Key: "$KEY"'),
        ("X-$HOME`id`!'|", False, "X-$HOME`id`!'|: $KEY"),
        ("X-$HOME`id`!'|", True, 'X-$HOME`id`!\'|: "$KEY"'),
    ],
)
def test_the_header_of_the_example(name: str, strict: bool, sent: str) -> None:
    """In quotation marks where the service insists; a name with signs of the shell in it stays a name."""
    _, curl = words(example_of(the_rules(Wire(key_header=name, strict_keys=strict)))["command"])
    assert curl[curl.index("-H") + 1] == sent


def test_a_page_elsewhere() -> None:
    """Where an application publishes its own page, that is where more is said."""
    said = document(the_rules(Wire(specification="https://docs.test/keys")))
    assert said["forms"] == "More about it is at https://docs.test/keys."
    assert "http://shop.test/idempotency, as text/html" in document(the_rules())["forms"]


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
