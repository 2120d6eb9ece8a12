"""What may be said to a guard, and how it is told that something may not."""

import math
from datetime import timedelta
from typing import Any

import pytest

from retrysafe import Guard, scopes
from retrysafe.errors import ConfigurationError
from retrysafe.policy import (
    MIB,
    Options,
    OutcomeRules,
    Policy,
    RequestRules,
    Rules,
    Wire,
    compile_rules,
    layered,
)
from tests.core.values import the_rules

CHOICES: dict[str, list[Any]] = {
    "effects": ["outside", "repeatable", "database"],
    "failed": ["replay", "retry", "conflict"],
    "abandoned": ["hold", "retry"],
    "in_flight": ["reject", "wait"],
    "store_down": ["refuse", "run"],
    "background": ["before", "after"],
    "required": [True, False, "warn"],
    "keep_key": [True, False],
    "no_store": [True, False],
}
DURATIONS = ["lease", "retention", "unknown_retention", "wait_for"]
NUMBERS = [*DURATIONS, "max_request", "max_response"]
SECRET = b"sixteen or more of them"


def option(rules: Rules, name: str) -> object:
    """As it was compiled, into whichever value."""
    return next(getattr(value, name) for value in rules[:3] if name in value._fields)


def refused(**options: Any) -> str:
    with pytest.raises(ConfigurationError) as error:
        the_rules(**options)
    return str(error.value)


def test_a_scope_must_be_given() -> None:
    """Whose key it is is never guessed, and the message shows what to write."""
    with pytest.raises(ConfigurationError, match=r"no scope.*scopes\.header"):
        compile_rules({}, Wire())


@pytest.mark.parametrize("scope", [None, "X-Tenant", 42])
def test_a_scope_must_be_a_function(scope: object) -> None:
    """Anything else would fail at the first request instead of where it was written."""
    assert repr(scope) in refused(scope=scope)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("bad", ["no such choice", None, 2, ["replay"]])
def test_a_choice_must_be_one_of_them(name: str, bad: object) -> None:
    """The message names the option, what was found, and every choice."""
    message = refused(**{name: bad})
    assert f"{name}={bad!r}" in message
    assert all(repr(choice) in message for choice in CHOICES[name])


