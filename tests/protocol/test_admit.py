"""`admit` and `respond`: from the head of a request to a claim, or to a refusal that leaves no record."""

from typing import Any

import pytest

from retrysafe import scopes
from retrysafe._core import keys
from retrysafe._core.decisions import admit
from retrysafe._core.model import Claim, Header, Request, Scope
from retrysafe._core.problems import Problem
from retrysafe._core.protocol import respond
from retrysafe._core.steps import Gone, Identify, ReadBody, Reserve, Result, TooLarge
from retrysafe.policy import Options, Rules, Wire, compile_rules
from tests.protocol.values import Stepper, describe

SOMEBODY = Scope((("user", "1"),))
EVERYBODY = Scope((("public", "*"),), public=True)


def the_rules(wire: Wire | None = None, **options: Any) -> Rules:
    said: Options = {"scope": scopes.public(), **options}  # type: ignore[typeddict-item]  # any option
    return compile_rules(said, wire or Wire())


def a_request(*values: bytes, name: bytes = b"idempotency-key") -> Request:
    headers: list[Header] = [(b"host", b"api.test"), *((name, value) for value in values)]
    return Request("POST", "/orders", b"", headers)


def arriving(request: Request, rules: Rules) -> Stepper[Result]:
    return Stepper(respond(request, rules, describe, b"token", "request-1", "trace-1", lambda: False, b""))


@pytest.mark.parametrize("value", [b"k", b'"k"', b" k\t", b'"k";a=1'])
def test_a_key_is_a_key(value: bytes) -> None:
    """Quoted or bare, with white space around it or parameters after it, it is the same key."""
    assert admit(a_request(value), the_rules()) == "k"


def test_no_key() -> None:
    """The problem names the header that is missing."""
    problem = admit(a_request(), the_rules())
    assert isinstance(problem, Problem)
    assert problem.code == "key-missing"
    assert "Idempotency-Key" in problem.detail


@pytest.mark.parametrize(
    "values",
    [
        [b"a", b"b"],
        [b"a", b"a"],
        [b""],
        [b"  "],
        [b'""'],
        [b"a b"],
        [b"a,b"],
        [b'"a", "b"'],
        [b'"a'],
        [b'"a\\n"'],
        [b"a\x00"],
        [b"a\r\nx: y"],
        ["ü".encode()],
        [b"x" * 256],
        [b'"' + b"x" * 256 + b'"'],
    ],
)
def test_a_malformed_key_is_refused(values: list[bytes]) -> None:
    """Ignoring it would run the request unprotected; repeating it would be an injection (F39, S10)."""
    problem = admit(a_request(*values), the_rules())
    assert isinstance(problem, Problem)
    assert problem.code == "key-invalid"
    assert "\r" not in problem.detail
    assert "\x00" not in problem.detail


def test_255_characters_are_a_key() -> None:
    """The limit is the last length that is allowed."""
    assert admit(a_request(b"x" * 255), the_rules()) == "x" * 255


def test_header_and_limit_are_wire_policy() -> None:
    """A profile may name another header and another limit."""
    rules = the_rules(Wire(key_header="X-Key", longest_key=3))
    assert admit(a_request(b"abc", name=b"x-key"), rules) == "abc"
    too_long, missing = admit(a_request(b"abcd", name=b"x-key"), rules), admit(a_request(b"abc"), rules)
    assert isinstance(too_long, Problem)
    assert isinstance(missing, Problem)
    assert (too_long.code, missing.code) == ("key-invalid", "key-missing")
    assert "X-Key" in missing.detail


def test_a_bad_key_asks_for_nothing() -> None:
    """Nobody is identified and no body is read for a request that is refused anyway."""
    flow = arriving(a_request(b""), the_rules())
    assert flow.result == Result("key-invalid", flow.result.reply)
    assert flow.asked == []


def test_nobody_is_refused() -> None:
    """A scope that answers nothing never falls into a shared one, and the body is not read (I8)."""
    flow = arriving(a_request(b"k"), the_rules())
    flow.expect(Identify)
    flow.give(None)
    assert isinstance(flow.result, Result)
    assert flow.result.verdict == "principal-required"


def test_a_short_public_key_is_refused() -> None:
    """Where nobody is identified, a key that can be guessed keeps nobody apart."""
    flow = arriving(a_request(b"x" * 15), the_rules())
    flow.give(EVERYBODY)
    assert isinstance(flow.result, Result)
    assert flow.result.verdict == "key-invalid"
    flow = arriving(a_request(b"x" * 16), the_rules())
    flow.give(EVERYBODY)
    flow.expect(ReadBody)
    flow = arriving(a_request(b"x"), the_rules())
    flow.give(SOMEBODY)
    flow.expect(ReadBody)


def test_a_body_that_is_too_large_is_refused() -> None:
    """Before any claim (F33)."""
    flow = arriving(a_request(b"k"), the_rules())
    flow.give(SOMEBODY)
    flow.give(TooLarge(7))
    assert isinstance(flow.result, Result)
    assert flow.result.verdict == "body-too-large"
    assert isinstance(flow.result.reply, Problem)
    assert "7 bytes" in flow.result.reply.detail


def test_a_client_that_is_gone_leaves_nothing() -> None:
    """No claim, no record, and nobody to answer (F27)."""
    flow = arriving(a_request(b"k"), the_rules())
    flow.give(SOMEBODY)
    flow.give(Gone())
    assert flow.result == Result("gone", None)


def claimed(rules: Rules, scope: Scope = SOMEBODY) -> Claim:
    flow = arriving(a_request(b"k"), rules)
    flow.give(scope)
    flow.give(b"fingerprint")
    return flow.expect(Reserve).claim


def test_the_claim() -> None:
    """It says all that a record needs to know."""
    rules = the_rules(lease=10, retention=100, unknown_retention=1000)
    assert claimed(rules) == Claim(
        id=keys.digest("request", SOMEBODY.parts, "k"),
        token=b"token",
        fingerprint=b"fingerprint",
        lease=10,
        retention=100,
        hold=1000,
        door="request",
        scope=SOMEBODY.parts,
        key="k",
        action="POST",
        target="/orders",
        request_id="request-1",
        correlation_id="trace-1",
        mode="lease",
    )


def test_only_a_held_outcome_is_held_longer() -> None:
    """Where an abandoned request may run again, its record is kept no longer than any other."""
    assert claimed(the_rules(abandoned="retry")).hold == 0.0


def test_the_key_need_not_be_kept() -> None:
    """`keep_key=False` stores the digest only; the identity is the same."""
    secretive = claimed(the_rules(keep_key=False))
    assert secretive.key is None
    assert secretive.id == claimed(the_rules()).id


def test_another_owner_is_another_identity() -> None:
    """The same key of two owners is two keys (S1)."""
    one, other = (claimed(the_rules(), Scope((("user", user),))) for user in ("1", "2"))
    assert one.id != other.id


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_trouble_before_the_claim_is_not_hidden(error: BaseException) -> None:
    """What a scope function or a body raises passes through: nothing has to be tidied up yet."""
    for steps_before in (0, 1):
        flow = arriving(a_request(b"k"), the_rules())
        if steps_before:
            flow.give(SOMEBODY)
        with pytest.raises(type(error)):
            flow.throw(error)