@pytest.mark.parametrize(
    ("name", "choice"),
    [(name, choice) for name, choices in CHOICES.items() for choice in choices],
)
def test_a_choice_is_taken(name: str, choice: object) -> None:
    """Each choice that there is can be made."""
    rules = the_rules(None, **{name: choice})
    assert option(rules, name) == choice


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("bad", [0, -1, -0.5, math.nan, math.inf, "10", None, True, [1]])
def test_a_number_must_be_positive(name: str, bad: object) -> None:
    """The message names the option, what was found and what was expected.

    Infinity is none: it can be neither slept, nor stored in every database, nor published as JSON.
    """
    message = refused(**{name: bad})
    assert f"{name}={bad!r}" in message
    assert "number" in message


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("number", [1, 2.5])
def test_a_number_is_taken(name: str, number: float) -> None:
    """Whole or not, it is kept as it was said."""
    rules = the_rules(None, **{name: number})
    assert option(rules, name) == number


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (timedelta(hours=24), 86400.0),
        (timedelta(milliseconds=1500), 1.5),
        ("24h", 86400.0),
        ("30d", 30 * 86400.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_has_several_forms(name: str, said: object, seconds: float) -> None:
    """As the command line takes them, and as Python has them; in the policy they are seconds."""
    assert getattr(the_rules(None, **{name: said}).policy, name) == seconds


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("bad", ["24", "24 hours", "", "-1h", "h", "200000w"])
def test_a_text_must_be_a_duration(name: str, bad: str) -> None:
    """The message says what was found, and how one is written."""
    assert f"{name}={bad!r} is not a valid duration: " in refused(**{name: bad})


@pytest.mark.parametrize("bad", ["0s", timedelta(0), timedelta(seconds=-1)])
def test_a_duration_must_be_positive_in_every_form(bad: object) -> None:
    """A lease of nothing would protect nothing."""
    assert f"lease={bad!r} must be a number of seconds greater than zero" in refused(lease=bad)


@pytest.mark.parametrize("name", ["max_request", "max_response"])
def test_a_size_is_not_a_duration(name: str) -> None:
    """`1h` of bytes would make no sense."""
    assert f"{name}='1h'" in refused(**{name: "1h"})


@pytest.mark.parametrize("bad", [TimeoutError, [TimeoutError], ("TimeoutError",), (KeyboardInterrupt,), None])
def test_retry_on_is_a_tuple_of_exceptions(bad: object) -> None:
    """`BaseException`s are no outcome of a handler and cannot be listed."""
    message = refused(retry_on=bad)
    assert repr(bad) in message
    assert "tuple of exception classes" in message


@pytest.mark.parametrize("bad", ["xml", 42, (), (1,), ["customer.id"]])
def test_a_fingerprint_must_be_one(bad: object) -> None:
    """It is checked where the guard is built, and not at its first request."""
    assert f"fingerprint={bad!r}" in refused(fingerprint=bad)


@pytest.mark.parametrize("good", ["raw", "json", ("customer.id",), None, lambda request, body: body])
def test_a_fingerprint_is_taken(good: Any) -> None:
    """Each kind of fingerprint can be chosen."""
    assert the_rules(fingerprint=good).request.fingerprint is good


@pytest.mark.parametrize("bad", [True, "yes", 1])
def test_reauthorise_must_be_a_function(bad: object) -> None:
    """Anything else would fail when a replay is to be handed out."""
    assert f"reauthorise={bad!r}" in refused(reauthorise=bad)


@pytest.mark.parametrize("bad", ["X-Session", None, 1, ("X Session",), (b"x-session",), ("",), ("X-A\r\nB",)])
def test_dropped_headers_must_be_names(bad: object) -> None:
    """One name without its comma is a text, and would be taken apart into letters."""
    assert "drop_headers" in refused(drop_headers=bad)


def test_dropped_headers_are_compared_in_lower_case() -> None:
    """As all names of headers."""
    assert the_rules(drop_headers=["X-Session", "X-Tab"]).outcome.drop_headers == {b"x-session", b"x-tab"}
    guard = Guard("memory:", scope=scopes.public(), drop_headers=("X-Session",))
    assert guard.rules.outcome.drop_headers == {b"x-session"}
    assert guard.compile({"drop_headers": ("X-Tab",)}).outcome.drop_headers == {b"x-tab"}


def test_an_unknown_option_is_refused() -> None:
    """With the names of those that there are, so that a slip of the pen is found."""
    message = refused(retension=5)
    assert "retension" in message
    assert "retention" in message


@pytest.mark.parametrize(
    ("name", "choice"),
    [("failed", "replay"), ("failed", "conflict"), ("abandoned", "hold"), ("background", "after")],
)
def test_what_means_nothing_in_a_transaction_is_refused(name: str, choice: str) -> None:
    """What failed there was rolled back; and nothing may leave before it is committed."""
    message = refused(effects="database", **{name: choice})
    assert f"{name}=" in message
    assert 'effects="database"' in message


def test_a_route_in_a_transaction_need_not_mind_what_the_guard_says() -> None:
    """What the guard chose for effects elsewhere does not concern it."""
    rules = compile_rules(
        layered({"scope": scopes.public(), "failed": "conflict"}, {"effects": "database"}), Wire()
    )
    assert (rules.policy.failed, rules.policy.abandoned) == ("retry", "retry")


def test_the_defaults_are_for_money() -> None:
    """Never twice, an unknown outcome is said to be unknown, and the numbers of the specification."""
    rules = the_rules()
    assert rules.policy == Policy(
        effects="outside",
        failed="replay",
        abandoned="hold",
        in_flight="reject",
        wait_for=10.0,
        lease=30.0,
        retention=24 * 3600.0,
        unknown_retention=30 * 24 * 3600.0,
        store_down="refuse",
        keep_key=True,
    )
    assert rules.request[1:] == (False, "raw", 100 * MIB, "before", None)
    assert rules.outcome == (MIB, False, (), "store", frozenset())


def test_what_follows_from_repeatable() -> None:
    """Where doing it again does no harm, failures and deaths are run again."""
    policy = the_rules(effects="repeatable").policy
    assert (policy.effects, policy.failed, policy.abandoned) == ("repeatable", "retry", "retry")


def test_what_follows_can_be_overridden() -> None:
    """By those who know."""
    policy = the_rules(effects="repeatable", failed="conflict").policy
    assert (policy.failed, policy.abandoned) == ("conflict", "retry")
    policy = the_rules(abandoned="retry").policy
    assert (policy.failed, policy.abandoned) == ("replay", "retry")


def test_every_option_is_in_one_value() -> None:
    """No option is accepted and ignored; whether a 4xx is stored is the door's choice, and not an option."""
    fields = [*Policy._fields, *RequestRules._fields, *OutcomeRules._fields]
    assert sorted(Options.__annotations__) == sorted(set(fields) - {"refusals"})
    assert len(fields) == len(set(fields))


def test_the_wire_in_bytes() -> None:
    """Header names are compared in lower case, whatever case they are written in."""
    names = the_rules(Wire(key_header="X-KEY")).names
    assert names.key == b"x-key"
    assert names.replayed == b"idempotent-replayed"
    assert names.original_id == b"original-request-id"
    assert names.request_id == b"x-request-id"
    assert names.correlation == b"x-correlation-id"
    assert names.body == b"idempotency-body"
    assert names.stored == b"idempotency-stored"


@pytest.mark.parametrize("bad", ["Schlüssel", "", "Two Words", "X-Key\r\nX-Evil: 1", "X:Y"])
@pytest.mark.parametrize("field", ["key_header", "replayed_header", "request_id_header"])
def test_a_header_name_must_be_one(field: str, bad: str) -> None:
    """RFC 9110 section 5.6.2: a name that is no token would break every answer, or split it."""
    with pytest.raises(ConfigurationError) as error:
        the_rules(Wire(**{field: bad}))  # type: ignore[arg-type]
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize(
    "wire",
    [
        Wire(methods=frozenset({"post"})),
        Wire(methods="POST"),  # type: ignore[arg-type]
        Wire(specification="idempotency"),
        Wire(longest_key=0),
        Wire(shortest_public_key=0),
        Wire(key_header="X-One", stored_header="x-one"),
        Wire(should_retry_headers=("X-One", "x-one")),
        Wire(should_retry_headers=("Idempotency-Key",)),
        Wire(keyed_id_header="X-Request-Id"),
    ],
)
def test_a_wire_that_would_guard_nothing_or_confuse(wire: Wire) -> None:
    """Methods that no request has, a page that is nowhere, keys that nobody can send, two headers as one."""
    with pytest.raises(ConfigurationError):
        the_rules(wire)


async def awaited(_: object) -> dict[str, object]:
    return {}


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (Wire(statuses={"key-lost": 400}), ["'key-lost'", "key-missing", "draining"]),  # type: ignore[dict-item]
        (Wire(details={"key-lost": "x"}), ["'key-lost'", "key-missing", "draining"]),  # type: ignore[dict-item]
        (Wire(statuses={"key-reused": 200}), ["'key-reused': 200", "400 to 599"]),
        (Wire(statuses={"key-reused": 600}), ["'key-reused': 600", "400 to 599"]),
        (Wire(statuses={"key-reused": True}), ["'key-reused': True", "400 to 599"]),
        (Wire(statuses={"key-reused": "400"}), ["'key-reused': '400'", "400 to 599"]),  # type: ignore[dict-item]
        (Wire(statuses=[("key-reused", 400)]), ["statuses=", "mapping"]),  # type: ignore[arg-type]
        (Wire(details={"in-flight": ""}), ["'in-flight': ''", "words"]),
        (Wire(details={"in-flight": 1}), ["'in-flight': 1", "words"]),  # type: ignore[dict-item]
        (Wire(render_problem="{}"), ["render_problem='{}'", "function"]),  # type: ignore[arg-type]
        (Wire(render_problem=awaited), ["render_problem=", "not awaited"]),  # type: ignore[arg-type]
        (Wire(echo_key="yes"), ["echo_key='yes'", "True or False"]),  # type: ignore[arg-type]
        (Wire(strict_keys=1), ["strict_keys=1", "True or False"]),  # type: ignore[arg-type]
        (Wire(tombstone="gone"), ["tombstone='gone'", "'status', 'empty-200'"]),  # type: ignore[arg-type]
        (Wire(tombstone=["status"]), ["tombstone=['status']", "'empty-200'"]),  # type: ignore[arg-type]
        (Wire(should_retry_headers="X-Retry"), ["should_retry_headers='X-Retry'", "tuple"]),  # type: ignore[arg-type]
        (Wire(should_retry_headers=("X Retry",)), ["should_retry_headers='X Retry'", "header name"]),
        (Wire(keyed_id_header=""), ["keyed_id_header=''", "header name"]),
        (Wire(completed_word=""), ["completed_word=''", "succeeded"]),
        (Wire(completed_word="failed"), ["completed_word='failed'", "succeeded"]),
        (Wire(completed_word="All good"), ["completed_word='All good'", "succeeded"]),
    ],
)
def test_a_wire_is_checked_when_the_guard_is_built(wire: Wire, said: list[str]) -> None:
    """The message names the field, what was found, and what there is to choose."""
    with pytest.raises(ConfigurationError) as error:
        Guard("memory:", scope=scopes.public(), wire=wire)
    assert [part for part in said if part not in str(error.value)] == []


def test_wires_can_be_compared() -> None:
    """A profile is data: two that say the same are the same, and a changed copy is another."""
    one = Wire(statuses={"key-reused": 400}, details={"in-flight": "x"})
    assert one == Wire(statuses={"key-reused": 400}, details={"in-flight": "x"})
    assert one != one._replace(echo_key=True)
    assert Wire() == Wire(statuses={}, details={})


def test_a_status_of_the_wire() -> None:
    """Its own number, or the catalogue's."""
    wire = Wire(statuses={"key-reused": 400})
    assert (wire.status("key-reused"), wire.status("in-flight")) == (400, 409)
    kinds = the_rules(wire).rendering.problems.kinds
    assert (kinds["key-reused"].status, kinds["in-flight"].status) == (400, 409)


def test_the_word_for_a_completed_record() -> None:
    """The other two states have one name everywhere."""
    assert [Wire().word(state) for state in ("in_progress", "completed", "failed")] == [
        "in_progress", "completed", "failed"
    ]  # fmt: skip
    wire = Wire(completed_word="succeeded")
    assert [wire.word(state) for state in ("in_progress", "completed", "failed")] == [
        "in_progress", "succeeded", "failed"
    ]  # fmt: skip


def test_what_is_used_by_no_rule_costs_nothing() -> None:
    """The flag that first responses look at is off unless a wire adds a header."""
    assert not the_rules().rendering.adds
    assert the_rules(Wire(echo_key=True)).rendering.adds
    assert the_rules(Wire(keyed_id_header="Original-Request")).rendering.adds


# --- the guard's secret


@pytest.mark.parametrize("combine", [lambda rule: rule, scopes.first_of, scopes.all_of])
def test_credentials_need_a_secret(combine: Any) -> None:
    """Without one, passwords could be guessed from what is stored; the message says how to make one."""
    rule = combine(scopes.credentials())
    with pytest.raises(ConfigurationError, match=r"secret=.*token_hex"):
        Guard("memory:", scope=rule)
    assert Guard("memory:", scope=rule, secret=SECRET).rules.request.scope is not rule
    with pytest.raises(ConfigurationError, match="secret="):
        Guard("memory:", scope=scopes.public()).compile({"scope": rule})


def test_digests_of_keys_need_a_secret() -> None:
    """A weak key could be guessed from its digest, which is all that is stored."""
    with pytest.raises(ConfigurationError, match=r"keep_key=False.*token_hex"):
        Guard("memory:", scope=scopes.public(), keep_key=False)
    rules = Guard("memory:", scope=scopes.public(), keep_key=False, secret=SECRET).rules
    assert rules.identity_secret == SECRET
    assert Guard("memory:", scope=scopes.public(), secret=SECRET).rules.identity_secret is None


def test_rules_do_not_show_the_secret() -> None:
    """A traceback with its variables may be sent anywhere."""
    guard = Guard("memory:", scope=scopes.credentials(), keep_key=False, secret=SECRET)
    assert SECRET.decode() not in repr(guard.rules)
    assert SECRET.decode() not in repr(guard.__dict__)


def test_a_guard_checks_when_it_is_built() -> None:
    """Misuse is raised where it was written, and never during a request."""
    with pytest.raises(ConfigurationError, match="no scope"):
        Guard("memory:")
    with pytest.raises(ConfigurationError, match="lease=0"):
        Guard("memory:", scope=scopes.public(), lease=0)
    with pytest.raises(ConfigurationError, match="no such option: colour"):
        Guard("memory:", scope=scopes.public(), colour="red")  # type: ignore[call-arg]  # on purpose


def test_a_route_says_what_differs() -> None:
    """The rest is what the guard says; `effects` of a route implies anew."""
    guard = Guard("memory:", scope=scopes.public(), lease=7.0, retention=9.0)
    rules: Rules = guard.compile({"lease": 8.0, "effects": "repeatable"})
    assert (rules.policy.lease, rules.policy.retention, rules.policy.failed) == (8.0, 9.0, "retry")
    assert guard.rules.policy.lease == 7.0
    with pytest.raises(ConfigurationError, match="retention=-1"):
        guard.compile({"retention": -1})
